package server_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/testkit"
)

// backgroundContract is a contract that runs in the background.
type backgroundContract struct {
	*fakeContract
	started       chan struct{}
	stopRequested chan struct{} // closed when it is to stop
	allowStop     chan struct{} // closed when it may
	engine        *engine.Engine
	finalErr      error // of what it does at last
}

func newBackgroundContract() *backgroundContract {
	return &backgroundContract{fakeContract: newFakeContract(func(_ *engine.Engine,
		w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "contract")
	}),
		started: make(chan struct{}), stopRequested: make(chan struct{}),
		allowStop: make(chan struct{})}
}

func (b *backgroundContract) served() build {
	return func(e *engine.Engine) *contract.Contract {
		b.engine = e
		c := b.offer("made")(e)
		c.Run = b.Run
		return c
	}
}

func (b *backgroundContract) Run(ctx context.Context) {
	close(b.started)
	<-ctx.Done()
	close(b.stopRequested)
	<-b.allowStop
	_, b.finalErr = b.engine.Submit(context.Background(), engine.Unique,
		[]engine.Submission{{Job: job.Job{ID: job.ID{JobType: "made", Key: "last"}, Queue: "q"}}})
}

// TestRun: the background work of a contract begins with the node, ends when it stops, and has the
// store until it is done.
func TestRun(t *testing.T) {
	t.Parallel()
	b := newBackgroundContract()
	n := startNode(t, nil, b.served())
	testkit.Receive(t, "the contract to begin", b.started)
	n.stop()
	testkit.Receive(t, "the contract to be stopped", b.stopRequested)
	select {
	case err := <-n.ended:
		t.Fatalf("did not wait for the contract: %v", err)
	default:
	}
	close(b.allowStop)
	if err := testkit.Receive(t, "the node to end", n.ended); err != nil || b.finalErr != nil {
		t.Errorf("the node ended with %v, the contract with %v", err, b.finalErr)
	}
}

// TestWorkersOnly: a node that is there to run jobs serves nothing else.
func TestWorkersOnly(t *testing.T) {
	t.Parallel()
	b := newBackgroundContract()
	close(b.allowStop)
	n := startNodeWith(t, nil, func(c *server.Config) {
		c.WorkersOnly = true
	}, documented(b.served(), "x"),
		at("127.0.0.1:0", newFakeContract(longPoll).offer("other")))
	testkit.Receive(t, "the contract to begin", b.started)
	if urls := n.URLs(); len(urls) != 1 {
		t.Errorf("it listens on %v", urls)
	}
	for path, want := range map[string]int{"/health": 200, "/health/ready": 200, "/metrics": 200,
		"/made/x": 404, "/openapi/made.yaml": 404} {
		if status, _ := n.get(n.URLs()[0] + path); status != want {
			t.Errorf("GET %s: %d, want %d", path, status, want)
		}
	}
}

// publishingContract is a contract with an outbox.
type publishingContract struct {
	*fakeContract
	names     []string
	delivered chan []job.Message
	failures  atomic.Int32 // how many more times it fails
}

func newPublishingContract(names ...string) *publishingContract {
	return &publishingContract{fakeContract: newFakeContract(longPoll), names: names,
		delivered: make(chan []job.Message, 100)}
}

func (p *publishingContract) served() build {
	return func(e *engine.Engine) *contract.Contract {
		c := p.offer(p.names[0])(e)
		c.JobTypes, c.Checks = nil, p.Checks()
		for _, n := range p.names {
			c.JobTypes = append(c.JobTypes,
				engine.JobType{Name: n, Machine: testMachine, Publish: true})
		}
		c.Outbox = &contract.Outbox{Deliver: p.Deliver}
		return c
	}
}

func (p *publishingContract) Deliver(_ context.Context, messages []job.Message) error {
	if p.failures.Add(-1) >= 0 {
		return errors.New("not now")
	}
	p.delivered <- messages
	return nil
}

func (p *publishingContract) Checks() []httpapi.Check {
	return []httpapi.Check{{Name: "a part of " + p.names[0], Run: func(context.Context) error {
		return errors.New("broken")
	}}}
}

// TestOutboxIsWhole: messages that no outbox takes would stay in the store for ever, and an outbox
// without messages is never called. Neither starts.
func TestOutboxIsWhole(t *testing.T) {
	t.Parallel()
	clock := testkit.NewClock()
	s := testkit.MemoryStore(t, clock.Now)
	e := testkit.NewEngine(t, s, clock)
	silent := newPublishingContract("silent").served()(e)
	silent.Outbox = nil
	idle := newFakeContract(longPoll).served()(e)
	idle.Outbox = newPublishingContract("other").served()(e).Outbox
	nameless := newFakeContract(longPoll).offer("")(e)
	for want, c := range map[string]*contract.Contract{
		"silent: its jobs publish messages that no Outbox takes": silent,
		"made: it has an Outbox and no jobs that publish":        idle,
		"Name, JobTypes and Mount are required":                  nameless,
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		config := server.Config{Settings: testSettings(t, nil), Store: s, Engine: e,
			Contracts: []*contract.Contract{c}, Log: slog.New(slog.DiscardHandler),
			Monotonic: clock.Monotonic}
		if _, err := server.New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: got %v, want %s", err, want)
		}
	}
}

// TestDeliver: each contract gets its own messages and no others, in order, again after it
// failed.
func TestDeliver(t *testing.T) {
	t.Parallel()
	first, second := newPublishingContract("a", "a2"), newPublishingContract("b")
	second.failures.Store(2)
	var e *engine.Engine
	n := startNodeWith(t, nil, func(c *server.Config) {
		e = c.Engine
	},
		first.served(), second.served())
	for _, id := range []job.ID{{JobType: "a", Key: "1"},
		{JobType: "b", Key: "1"}, {JobType: "a2", Key: "1"},
		{JobType: "a", Key: "2"}} {
		if _, err := e.Submit(t.Context(), engine.Unique,
			[]engine.Submission{{Job: job.Job{ID: id, Queue: "q"}}}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[*publishingContract][]string{first: {"a 1", "a2 1", "a 2"}, second: {"b 1"}}
	for p, names := range want {
		seen := map[string]bool{}
		var order []string
		for len(order) < len(names) {
			for _, m := range testkit.Receive(t, "a delivery", p.delivered) {
				name := m.JobID.JobType + " " + m.JobID.Key
				if !seen[name] { // what failed beside others comes again
					seen[name] = true
					order = append(order, name)
				}
			}
		}
		if strings.Join(order, ",") != strings.Join(names, ",") {
			t.Errorf("got %v, want %v", order, names)
		}
	}
	if second.failures.Load() > 0 {
		t.Error("the second contract did not get the messages again")
	}
	if status, body := n.get(n.URLs()[0] + "/health/ready"); status != 503 ||
		body != "store ok\nshutdown ok\na part of a fails\na part of b fails\n" {
		t.Errorf("ready: %d %q", status, body)
	}
}
