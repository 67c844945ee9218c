package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testMachine = job.MustMachine(map[job.State]job.Phase{"queued": job.Ready,
	"running": job.Leased}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "queued"},
	{From: "queued", On: job.Claimed, To: "running"},
	{From: "running", On: job.Succeeded, To: job.StateNone},
	{From: "running", On: job.Expired, To: "queued"},
})

// build makes a contract that uses an engine.
type build func(*engine.Engine) *contract.Contract

// fakeContract is a contract with one path that says when it is asked and then does what the test
// wants.
type fakeContract struct {
	requested chan struct{}
	serve     func(*engine.Engine, http.ResponseWriter, *http.Request)
}

func newFakeContract(serve func(*engine.Engine, http.ResponseWriter, *http.Request)) *fakeContract {
	return &fakeContract{requested: make(chan struct{}, 16), serve: serve}
}

// offer is the contract with a name.
func (r *fakeContract) offer(name string) build {
	return func(e *engine.Engine) *contract.Contract {
		return &contract.Contract{Name: name,
			Mount:    func() httpapi.PrefixHandler { return r.mount(e) },
			JobTypes: []engine.JobType{{Name: name, Machine: testMachine}}}
	}
}

// served is the contract on the common address.
func (r *fakeContract) served() build { return r.offer("made") }

// at is a contract on an address of its own.
func at(address string, of build) build {
	return func(e *engine.Engine) *contract.Contract {
		c := of(e)
		c.Listen = address
		return c
	}
}

// documented is a contract with an OpenAPI document.
func documented(of build, text string) build {
	return func(e *engine.Engine) *contract.Contract {
		c := of(e)
		c.OpenAPI = []byte(text)
		return c
	}
}

func (r *fakeContract) mount(e *engine.Engine) httpapi.PrefixHandler {
	return httpapi.PrefixHandler{Name: "made", Prefixes: []string{"/made/"},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			r.requested <- struct{}{}
			r.serve(e, w, req)
		})}
}

func longPoll(e *engine.Engine, w http.ResponseWriter, r *http.Request) {
	jobs, err := e.Claim(r.Context(), engine.ClaimRequest{JobType: "made", Queues: []string{"q"},
		Max: 1, Wait: time.Minute})
	if err != nil || len(jobs) > 0 {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// node is a server under test.
type node struct {
	*server.Server
	store store.Store
	stop  context.CancelFunc
	ended chan error
	http  *http.Client
}

func testSettings(t *testing.T, set map[string]string) *config.Settings {
	t.Helper()
	flags := map[string]string{"listen": "127.0.0.1:0", "data_dir": t.TempDir()}
	for k, v := range set {
		flags[k] = v
	}
	s, err := config.Load(config.Sources{Flags: flags,
		Stores:    []setting.StoreKind{setting.StoreWord("sqlite")},
		Contracts: []*setting.Group{{Name: "made", Listen: new(string)}}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newServer(t *testing.T, set map[string]string,
	contracts ...build) (*server.Server, store.Store) {
	t.Helper()
	return newServerWith(t, set, nil, contracts...)
}

func newServerWith(t *testing.T, set map[string]string, change func(*server.Config),
	contracts ...build) (*server.Server, store.Store) {
	t.Helper()
	clock := testkit.NewClock()
	opened := testkit.MemoryStore(t, clock.Now)
	e := testkit.NewEngine(t, opened, clock)
	c := server.Config{Settings: testSettings(t, set), Store: opened, Engine: e,
		Log: slog.New(slog.DiscardHandler), Version: "v", Monotonic: clock.Monotonic,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "metrics")
		})}
	for _, of := range contracts {
		c.Contracts = append(c.Contracts, of(e))
	}
	if change != nil {
		change(&c)
	}
	s, err := server.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s, opened
}

func startNode(t *testing.T, set map[string]string, contracts ...build) *node {
	t.Helper()
	return startNodeWith(t, set, nil, contracts...)
}

func startNodeWith(t *testing.T, set map[string]string, change func(*server.Config),
	contracts ...build) *node {
	t.Helper()
	s, opened := newServerWith(t, set, change, contracts...)
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	n := &node{Server: s, store: opened, stop: stop, ended: make(chan error, 1),
		http: &http.Client{Transport: &http.Transport{},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			}}}
	go func() { n.ended <- s.Run(ctx); close(n.ended) }()
	t.Cleanup(func() {
		stop()
		<-n.ended
		n.http.CloseIdleConnections()
	})
	return n
}

// get asks for a path as it is written; -1 is no answer.
func (n *node) get(url string) (int, string) {
	resp, err := n.http.Get(url)
	if err != nil {
		return -1, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return -1, err.Error()
	}
	return resp.StatusCode, string(body)
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	r := newFakeContract(func(_ *engine.Engine, w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "contract")
	})
	n := startNode(t, nil, documented(r.served(), "openapi: 3"))
	for path, want := range map[string]struct {
		status int
		body   string
	}{
		"/health":             {200, ""},
		"/health/live":        {200, ""},
		"/health/ready":       {200, "store ok\nshutdown ok\n"},
		"/health/":            {404, "there is nothing at this path\n"},
		"/metrics":            {200, "metrics"},
		"/metrics/made":       {200, "metrics"},
		"/openapi/made.yaml":  {200, "openapi: 3"},
		"/openapi/other.yaml": {404, "there is nothing at this path\n"},
		"/made/x":             {200, "contract"},
		"/made/../health":     {200, "contract"}, // nothing is cleaned
		"//health":            {404, "there is nothing at this path\n"},
		"/":                   {404, "there is nothing at this path\n"},
		"/nowhere":            {404, "there is nothing at this path\n"},
	} {
		if status, body := n.get(n.URLs()[0] + path); status != want.status || body != want.body {
			t.Errorf("GET %s: %d %q, want %d %q", path, status, body, want.status, want.body)
		}
	}
}

