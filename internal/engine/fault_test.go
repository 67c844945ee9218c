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

// lossy executes updates and answers some of them with a timeout, before or
// after they were written: the caller cannot know.
type lossy struct {
	store.Store
	mu     sync.Mutex
	random *rand.Rand
	lost   int
	none   bool
}

var errLost = &job.Error{Kind: job.Unavailable, Op: "store.commit", Msg: "the store is slow"}

func (s *lossy) Update(ctx context.Context, fn func(store.Tx) error) error {
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
		return errLost // written all the same
	}
	return err
}

// twice runs every update once for nothing and then again.
type twice struct{ store.Store }

var errForNothing = errors.New("for nothing")

func (s twice) Update(ctx context.Context, fn func(store.Tx) error) error {
	err := s.Store.Update(ctx, func(tx store.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return errForNothing
	})
	if !errors.Is(err, errForNothing) {
		return err
	}
	return s.Store.Update(ctx, fn)
}

// again repeats a call until it is answered.
func again(fn func() error) error {
	for range 50 {
		if err := fn(); !job.IsKind(err, job.Unavailable) {
			return err
		}
	}
	return errLost
}

// Written, but the caller saw a timeout: whoever repeats with the same identity
// finds the truth, nothing is lost and nothing done twice (I1, I4, I8).
func TestLostAnswers(t *testing.T) {
	for _, position := range []string{"memory", "postgres"} {
		t.Run(position, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, position, nil)
			s := &lossy{Store: w.Store, random: rand.New(rand.NewPCG(7, 7))}
			w.Engine = testkit.NewEngine(t, s, w.Clock, made()...)
			const callers, each = 8, 25
			var wg sync.WaitGroup
			var mu sync.Mutex
			accepted := map[string]int{}
			for i := range callers {
				wg.Go(func() {
					for k := range each {
						key := fmt.Sprintf("graph/%d-%d", i, k)
						err := again(func() error {
							return second(w.Submit(w.ctx, engine.Unique, subs(sub(key))))
						})
						// stored by the call whose answer was lost
						if err != nil && !job.IsKind(err, job.Conflict) {
							w.Error(err)
						}
					}
				})
				wg.Go(func() {
					for range each * 2 {
						jobs, err := w.Claim(w.ctx,
							engine.ClaimRequest{Contract: "graph", Max: 2, Worker: "w"})
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
			for range 4 { // what was handed to nobody comes back
				w.Advance(time.Minute)
				for _, j := range w.claim("graph", 1000) {
					w.endOnce(j, func() { accepted[name(j.ID)]++ })
				}
			}
			for i := range callers {
				for k := range each {
					key := fmt.Sprintf("graph/%d-%d", i, k)
					events, err := w.History(w.ctx, id(key))
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
			w.sound()
		})
	}
}

// endOnce ends a run and tells when it was this run that ended the job.
func (w *world) endOnce(j *job.Job, accepted func()) {
	err := again(func() error {
		return second(w.Finish(w.ctx, engine.Run{ID: j.ID, Run: j.Run},
			engine.Outcome{On: job.Succeeded, Result: []byte(j.Run.String())}))
	})
	if err == nil {
		accepted()
		return
	}
	if !job.IsKind(err, job.RunLost) {
		w.Error(err)
	}
	if now, err := w.Get(w.ctx, j.ID); err != nil {
		w.Error(err)
	} else if string(now.Result) == j.Run.String() { // the answer was lost, not the result
		accepted()
	}
}

// A store that is away fails every verb with its own kind, and nothing sticks.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "memory", made())
	w.submit(sub("brief/a"), sub("brief/b"))
	r := w.run("brief/a")
	before := w.picture()
	inner := w.Store
	w.Engine = testkit.NewEngine(t, away{inner}, w.Clock, made()...)
	for what, err := range map[string]error{
		"submit":  second(w.Submit(w.ctx, engine.Unique, subs(sub("brief/c")))),
		"replace": second(w.Submit(w.ctx, engine.Replace, subs(sub("brief/b")))),
		"claim": second(w.Claim(w.ctx,
			engine.ClaimRequest{Contract: "brief", Max: 1, Wait: time.Hour})),
		"claimJob":     second(w.ClaimJob(w.ctx, id("brief/b"), "w")),
		"finish":       second(w.Finish(w.ctx, r, engine.Outcome{On: job.Succeeded})),
		"heartbeat":    second(w.Heartbeat(w.ctx, r, nil)),
		"heartbeatJob": w.HeartbeatJob(w.ctx, id("brief/a"), nil),
		"requeue":      w.Requeue(w.ctx, r, engine.Unique, nil),
		"cancel":       second(w.Cancel(w.ctx, id("brief/a"))),
		"expire":       second(w.Expire(w.ctx)),
		"promote":      second(w.Promote(w.ctx)),
		"prune":        second(w.Prune(w.ctx)),
		"get":          second(w.Get(w.ctx, id("brief/a"))),
		"list":         second(w.List(w.ctx, store.Filter{})),
		"queues":       w.LoadQueues(w.ctx),
		"set": w.SetQueue(w.ctx, job.QueueSettings{Contract: "brief", Queue: "q",
			Paused: true}),
		"publish": second(w.Publish(w.ctx, nil)),
	} {
		if !job.IsKind(err, job.Unavailable) {
			t.Errorf("%s: got %v, want unavailable", what, err)
		}
	}
	w.Engine = testkit.NewEngine(t, inner, w.Clock, made()...)
	w.is(before)
}

type away struct{ store.Store }

func (away) Update(context.Context, func(store.Tx) error) error   { return errLost }
func (away) View(context.Context, func(store.Reader) error) error { return errLost }
