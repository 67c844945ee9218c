package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// countingStore is a store that counts its calls.
type countingStore struct {
	store.Store
	updates, views atomic.Int64
}

func (s *countingStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	s.updates.Add(1)
	return s.Store.Update(ctx, fn)
}

func (s *countingStore) View(ctx context.Context, fn func(store.Reader) error) error {
	s.views.Add(1)
	return s.Store.View(ctx, fn)
}

// waitFor starts a claim of up to one job, the nth that waits, and returns its result.
func waitFor(w *world, e *engine.Engine, nth int, queues ...string) <-chan []*job.Job {
	req := engine.ClaimRequest{JobType: "brief", Queues: queues, Max: 1, Worker: "w",
		Wait: time.Minute}
	got := make(chan []*job.Job, 1)
	go func() {
		jobs, err := e.Claim(w.ctx, req)
		if err != nil {
			w.Error(err)
		}
		got <- jobs
	}()
	engine.AwaitWaiting(e, req, nth)
	return got
}

// A poll finds what was not announced: jobs that another node has stored, jobs that are due,
// attempts whose lease has ended.
func TestPollFindsUnannouncedJobs(t *testing.T) {
	for what, c := range map[string]struct {
		queues []string
		before func(w *world)
		after  func(w *world, other *engine.Engine)
	}{
		"a job of another node": {queues: []string{"q"}, after: submitBy},
		"by any queue":          {after: submitBy},
		"a job that is due": {
			queues: []string{"q"},
			before: func(w *world) { w.submit(sub("brief/a", due(time.Minute))) },
			after:  func(w *world, _ *engine.Engine) { w.clock.Advance(time.Minute) },
		},
		"a lease that has ended": {
			queues: []string{"q"},
			before: func(w *world) { w.submit(sub("brief/a")); w.claim("brief", 1) },
			after:  func(w *world, _ *engine.Engine) { w.clock.Advance(time.Minute) },
		},
	} {
		t.Run(what, func(t *testing.T) {
			onEveryStore(t, testJobTypes(), func(w *world) {
				other := w.node(testJobTypes())
				engine.PollEvery(w.engine, time.Millisecond)
				if c.before != nil {
					c.before(w)
				}
				got := waitFor(w, w.engine, 1, c.queues...)
				c.after(w, other)
				if jobs := <-got; len(jobs) != 1 {
					w.Errorf("claimed %v", names(jobs))
				}
			})
		})
	}
}

func submitBy(w *world, other *engine.Engine) {
	_, err := other.Submit(w.ctx, engine.Unique, []engine.Submission{sub("brief/a")})
	w.noError(err)
}

// Claims that wait while nothing happens cost one view for each poll, however many they are. The
// only updates are those in which each claim looks for jobs before it waits.
func TestWaitingClaimsOnlyRead(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		s := &countingStore{Store: w.store}
		e := testkit.NewEngine(w, s, w.clock, testJobTypes()...)
		engine.PollEvery(e, time.Millisecond)
		w.submit(sub("brief/later", due(time.Hour)), sub("brief/other", in("other")))
		const claims = 10
		for i := range claims {
			waitFor(w, e, i+1, "q")
		}
		testkit.WaitUntil(t, "some polls", func() bool { return s.views.Load() > 3*claims })
		if n := s.updates.Load(); n > claims {
			w.Errorf("%d updates, %d views", n, s.views.Load())
		}
		e.Close()
	})
}

// The node that publishes a job type is notified at once of messages of another node.
func TestOutboxIsAnnounced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "postgres", testJobTypes())
	other := w.server()
	ctx, stop := context.WithCancel(w.ctx)
	var listening sync.WaitGroup
	listening.Go(func() { w.engine.Listen(ctx) })
	defer listening.Wait()
	defer stop()
	ready := w.engine.OutboxReady("phased")
	other.OutboxReady("phased")
	for i := 0; ; i++ { // the node receives nothing until it listens
		_, err := other.Submit(w.ctx, engine.Unique,
			[]engine.Submission{sub(fmt.Sprint("phased/", i))})
		w.noError(err)
		select {
		case <-ready:
			return
		case <-w.ctx.Done():
			t.Fatal("no announcement arrived")
		default:
		}
	}
}

// Refresh finds messages whose announcement was lost.
func TestRefreshFindsMessages(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		other := w.node(testJobTypes())
		ready := w.engine.OutboxReady("phased")
		w.noError(w.engine.Refresh(w.ctx))
		select {
		case <-ready:
			w.Error("a signal without messages")
		default:
		}
		_, err := other.Submit(w.ctx, engine.Unique, []engine.Submission{sub("phased/a")})
		w.noError(err)
		w.noError(w.engine.Refresh(w.ctx))
		select {
		case <-ready:
		default:
			w.Error("no signal")
		}
	})
}

// TestRefreshPolls: Refresh wakes the claims that may get a job, so nothing else polls for them.
// All that an idle node looks at in a second is one view.
func TestRefreshPolls(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		s := &countingStore{Store: w.store}
		e := testkit.NewEngine(w, s, w.clock, testJobTypes()...)
		engine.PollEvery(e, time.Millisecond)
		e.OutboxReady("phased")
		w.noError(e.Refresh(w.ctx))
		byQueue, ofAny := waitFor(w, e, 1, "q"), waitFor(w, e, 1)
		updates := s.updates.Load()
		const refreshes = 100
		for range refreshes {
			w.clock.Advance(engine.SweepInterval)
			w.noError(e.Refresh(w.ctx))
		}
		const looks = 2 // each claim asks for a job once more when it waits
		if n, updated := s.views.Load(), s.updates.Load()-updates; n != 1+refreshes ||
			updated > looks {
			w.Errorf("%d views and %d updates of %d refreshes", n, updated, 1+refreshes)
		}
		select {
		case <-e.DueChanged():
			w.Error("a signal without anything due")
		default:
		}
		w.submit(sub("brief/a"), sub("brief/c"),
			sub("brief/b", due(refreshes*engine.SweepInterval+engine.DueHorizon)))
		w.noError(e.Refresh(w.ctx))
		<-byQueue
		<-ofAny
		<-e.DueChanged()
		e.Close()
	})
}