func TestOwnListener(t *testing.T) {
	t.Parallel()
	r := newFakeContract(func(_ *engine.Engine, w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "contract")
	})
	n := startNode(t, nil, at("127.0.0.1:0", r.served()))
	urls := n.URLs()
	for url, want := range map[string]int{urls[0] + "/made/x": 404, urls[0] + "/health": 200,
		urls[0] + "/metrics": 200,
		urls[1] + "/made/x":  200, urls[1] + "/health": 200, urls[1] + "/metrics": 404} {
		if status, _ := n.get(url); status != want {
			t.Errorf("GET %s: %d, want %d", url, status, want)
		}
	}
}

// G-X-13 and G-RL-30: who waits for jobs is answered at once when the node stops.
func TestStopWakesLongPolls(t *testing.T) {
	t.Parallel()
	r := newFakeContract(longPoll)
	n := startNode(t, nil, r.served())
	answers := make(chan int, 8)
	for range 8 {
		go func() {
			status, _ := n.get(n.URLs()[0] + "/made/next")
			answers <- status
		}()
	}
	for range 8 {
		testkit.Receive(t, "a request to be under way", r.requested)
	}
	n.stop()
	for range 8 {
		if status := testkit.Receive(t, "an answer", answers); status != http.StatusNoContent {
			t.Errorf("status %d, want 204", status)
		}
	}
	if err := testkit.Receive(t, "the node to end", n.ended); err != nil {
		t.Error(err)
	}
	if err := n.store.Ping(context.Background()); err == nil {
		t.Error("the store is still open")
	}
	if status, _ := n.get(n.URLs()[0] + "/health"); status != -1 {
		t.Errorf("still answers: %d", status)
	}
}

// What is under way is let finish, while readiness has failed already and nothing new is let in.
func TestStopLetsRequestsFinish(t *testing.T) {
	t.Parallel()
	finish := make(chan struct{})
	r := newFakeContract(func(_ *engine.Engine, w http.ResponseWriter, _ *http.Request) {
		<-finish
		w.WriteHeader(http.StatusAccepted)
	})
	n := startNode(t, nil, r.served())
	answer := make(chan int, 1)
	go func() {
		status, _ := n.get(n.URLs()[0] + "/made/slow")
		answer <- status
	}()
	testkit.Receive(t, "a request to be under way", r.requested)
	n.stop()
	address := strings.TrimPrefix(n.URLs()[0], "http://")
	for { // until the listener is closed
		conn, err := net.Dial("tcp", address)
		if err != nil {
			break
		}
		conn.Close()
	}
	select {
	case err := <-n.ended:
		t.Fatalf("did not wait for the request: %v", err)
	default:
	}
	close(finish)
	if status := testkit.Receive(t, "an answer", answer); status != http.StatusAccepted {
		t.Errorf("status %d, want 202", status)
	}
	if err := testkit.Receive(t, "the node to end", n.ended); err != nil {
		t.Error(err)
	}
}

