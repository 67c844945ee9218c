package webhook_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/maintenance"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/webhook"
)

// The client of the tests, and another.
const (
	owner      = "0b8f7a52-0000-4000-8000-000000000001"
	otherOwner = "0b8f7a52-0000-4000-8000-000000000002"
)

const callbackSecret = "whsec_Y2FsbGJhY2sgc2VjcmV0IG9mIHRoZSB0ZXN0cw=="

// vault is one that can be seen through, but is no plain text.
type vault struct{}

func (vault) Seal(plain []byte) (string, error) {
	return "sealed:" + base64.StdEncoding.EncodeToString(plain), nil
}

func (vault) Open(sealed string) ([]byte, error) {
	if len(sealed) < 7 {
		return nil, errors.New("not sealed")
	}
	return base64.StdEncoding.DecodeString(sealed[7:])
}

// logs gathers what is logged.
type logs struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *logs) text() string { l.mu.Lock(); defer l.mu.Unlock(); return l.String() }

// world is one database with its time, and the nodes on it.
type world struct {
	testing.TB
	clock     *testkit.Clock
	ctx       context.Context
	openStore func() store.Store
	now       func() time.Time
	realTime  bool // time passes by itself
	config    webhook.Config
	logs      *logs
	mu        sync.Mutex
	attempts  map[bool]int
}

// node is one process: an engine, its webhooks, and the transitions of deliveries.
type node struct {
	*world
	*webhook.Webhooks
	engine      *engine.Engine
	store       store.Store
	transitions chan *engine.Transitioned
	stop        func()
}

// databases are the databases that tests run on.
var databases = map[string]func(testing.TB, func() time.Time) func() store.Store{
	"memory": func(tb testing.TB, now func() time.Time) func() store.Store {
		s := testkit.MemoryStore(tb, now)
		return func() store.Store { return s }
	},
	"file": func(tb testing.TB, now func() time.Time) func() store.Store {
		path := filepath.Join(tb.TempDir(), "m.db")
		var s store.Store
		tb.Cleanup(func() { s.Close() })
		return func() store.Store {
			if s != nil && s.Ping(context.Background()) == nil { // one process, two nodes
				return s
			}
			var err error
			if s, err = sqlite.Open(context.Background(),
				sqlite.Config{Path: path, Now: now}); err != nil {
				tb.Fatal(err)
			}
			return s
		}
	},
	"postgres": func(tb testing.TB, now func() time.Time) func() store.Store {
		url := pgtest.URL(tb)
		return func() store.Store {
			s, err := postgres.Open(context.Background(),
				postgres.Config{URL: url, Now: now, Conns: 8})
			if err != nil {
				tb.Fatal(err)
			}
			tb.Cleanup(func() { s.Close() })
			return s
		}
	},
}

func newWorld(tb testing.TB, database string, real bool,
	configure ...func(*webhook.Config)) *world {
	tb.Helper()
	w := &world{TB: tb, clock: testkit.NewClock(), realTime: real, logs: &logs{},
		attempts: map[bool]int{}}
	ctx, cancel := context.WithTimeout(context.Background(), testkit.WaitTimeout)
	tb.Cleanup(cancel)
	w.ctx, w.now = ctx, w.clock.Now
	if real {
		w.now = time.Now
	}
	client, err := egress.New(egress.Config{AllowLocal: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(client.Close)
	startedAt := time.Now()
	w.config = webhook.Config{Vault: vault{}, Client: client, Timeout: 5 * time.Second, MaxAttempts: 8,
		BackoffBase: time.Second,
		BackoffMax:  2 * time.Hour, BackoffFactor: 5, Slots: 16, Random: rand.Reader,
		Retention: 720 * time.Hour,
		Elapsed: func() time.Duration {
			return time.Since(startedAt)
		}, Log: slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		CallbackSecret: func(_ context.Context, client string) (string, error) {
			if client != owner {
				return "", &job.Error{Kind: job.NotFound}
			}
			return callbackSecret, nil
		},
		OnAttempt: func(ok bool, took time.Duration) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.attempts[ok]++
		}}
	for _, f := range configure {
		f(&w.config)
	}
	w.openStore = databases[database](tb, w.now)
	return w
}

// node starts one more process; its deliveries begin with run.
func (w *world) node() *node {
	w.Helper()
	n := &node{world: w, store: w.openStore(), transitions: make(chan *engine.Transitioned, 100_000),
		stop: func() {}}
	monotonic := w.clock.Monotonic
	if w.realTime {
		monotonic = w.config.Elapsed
	}
	var err error
	n.engine, err = engine.New(engine.Config{Store: n.store, Node: rand.Text(),
		Random: testkit.RandomBytes, Monotonic: monotonic})
	if err != nil {
		w.Fatal(err)
	}
	config := w.config
	config.Engine = n.engine
	if n.Webhooks, err = webhook.New(config); err != nil {
		w.Fatal(err)
	}
	c := n.Webhooks.JobType()
	c.ReportedCauses, c.OnTransitions = job.Causes(), func(all []engine.Transitioned) {
		for i := range all {
			n.transitions <- &all[i]
		}
	}
	testkit.Register(w, n.engine, c, worked)
	n.engine.SetFeed(webhook.NewFeed(source{}))
	w.Cleanup(func() { n.stop(); n.engine.Close() })
	return n
}

// run makes deliveries, and with real time runs the maintenance, until stop.
func (n *node) run() *node {
	ctx, end := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { n.Run(ctx) })
	if n.realTime {
		all.Go(func() { (&maintenance.Runner{Engine: n.engine}).Run(ctx) })
	}
	n.stop = sync.OnceFunc(func() { end(); all.Wait() })
	return n
}

