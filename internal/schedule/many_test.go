package schedule_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// SC-008: 10,000 schedules cost no statement while none of them is due, and 1,000 of them that are
// due in the same second are submitted within it. The clock stands still in that second, so nothing
// that waits for a later one, such as a retry or a sweep, takes part in it.
func TestManySchedules(t *testing.T) {
	t.Parallel()
	for _, database := range testkit.Databases {
		t.Run(database, func(t *testing.T) {
			var log testkit.StatementLog
			clock := testkit.NewClock()
			stored := testkit.ObservedStore(t, database, clock.Now, log.Observe)
			w := &world{TB: t, Clock: clock, open: func(testing.TB) store.Store { return stored }}
			w.node = w.newNode()
			w.idleSecond() // the first transaction reads what later ones do not
			log.Take()
			w.idleSecond()
			without := log.Take()

			const n, due = 10_000, 1000
			start := w.Now()
			w.createMany(n, due)
			idle := func() {
				log.Take()
				w.idleSecond()
				if with := log.Take(); !slices.Equal(with, without) {
					t.Fatalf("SC-008 %v after the start %d schedules cost %v, none %v",
						w.Now().Sub(start), n, with, without)
				}
			}
			for range 59 {
				idle()
			}
			w.wantJobs("SC-008 before the second", 0)

			w.Advance(time.Second)
			w.runUntil(due)
			w.wantJobs("SC-008", due)
			w.wantOneTick(n, due, start.Add(time.Minute))
			used := len(log.Take())
			t.Logf("%d statements", used)
			if used > maxStatements*due {
				t.Errorf("SC-008 %d statements for %d times, at most %d for one", used, due,
					maxStatements)
			}
			idle()
		})
	}
}

// maxStatements is how many statements one time takes at most, those of the test among them.
const maxStatements = 20

// wantOneTick fails unless so many of n schedules have submitted one job, at a time and not after
// it, and the others none.
func (w *world) wantOneTick(n, due int, at time.Time) {
	w.Helper()
	after, ticks := "", 0
	for range n / 200 {
		page, err := w.List(context.Background(), after, 200)
		if err != nil || len(page) != 200 {
			w.Fatalf("%d schedules after %q: %v", len(page), after, err)
		}
		for _, s := range page {
			after = s.Name
			tick := s.Latest()
			if tick == nil {
				continue
			}
			ticks++
			if tick.Count != 0 || tick.Job == 0 || !tick.Time.Equal(at) ||
				!tick.At.Equal(at) || tick.Lateness != 0 {
				w.Fatalf("SC-008 the tick of %s is %+v", s.Name, tick)
			}
		}
	}
	if ticks != due {
		w.Errorf("SC-008 %d schedules have a tick, want %d", ticks, due)
	}
}

// createMany stores n schedules, of which the first ones are due in a minute and the others in an
// hour.
func (w *world) createMany(n, due int) {
	w.Helper()
	const callers = 50
	for _, err := range testkit.RunConcurrently(callers, func(caller int) error {
		for i := caller; i < n; i += callers {
			_, err := w.Create(context.Background(), schedule.Schedule{
				Name: fmt.Sprintf("s%d", i),
				Definition: definition(func(d *schedule.Definition) {
					if i >= due {
						d.Every = time.Hour
					}
				})}, nil)
			if err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			w.Fatal(err)
		}
	}
}

// idleSecond lets a second pass in which no schedule is due, with all that a node does in it for
// schedules: it looks when the next one is due, and its pool asks for those that are.
func (w *world) idleSecond() {
	w.Helper()
	w.Advance(time.Second)
	if due, _, err := w.engine.NextDue(context.Background()); err != nil || due == 0 {
		w.Fatalf("the next schedule is due in %v: %v", due, err)
	}
	if jobs := w.claim(w, 64); len(jobs) > 0 {
		w.Fatalf("%d schedules are due", len(jobs))
	}
}

// runUntil runs the schedules as a node does, until all of n are processed.
func (w *world) runUntil(n int) {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	testkit.WaitUntil(w, "all schedules to be processed", func() bool {
		counts, err := w.engine.Queues(context.Background(), "taskflow")
		if err != nil {
			w.Fatal(err)
		}
		var submitted int64
		for _, c := range counts {
			submitted += c.Ready
		}
		return submitted == int64(n)
	})
	cancel()
	<-ended
}
