package fetchbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// names are all metrics with the labels they have (G-FB-42).
var names = map[string][]string{
	"api_requests_total": {"route", "status"}, "ingest_jobs_total": {"result"},
	"ingest_bytes_total": nil, "ingest_duration_seconds": nil,
	"worker_tasks_inflight": nil, "worker_download_seconds": nil,
	"worker_download_bytes_total":    nil,
	"worker_download_failures_total": {"code"}, "worker_storage_failures_total": {"code"},
	"worker_dlq_total": nil, "proxy_failures_total": {"pool"}, "ledger_pruned_jobs_total": nil,
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	c := config()
	c.Pools = map[string]*fetchbox.Pool{"eu": {Primary: secrets("http://127.0.0.1:1")}}
	w := inMemory(t, c)
	t.Run("FB-037 G-FB-42 all are there from the start, and no others", func(t *testing.T) {
		families, err := w.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, f := range families {
			for name, labels := range names {
				if f.GetName() != "fetchbox_"+name {
					continue
				}
				found[name] = true
				assertEqual(t, name+" has labels", len(f.GetMetric()[0].GetLabel()), len(labels))
				for i, l := range f.GetMetric()[0].GetLabel() {
					assertEqual(t, "label of "+name, l.GetName(), labels[i])
				}
			}
		}
		for name := range names {
			if !found[name] {
				t.Errorf("%s is missing", name)
			}
		}
		assertEqual(t, "metrics", len(families), len(names))
		if problems, err := testutil.GatherAndLint(w.registry); err != nil || len(problems) > 0 {
			t.Errorf("%v %v", problems, err)
		}
	})
	t.Run("G-FB-42 what they count", func(t *testing.T) {
		w.submit(t, manifest(2), keyHeader, "k")
		w.submit(t, manifest(2), keyHeader, "k")
		w.post(t, "{}").WantStatus(t, 400)
		w.Do(t, "GET", "/operators/jobs", "").WantStatus(t, 200)
		for result, want := range map[string]float64{"accepted": 1, "repeated": 1, "rejected": 1,
			"failed": 0} {
			assertEqual(t, result, w.counter(t, "ingest_jobs_total", "result", result), want)
		}
		assertEqual(t, "bytes", w.counter(t, "ingest_bytes_total"), float64(len(manifest(2))))
		assertEqual(t, "durations", w.counter(t, "ingest_duration_seconds"), 3)
		assertEqual(t, "accepted", w.counter(t, "api_requests_total", "route", "POST /jobs",
			"status", "202"), 2)
		assertEqual(t, "refused", w.counter(t, "api_requests_total", "route", "POST /jobs",
			"status", "400"), 1)
		assertEqual(t, "lists", w.counter(t, "api_requests_total", "route", "GET /operators/jobs",
			"status", "200"), 1)
	})
}

// prune removes what is too old or too large, as maintenance does.
func (w *world) prune(t testing.TB) {
	t.Helper()
	for {
		n, err := w.engine.Prune(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
}

func TestPrune(t *testing.T) {
	ended := func(t *testing.T, w *world, n int) receipt {
		r := w.submit(t, manifest(n))
		for range n {
			w.awaitEnd(t, r.JobID, storedOutcome)
		}
		w.finalize(t, 1)
		return r
	}
	t.Run("by age", func(t *testing.T) {
		onEveryStore(t, func(t *testing.T, w *world) {
			old, open := ended(t, w, 3), w.submit(t, manifest(2))
			w.awaitEnd(t, open.JobID, storedOutcome)
			w.clock.Advance(20 * 24 * time.Hour)
			young := ended(t, w, 3)
			t.Run("FB-088 not before 30 days", func(t *testing.T) {
				w.clock.Advance(10*24*time.Hour - time.Second)
				w.prune(t)
				assertEqual(t, "jobs", len(w.all(t, fetchbox.Name)), 3)
			})
			t.Run("FB-088 FB-094 then those that are done, with their tasks",
				func(t *testing.T) {
					w.clock.Advance(2 * time.Second)
					w.prune(t)
					w.Do(t, "GET", "/operators/jobs/"+old.JobID, "").WantError(t, 404, "NOT_FOUND")
					w.status(t, open.JobID, "in_progress")
					w.status(t, young.JobID, "completed")
					assertEqual(t, "tasks", len(w.all(t, fetchbox.Tasks)), 5)
					assertEqual(t, "ledger_pruned_jobs_total",
						w.counter(t, "ledger_pruned_jobs_total"), 1)
				})
			t.Run("FB-094 a job that is not done is never removed", func(t *testing.T) {
				w.clock.Advance(365 * 24 * time.Hour)
				w.prune(t)
				w.status(t, open.JobID, "in_progress")
				assertEqual(t, "tasks", len(w.all(t, fetchbox.Tasks)), 2)
			})
		})
	})
	t.Run("by size", func(t *testing.T) {
		testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
			c := config()
			c.LedgerMaxBytes = 40000
			w := newWorldAt(t, p, c)
			t.Run("FB-089 G-FB-40 the oldest that are done go until the rest is below the cap",
				func(t *testing.T) {
					open := w.submit(t, manifest(10))
					var all []receipt
					for range 20 {
						all = append(all, ended(t, w, 10))
						w.clock.Advance(time.Second)
					}
					size := func() (n int64) {
						if err := w.store.Update(context.Background(),
							func(tx store.Tx) (err error) {
								n, err = tx.Size(fetchbox.Name)
								return err
							}); err != nil {
							t.Fatal(err)
						}
						return n
					}
					if was := size(); was < 2*c.LedgerMaxBytes {
						t.Fatalf("the ledger has %d bytes only", was)
					}
					w.prune(t)
					if is := size(); is > c.LedgerMaxBytes || is < c.LedgerMaxBytes/2 {
						t.Errorf("the ledger has %d bytes", is)
					}
					w.status(t, open.JobID, "queued")
					gone := true
					for i, r := range all { // a stretch from the oldest on is gone
						there := w.Do(t, "GET", "/operators/jobs/"+r.JobID, "").Status == 200
						if gone = gone && !there; !gone && !there {
							t.Errorf("job %d is gone and an older one is not", i)
						}
					}
					w.status(t, all[len(all)-1].JobID, "completed")
					left := len(w.all(t, fetchbox.Name))
					assertEqual(t, "tasks", len(w.all(t, fetchbox.Tasks)), 10*left)
					assertEqual(t, "pruned", fmt.Sprint(w.counter(t, "ledger_pruned_jobs_total")),
						fmt.Sprint(21-left))
				})
		})
	})
}
