package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// lossyStore executes updates and answers some of them with a timeout, before or after they were
// written: the caller cannot know.
type lossyStore struct {
	store.Store
	mu     sync.Mutex
	random *rand.Rand
	lost   int
	none   bool
}

var errLost = &job.Error{Kind: job.Unavailable, Op: "store.commit", Msg: "the store is slow"}

func (s *lossyStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	s.mu.Lock()
	draw := s.random.IntN(100)
	if s.none {
		draw = 99
	}
	if draw < 4 {
		s.lost++
	}
	s.mu.Unlock()
	if draw < 2 {
		return errLost // never written
	}
	err := s.Store.Update(ctx, fn)
	if draw < 4 && err == nil {
		return errLost // written nevertheless
	}
	return err
}

// rerunStore runs every update, undoes it, and runs it again.
type rerunStore struct{ store.Store }

var errDiscarded = errors.New("discarded by the test")

func (s rerunStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	err := s.Store.Update(ctx, func(tx store.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return errDiscarded
	})
	if !errors.Is(err, errDiscarded) {
		return err
	}
	return s.Store.Update(ctx, fn)
}

// retryUnavailable repeats a call until it is answered.
func retryUnavailable(fn func() error) error {
	for range 50 {
		if err := fn(); !job.IsKind(err, job.Unavailable) {
			return err
		}
	}
	return errLost
}

// TestLostAnswers: a change was written, but the caller saw a timeout. A caller that repeats the
// call with the same identity gets the outcome; nothing is lost or done twice.
func TestLostAnswers(t *testing.T) {
	for _, database := range []string{"memory", "postgres"} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, database, nil)
			s := &lossyStore{Store: w.store, random: rand.New(rand.NewPCG(7, 7))}
			w.engine = testkit.NewEngine(t, s, w.clock, testJobTypes()...)
			const callers, each = 8, 25
			var wg sync.WaitGroup
			var mu sync.Mutex
			accepted := map[string]int{}
			for i := range callers {
				wg.Go(func() {
					for k := range each {
						key := fmt.Sprintf("graph/%d-%d", i, k)
						err := retryUnavailable(func() error {
							return errOf(w.engine.Submit(w.ctx, engine.Unique, subs(sub(key))))
						})
						// stored by the call whose answer was lost
						if err != nil && !job.IsKind(err, job.Conflict) {
							w.Error(err)
						}
					}
				})
				wg.Go(func() {
					for range each * 2 {
						jobs, err := w.engine.Claim(w.ctx,
							engine.ClaimRequest{JobType: "graph", Max: 2, Worker: "w"})
						if err != nil && !job.IsKind(err, job.Unavailable) {
							w.Error(err)
						}
						for _, j := range jobs {
							w.endOnce(j, func() { mu.Lock(); accepted[name(j.ID)]++; mu.Unlock() })
						}
					}
				})
			}
			wg.Wait()
			s.none = true
			for range 4 { // what was claimed by a call whose answer was lost comes back
				w.clock.Advance(time.Minute)
				for _, j := range w.claim("graph", 1000) {
					w.endOnce(j, func() { accepted[name(j.ID)]++ })
				}
			}
			for i := range callers {
				for k := range each {
					key := fmt.Sprintf("graph/%d-%d", i, k)
					events, err := w.engine.History(w.ctx, id(key))
					good := 0
					for _, ev := range events {
						if ev.Cause == job.Succeeded {
							good++
						}
					}
					if err != nil || good != 1 || accepted[key] != 1 {
						w.Errorf("%s succeeded %d times, was accepted %d times: %v, %v", key, good,
							accepted[key], history(events), err)
					}
				}
			}
			if s.lost < 10 {
				w.Errorf("only %d answers were lost", s.lost)
			}
			w.checkInvariants()
		})
	}
}

// endOnce ends a run, and calls accepted if it was this run that ended the job.
func (w *world) endOnce(j *job.Job, accepted func()) {
	err := retryUnavailable(func() error {
		return errOf(w.engine.Finish(w.ctx, engine.Run{ID: j.ID, Run: j.Run},
			engine.Outcome{On: job.Succeeded, Result: []byte(j.Run.String())}))
	})
	if err == nil {
		accepted()
		return
	}
	if !job.IsKind(err, job.RunLost) {
		w.Error(err)
	}
	if now, err := w.engine.Get(w.ctx, j.ID); err != nil {
		w.Error(err)
	} else if string(now.Result) == j.Run.String() { // the answer was lost, not the result
		accepted()
	}
}

// A store that does not answer fails every verb with its own kind, and no change remains.
func TestStoreOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "memory", testJobTypes())
	w.submit(sub("brief/a"), sub("brief/b"))
	r := w.run("brief/a")
	before := w.snapshot()
	inner := w.store
	w.engine = testkit.NewEngine(t, unavailableStore{inner}, w.clock, testJobTypes()...)
	for what, err := range map[string]error{
		"submit":  errOf(w.engine.Submit(w.ctx, engine.Unique, subs(sub("brief/c")))),
		"replace": errOf(w.engine.Submit(w.ctx, engine.Replace, subs(sub("brief/b")))),
		"claim": errOf(w.engine.Claim(w.ctx,
			engine.ClaimRequest{JobType: "brief", Max: 1, Wait: time.Hour})),
		"claimJob":     errOf(w.engine.ClaimJob(w.ctx, id("brief/b"), "w")),
		"finish":       errOf(w.engine.Finish(w.ctx, r, engine.Outcome{On: job.Succeeded})),
		"heartbeat":    errOf(w.engine.Heartbeat(w.ctx, r, nil)),
		"heartbeatJob": w.engine.HeartbeatJob(w.ctx, id("brief/a"), nil),
		"requeue":      w.engine.Requeue(w.ctx, r, engine.Unique, nil),
		"cancel":       errOf(w.engine.Cancel(w.ctx, id("brief/a"))),
		"expire":       errOf(w.engine.Expire(w.ctx)),
		"promote":      errOf(w.engine.Promote(w.ctx)),
		"prune":        errOf(w.engine.Prune(w.ctx)),
		"get":          errOf(w.engine.Get(w.ctx, id("brief/a"))),
		"list":         errOf(w.engine.List(w.ctx, store.Filter{})),
		"queues":       w.engine.LoadQueues(w.ctx),
		"set": w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "brief", Queue: "q",
			Paused: true}),
		"publish": errOf(w.engine.Publish(w.ctx, nil)),
	} {
		if !job.IsKind(err, job.Unavailable) {
			t.Errorf("%s: got %v, want unavailable", what, err)
		}
	}
	w.engine = testkit.NewEngine(t, inner, w.clock, testJobTypes()...)
	w.wantSnapshot(before)
}

type unavailableStore struct{ store.Store }

func (unavailableStore) Update(context.Context, func(store.Tx) error) error   { return errLost }
func (unavailableStore) View(context.Context, func(store.Reader) error) error { return errLost }
