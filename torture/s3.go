package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"sync"
	"time"
)

// The bucket and the keys of the S3 server.
const (
	sharedBucket = "millrace"
	s3Key        = "millrace-torture"
)

// s3Server is the S3 server that several nodes share. It keeps objects as files, and its address
// over all of its lives. The nodes reach it through a gateway.
type s3Server struct {
	program, root string
	address       string
	gateway       *gateway
	cmd           *exec.Cmd // nil before its first start
	ended         chan struct{}
}

// newS3 starts the server and its gateway. The nodes take its keys from the environment.
func newS3(ctx context.Context, p *plan, root string) (s *s3Server, err error) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		if err := os.Setenv(name, s3Key); err != nil {
			return nil, err
		}
	}
	s = &s3Server{program: p.S3, root: root}
	if s.address, err = freeAddress(); err != nil {
		return nil, err
	}
	if s.gateway, err = newGateway(s.address, p.Seed); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// start starts the server, and returns when it takes connections.
func (s *s3Server) start(ctx context.Context) (err error) {
	s.cmd = exec.Command(s.program, "--port", s.address, "--access", s3Key, "--secret", s3Key,
		"posix", s.root)
	if s.ended, err = startProcess(s.cmd); err != nil {
		return err
	}
	return awaitListener(ctx, s.address)
}

// kill ends the server as a crash does, if it runs.
func (s *s3Server) kill() {
	if s.ended != nil {
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// close ends the server and its gateway.
func (s *s3Server) close() {
	s.kill()
	_ = s.gateway.server.Close()
}

// gateway carries the requests of the nodes to their S3 server, as they are, since they are signed.
// While a fault lasts it delays or refuses them. Where the server does not answer, no answer comes
// from here either.
type gateway struct {
	address string
	server  *http.Server
	forward *httputil.ReverseProxy

	mu     sync.Mutex
	random *rand.Rand
	mode   string // of the fault that lasts; "" for none
}

// newGateway starts a gateway to a server.
func newGateway(target string, seed uint64) (*gateway, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &gateway{address: l.Addr().String(), random: rand.New(rand.NewPCG(seed, 3))}
	silent := slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	g.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", target, r.In.Host
		},
		Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
		ErrorLog:  silent,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler)
		},
	}
	g.server = &http.Server{Handler: g, ErrorLog: silent, ReadHeaderTimeout: readyTimeout}
	go func() { _ = g.server.Serve(l) }()
	return g, nil
}

// slowestAnswer bounds the delay of a request while the S3 server is slow.
const slowestAnswer = 2 * time.Second

// handling is what the gateway does with a request.
type handling struct {
	delay   time.Duration
	status  int // of a refusal; 0 for none
	carried bool
}

// draw draws how a request is handled. Of those that are refused half are carried out.
func (g *gateway) draw() (h handling) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h.carried = true
	switch g.mode {
	case modeSlow:
		h.delay = time.Duration(g.random.Int64N(int64(slowestAnswer)))
	case modeErrors:
		statuses := []int{http.StatusInternalServerError, http.StatusServiceUnavailable}
		h.status, h.carried = statuses[g.random.IntN(len(statuses))], g.random.IntN(2) == 0
	}
	return h
}

// disturb has a fault begin, or all faults end with "".
func (g *gateway) disturb(mode string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mode = mode
}

// refusals are the bodies of refusals, as S3 has them.
var refusals = map[int]string{http.StatusInternalServerError: "InternalError",
	http.StatusServiceUnavailable: "SlowDown"}

// ServeHTTP carries a request on, or refuses it.
func (g *gateway) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	h := g.draw()
	if !sleep(req.Context(), h.delay) {
		return
	}
	if h.status == 0 {
		g.forward.ServeHTTP(w, req)
		return
	}
	if h.carried {
		g.forward.ServeHTTP(&discarded{http.Header{}}, req)
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(h.status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>refused</Message></Error>", refusals[h.status])
}

// discarded takes an answer that nobody gets.
type discarded struct{ header http.Header }

func (d *discarded) Header() http.Header            { return d.header }
func (d *discarded) WriteHeader(int)                {}
func (d *discarded) Write(text []byte) (int, error) { return len(text), nil }
