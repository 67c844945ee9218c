package engine_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/testkit"
)

// gone is a machine that keeps nothing, kept one that keeps rows of jobs that are done.
var (
	phases = map[job.State]job.Phase{"queued": job.Ready, "running": job.Leased, "done": job.Done}
	begin  = []job.Transition{{From: job.StateNone, On: job.Submitted, To: "queued"},
		{From: "queued", On: job.Claimed, To: "running"},
		{From: "running", On: job.Expired, To: "queued"}}
	gone = job.MustMachine(phases, append(begin,
		job.Transition{From: "running", On: job.Succeeded, To: job.StateNone}))
	kept = job.MustMachine(phases, append(begin,
		job.Transition{From: "running", On: job.Succeeded, To: "done"}))
)

func BenchmarkThrough(b *testing.B) {
	for _, db := range []string{"sqlite", "postgres"} {
		for name, m := range map[string]*job.Machine{"gone": gone, "kept": kept} {
			for _, shape := range []struct{ batch, callers int }{{100, 4}, {1, 64}, {1000, 4}} {
				b.Run(fmt.Sprintf("%s/%s/batch=%d,callers=%d", db, name, shape.batch,
					shape.callers), func(b *testing.B) {
					c := &realClock{start: time.Now()}
					e := newEngine(b, benchStore(b, db), c,
						engine.JobType{Name: "made", Machine: m})
					processJobs(b, e, shape.batch, shape.callers)
				})
			}
		}
	}
}

type realClock struct{ start time.Time }

func (c *realClock) Monotonic() time.Duration { return time.Since(c.start) }

func newEngine(tb testing.TB, s store.Store, c *realClock,
	jobTypes ...engine.JobType) *engine.Engine {
	e, err := engine.New(engine.Config{Store: s, Node: "bench", Random: testkit.RandomBytes,
		Monotonic: c.Monotonic})
	if err != nil {
		tb.Fatal(err)
	}
	testkit.Register(tb, e, jobTypes...)
	tb.Cleanup(e.Close)
	return e
}

func benchStore(tb testing.TB, db string) store.Store {
	if db == "postgres" {
		return openPostgres(tb)
	}
	s, err := sqlite.Open(context.Background(),
		sqlite.Config{Path: filepath.Join(tb.TempDir(), "m.db"), Now: time.Now})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// processJobs takes b.N jobs through submit, claim and finish.
func processJobs(b *testing.B, e *engine.Engine, batch, callers int) {
	ctx := context.Background()
	var next, done atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for {
				from := int(next.Add(int64(batch))) - batch
				if from >= b.N {
					return
				}
				n := min(batch, b.N-from)
				subs := make([]engine.Submission, n)
				for i := range subs {
					subs[i].Job = job.Job{ID: job.ID{JobType: "made", Scope: "q",
						Key: fmt.Sprint("job-", from+i)}, Queue: "q",
						Lease: time.Minute, Payload: []byte(`{"file":"a/b/c/d.txt","size":123456}`)}
				}
				if _, err := e.Submit(ctx, engine.Unique, subs); err != nil {
					b.Error(err)
					return
				}
				// others may hold rows for a moment, or take ours
				for left := n; left > 0 && int(done.Load()) < b.N; {
					jobs, err := e.Claim(ctx,
						engine.ClaimRequest{JobType: "made", Queues: []string{"q"}, Max: left,
							Worker: "w"})
					if err != nil {
						b.Error(err)
						return
					}
					requests := make([]engine.FinishRequest, len(jobs))
					for i, j := range jobs {
						requests[i] = engine.FinishRequest{Run: engine.Run{Run: j.Run},
							Outcome: engine.Outcome{On: job.Succeeded}}
					}
					for _, results := range e.FinishAll(ctx, requests) {
						if results.Err != nil {
							b.Error(results.Err)
						}
					}
					left -= len(jobs)
					done.Add(int64(len(jobs)))
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	if int(done.Load()) != b.N {
		b.Errorf("%d of %d jobs were finished", done.Load(), b.N)
	}
}
