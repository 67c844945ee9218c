package schedule_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// SC-008: 10,000 schedules cost no statement while none of them is due, and 1,000 of them that are
// due in the same second are submitted within it, in sets. The clock stands still in that second,
// so nothing that waits for a later one, such as a retry or a sweep, takes part in it.
func TestManySchedules(t *testing.T) {
	t.Parallel()
	for _, database := range testkit.Databases {
		t.Run(database, func(t *testing.T) {
			var log testkit.StatementLog
			clock := testkit.NewClock()
			stored := testkit.ObservedStore(t, database, clock.Now, log.Observe)
			w := &world{TB: t, clock: clock, open: func(testing.TB) store.Store { return stored }}
			w.node = w.newNode()
			w.idleSecond() // the first transaction reads what later ones do not
			log.Take()
			w.idleSecond()
			without := log.Take()

			const n, due = 10_000, 1000
			start := w.clock.Now()
			w.createMany(n, due, schedule.Allow)
			idle := func() {
				log.Take()
				w.idleSecond()
				if with := log.Take(); !slices.Equal(looks(with), looks(without)) {
					t.Fatalf("SC-008 %v after the start %d schedules cost %v, none %v",
						w.clock.Now().Sub(start), n, with, without)
				}
			}
			for range 59 {
				idle()
			}
			w.wantJobs("SC-008 before the second", 0)

			w.clock.Advance(time.Second)
			w.runUntil(due)
			used := map[string]int{}
			for _, name := range log.Take() {
				used[name]++
			}
			t.Logf("%v", used)
			for _, name := range polls {
				delete(used, name)
			}
			for name, times := range used {
				if times > maxStatements {
					t.Errorf("SC-008 %d statements %s for %d times, want at most %d", times, name,
						due, maxStatements)
				}
			}
			w.wantJobs("SC-008", due)
			w.wantOneTick(n, due, start.Add(time.Minute))
			idle()
		})
	}
}

// SC-004, SC-008: three nodes share what is due at the same moment, and each time has one job.
func TestNodesShareWhatIsDue(t *testing.T) {
	onEveryStore(t, func(w *world) {
		const n = 400
		start := w.clock.Now()
		w.createMany(n, n, schedule.Allow)
		w.clock.Advance(time.Minute)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var others sync.WaitGroup
		for _, other := range []*node{w.newNode(), w.newNode()} {
			others.Go(func() { other.Run(ctx) })
		}
		w.runUntil(n)
		cancel()
		others.Wait()
		w.wantJobs("SC-004", n)
		w.wantOneTick(n, n, start.Add(time.Minute))
	})
}

// maxStatements is how many statements of one name 1,000 times take at most, but for polls: the
// test runs maintenance, a transaction each time, as often as it has to wait.
const maxStatements = 100

var polls = []string{"BEGIN", "BEGIN IMMEDIATE", "COMMIT", "get_counts"}

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
func (w *world) createMany(n, due int, overlap schedule.Overlap) {
	w.Helper()
	const callers = 50
	for _, err := range testkit.RunConcurrently(callers, func(caller int) error {
		for i := caller; i < n; i += callers {
			_, err := w.Create(context.Background(), schedule.Schedule{
				Name: fmt.Sprintf("s%d", i),
				Definition: definition(func(d *schedule.Definition) {
					d.Overlap = overlap
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
	w.clock.Advance(time.Second)
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

// BenchmarkDueAtOnce measures SC-008: 10,000 schedules that are due in the same second, on
// databases on the disk. One operation is all of them, until the last one is submitted; figures
// are in docs/performance-contracts.md.
func BenchmarkDueAtOnce(b *testing.B) {
	for _, database := range testkit.Databases {
		for _, overlap := range []schedule.Overlap{schedule.Allow, schedule.Skip} {
			b.Run(database+"/"+string(overlap), func(b *testing.B) {
				const n = 10_000
				clock := testkit.NewClock()
				w := &world{TB: b, clock: clock}
				w.node = w.nodeOn(openOnDisk(b, database, clock.Now))
				w.createMany(n, n, overlap)
				for i := range b.N + 1 { // the first minute has no jobs of before to look at
					w.endAll()
					clock.Advance(time.Minute)
					if i == 1 {
						b.ResetTimer()
					}
					b.StartTimer()
					w.runUntil(n)
					b.StopTimer()
				}
			})
		}
	}
}

// endAll ends all jobs of TaskFlow.
func (w *world) endAll() {
	w.Helper()
	for {
		jobs, err := w.engine.Claim(context.Background(), engine.ClaimRequest{
			JobType: "taskflow", Max: 1000, Worker: "w"})
		if err != nil {
			w.Fatal(err)
		}
		if len(jobs) == 0 {
			return
		}
		ends := make([]engine.FinishRequest, len(jobs))
		for i, j := range jobs {
			ends[i] = engine.FinishRequest{Run: engine.Run{ID: j.ID, Run: j.Run},
				Outcome: engine.Outcome{On: job.Succeeded}}
		}
		for _, ended := range w.engine.FinishAll(context.Background(), ends) {
			if ended.Err != nil {
				w.Fatal(ended.Err)
			}
		}
	}
}

// openOnDisk opens an empty database on the disk.
func openOnDisk(tb testing.TB, database string, now func() time.Time) store.Store {
	tb.Helper()
	var s store.Store
	var err error
	if database == "postgres" {
		s, err = postgres.Open(tb.Context(), postgres.Config{URL: pgtest.URL(tb), Now: now})
	} else {
		s, err = sqlite.Open(tb.Context(), sqlite.Config{
			Path: filepath.Join(tb.TempDir(), "m.db"), Now: now})
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// looks returns statements with one name for the look at what is due: every so often it is also one
// at recorded ends.
func looks(statements []string) []string {
	all := slices.Clone(statements)
	for i, name := range all {
		if name == "next_due_or_end" {
			all[i] = "next_due"
		}
	}
	return all
}
