package relay_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// gatedStore is a store whose next update stops at a gate when it is closed.
type gatedStore struct {
	store.Store
	closed  atomic.Bool
	reached chan struct{}
	open    chan struct{}
}

func (g *gatedStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	if g.closed.CompareAndSwap(true, false) {
		g.reached <- struct{}{}
		<-g.open
	}
	return g.Store.Update(ctx, fn)
}

// TestCallerThatLeft: a job that was claimed for a caller that left meanwhile is released at once,
// with no attempt counted. Where it was claimed with the end of a run, the run has ended.
func TestCallerThatLeft(t *testing.T) {
	for name, request := range map[string]func(w *world) (method, path, body string){
		"next": func(*world) (method, path, body string) {
			return "GET", "/v2/queues/left/jobs", ""
		},
		"completions with next": func(w *world) (method, path, body string) {
			w.put(t, jobBody("left", "before"))
			return "POST", completions + "?next=1", "[" + runEntry(w.claim(t, "left")) + "]"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testCallerThatLeft(t, request)
		})
	}
}

func testCallerThatLeft(t *testing.T, request func(w *world) (method, path, body string)) {
	clock := testkit.NewClock()
	g := &gatedStore{Store: testkit.MemoryStore(t, clock.Now), reached: make(chan struct{}),
		open: make(chan struct{})}
	c := config()
	c.Engine = testkit.NewEngine(t, g, clock)
	c.Log, c.Registry = slog.New(slog.DiscardHandler), newRegistry()
	r, err := relay.New(c)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Register(t, c.Engine, r.JobType())
	mount := r.Mount()
	left, served := make(chan struct{}), make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		if req.Header.Get("X-Leaves") != "" {
			context.AfterFunc(req.Context(), func() { close(left) })
		}
		mount.Handler.ServeHTTP(rw, req)
		if req.Header.Get("X-Leaves") != "" {
			served <- struct{}{}
		}
	}))
	t.Cleanup(server.Close)
	w := &world{clock: clock, APIServer: &testkit.APIServer{URL: server.URL,
		Client: server.Client()}}
	method, path, body := request(w)
	w.put(t, jobBody("left", "1", `"max_retries":0`))

	ctx, leave := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, method, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Leaves", "1")
	g.closed.Store(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := w.Client.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	<-g.reached // the claim is on its way
	leave()
	<-left // and the server knows that nobody waits for it
	close(g.open)
	<-served
	<-done
	v := w.claim(t, "left")
	assertEqual(t, "retries_remaining", number(v.RetriesRemaining), "0")
	assertEqual(t, "job", v.ID, "1")
	assertEqual(t, "nothing else", len(w.next(t, "left", 1)), 0)
	w.Do(t, "HEAD", jobPath("left", "before"), "").WantStatus(t, 404)
}