// What does not end within the grace is cut off; the stop succeeds nevertheless.
func TestStopCutsOff(t *testing.T) {
	t.Parallel()
	r := newFakeContract(func(_ *engine.Engine, _ http.ResponseWriter,
		req *http.Request) {
		<-req.Context().Done()
	})
	n := startNode(t, map[string]string{"shutdown_grace": "50ms"},
		r.served())
	answer := make(chan int, 1)
	go func() {
		status, _ := n.get(n.URLs()[0] + "/made/never")
		answer <- status
	}()
	testkit.Receive(t, "a request to be under way", r.requested)
	n.stop()
	if err := testkit.Receive(t, "the node to end", n.ended); err != nil {
		t.Error(err)
	}
	if status := testkit.Receive(t, "an answer", answer); status != -1 {
		t.Errorf("status %d, want none", status)
	}
}

func TestReadyNamesWhatFails(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil, newFakeContract(longPoll).served())
	if err := n.store.Close(); err != nil {
		t.Fatal(err)
	}
	if status, body := n.get(n.URLs()[0] +
		"/health/ready"); status != http.StatusServiceUnavailable ||
		!strings.Contains(body, "store") {
		t.Errorf("%d %q, want 503 and the store", status, body)
	}
	if status, _ := n.get(n.URLs()[0] + "/health/live"); status != http.StatusOK {
		t.Errorf("live: %d, want 200", status)
	}
}

func TestListenErrors(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for address, want := range map[string]string{
		taken.Addr().String(): "the address " + taken.Addr().String() +
			" is in use by another process",
		"192.0.2.1:0":            "not one of this machine's",
		"no.such.host.invalid:1": "cannot listen on",
	} {
		s, _ := newServer(t, map[string]string{"operator.token": "t",
			"trusted_network": "true"},
			newFakeContract(longPoll).served(),
			at(address, newFakeContract(longPoll).offer("other")))
		if err := s.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key, pool := writeCertificate(t)
	n := startNode(t, map[string]string{"tls.cert": cert, "tls.key": key},
		newFakeContract(longPoll).served())
	if !strings.HasPrefix(n.URLs()[0], "https://") {
		t.Fatal(n.URLs())
	}
	n.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool}
	if status, body := n.get(n.URLs()[0] + "/health"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
}

// writeCertificate makes a key and its certificate for 127.0.0.1.
func writeCertificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pool = x509.NewCertPool()
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der},
		keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		text := pem.EncodeToMemory(block)
		if block.Type == "CERTIFICATE" {
			pool.AppendCertsFromPEM(text)
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile, pool
}

func TestConfigNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	if _, err := server.New(server.Config{Settings: testSettings(t, nil)}); err == nil ||
		!strings.Contains(err.Error(), "server: Store is required") {
		t.Errorf("%v", err)
	}
}

// TestSurface: a part of the API that is no contract is served on the common address, unless the
// node serves nothing.
func TestSurface(t *testing.T) {
	t.Parallel()
	for _, only := range []bool{false, true} {
		n := startNodeWith(t, nil, func(c *server.Config) {
			e := c.Engine
			c.Services, c.WorkersOnly = []server.Service{{Name: "side", OpenAPI: []byte("side: 1"),
				Mount: func() httpapi.PrefixHandler {
					return httpapi.PrefixHandler{Name: "side", Prefixes: []string{"/side/"},
						Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
							_, _ = io.WriteString(w, strings.Join(e.JobTypes(), ","))
						})}
				}}}, only
		},
			at("127.0.0.1:0", newFakeContract(longPoll).served()))
		want := map[string]int{"/side/x": 200, "/openapi/side.yaml": 200, "/health": 200}
		if only {
			want = map[string]int{"/side/x": 404, "/openapi/side.yaml": 404, "/health": 200}
		}
		for path, status := range want {
			if got, body := n.get(n.URLs()[0] + path); got != status ||
				(got == 200 && path == "/side/x" && body != "made") {
				t.Errorf("workers only %v: GET %s: %d %q, want %d", only, path, got, body, status)
			}
		}
		if !only {
			if got, _ := n.get(n.URLs()[1] + "/side/x"); got != 404 {
				t.Errorf("it is served on a contract's own address: %d", got)
			}
		}
	}
}