// advanceAndPromote lets time pass and what is due become ready.
func (n *node) advanceAndPromote(d time.Duration) {
	n.Helper()
	n.clock.Advance(d)
	if _, err := n.engine.Promote(n.ctx); err != nil {
		n.Fatal(err)
	}
}

// await waits until a delivery of an event has moved for a cause.
func (n *node) await(event string, on job.Cause) engine.Transitioned {
	n.Helper()
	for {
		select {
		case m := <-n.transitions:
			if m.On != on {
				continue
			}
			j, err := n.engine.Get(n.ctx, m.Job.ID) // a transition comes without bodies
			if err == nil && bytes.Contains(j.Definition, []byte(`"event_id":"`+event+`"`)) {
				return *m
			}
		case <-n.ctx.Done():
			n.Fatalf("no delivery of %s has %s: %s", event, on, n.logs.text())
		}
	}
}

// awaitDone waits until so many deliveries are done.
func (n *node) awaitDone(count int) {
	n.Helper()
	for count > 0 {
		select {
		case m := <-n.transitions:
			if m.Job.Phase == job.Done {
				count--
			}
		case <-n.ctx.Done():
			n.Fatalf("%d deliveries are not done: %s", count, n.logs.text())
		}
	}
}

func (n *node) register(url string, events ...string) (webhook.Subscription, string) {
	n.Helper()
	h, secret, err := n.Register(n.ctx, owner, url, events, "")
	if err != nil {
		n.Fatal(err)
	}
	return h, secret
}

// event is an event of the owner's; name and chain come from its id: chain.number.name.
func (n *node) event(chain string, number int, name, callback string) webhook.Event {
	id := fmt.Sprintf("%s.%d.%s", chain, number, name)
	return webhook.Event{Owner: owner, Chain: chain,
		Ref: webhook.EventRef{ID: id, Name: name}, OccurredAt: n.now(), Callback: callback,
		Body: []byte(`{"event_id":"` + id + `"}`)}
}

func (n *node) deliver(all ...webhook.Event) {
	n.Helper()
	if err := n.Deliver(n.ctx, all); err != nil {
		n.Fatal(err)
	}
}

func (n *node) deliveries(subscriptionID string) []webhook.Delivery {
	n.Helper()
	all, _, err := n.Deliveries(n.ctx, owner, subscriptionID, "", 0, 10_000)
	if err != nil {
		n.Fatal(err)
	}
	return all
}

func (n *node) wantKind(err error, kind job.Kind) {
	n.Helper()
	if !job.IsKind(err, kind) {
		n.Errorf("got error %v, want kind %s", err, kind)
	}
}

// receiver is a server that keeps what it gets.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	received []request
	ids      chan string
}

type request struct {
	path   string
	header http.Header
	body   string
}

// newReceiver starts a receiver; answer gets the number of the request, counted from 1. nil answers
// 200.
func newReceiver(tb testing.TB, answer func(w http.ResponseWriter, r *http.Request,
	n int)) *receiver {
	tb.Helper()
	rc := &receiver{ids: make(chan string, 100_000)}
	rc.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		rc.mu.Lock()
		rc.received = append(rc.received, request{r.URL.Path, r.Header.Clone(), string(body)})
		n := len(rc.received)
		rc.mu.Unlock()
		rc.ids <- r.Header.Get("webhook-id")
		if answer != nil {
			answer(w, r, n)
		}
	}))
	tb.Cleanup(rc.Close)
	return rc
}

func (r *receiver) requests() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.received)
}

func (r *receiver) eventIDs() (ids []string) {
	for _, q := range r.requests() {
		ids = append(ids, q.header.Get("webhook-id"))
	}
	return ids
}

func onEveryDatabase(t *testing.T, test func(t *testing.T, database string)) {
	t.Parallel()
	for database := range databases {
		t.Run(database, func(t *testing.T) { t.Parallel(); test(t, database) })
	}
}

// claimOne takes a delivery as a process does that dies of it.
func (n *node) claimOne() {
	n.Helper()
	jobs, err := n.engine.Claim(n.ctx, engine.ClaimRequest{JobType: webhook.Name, Max: 1,
		Worker: "dead"})
	if err != nil || len(jobs) != 1 {
		n.Fatal(jobs, err)
	}
}

// submitWithLease stores a delivery of a callback whose lease is not that of the config, as one
// that was made under another time-out.
func (n *node) submitWithLease(event, url string, lease time.Duration) {
	n.Helper()
	definition, err := json.Marshal(map[string]any{"event_id": event, "event_name": "a",
		"url": url, "client": owner, "chain": "j", "callback": true})
	if err != nil {
		n.Fatal(err)
	}
	if _, err := n.engine.Submit(n.ctx, engine.Unique, []engine.Submission{{Job: job.Job{
		ID:    job.ID{JobType: webhook.Name, Key: unknownID},
		Queue: "deliveries", Owner: "callbacks/" + owner, Lease: lease,
		Definition: definition, Payload: []byte(`{}`)}}}); err != nil {
		n.Fatal(err)
	}
}
