package forgerun_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// fastConfig is a config of nodes that have their jobs done as soon as they can.
func fastConfig(seen *watcher) forgerun.Config {
	c := config()
	c.Workers, c.DurationScale, c.Log = 8, 0.00001, slog.New(seen)
	c.Timer = func(d time.Duration) (<-chan time.Time, func()) {
		t := time.NewTimer(d)
		return t.C, func() { t.Stop() }
	}
	return c
}

// newNodes are n nodes on one PostgreSQL.
func newNodes(t testing.TB, n int, seen *watcher) []*world {
	first := onPostgres(t, fastConfig(seen))
	all := []*world{first}
	for range n - 1 {
		all = append(all, newWorld(t, first.clock, first.reopenStore(t), fastConfig(seen)))
	}
	for _, w := range all {
		w.watcher = seen
	}
	return all
}

// sumMetric adds a metric up over nodes.
func sumMetric(t testing.TB, all []*world, name string, labels map[string]string) (n float64) {
	t.Helper()
	for _, w := range all {
		n += w.metric(t, name, labels)
	}
	return n
}

// TestCrowd: three nodes with eight workers each and 2,000 jobs.
func TestCrowd(t *testing.T) {
	t.Parallel()
	const jobs = 2000
	seen := newWatcher(nil)
	all := newNodes(t, 3, seen)
	c := all[0].customer(t)
	for _, w := range all {
		w.Client.Transport = http.DefaultTransport // 2,000 times the same is checked elsewhere
		w.runServer(t)
	}
	testkit.RunConcurrently(24, func(i int) bool {
		who := &customer{w: all[i%3], id: c.id, key: c.key}
		for n := i; n < jobs; n += 24 {
			kind := []string{"SUCCESS_FAST", "FAIL_IMMEDIATE", "CPU_BURST", "RETRY_ON_FAIL"}[n%4]
			who.submit(t, submitBody(kind), "Idempotency-Key", fmt.Sprint("job ", n))
		}
		return true
	})
	seen.waitFor(t, "the end of 2,000 jobs", func() bool { return seen.finals >= jobs })
	found, err := all[0].engine.List(context.Background(), store.Filter{JobType: forgerun.Name})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("FR-171 FR-129 one RUNNING and one final event each", func(t *testing.T) {
		assertEqual(t, "jobs", len(found), jobs)
		for _, j := range found {
			history, err := all[1].engine.History(context.Background(), j.ID)
			if err != nil {
				t.Fatal(err)
			}
			running, finals := 0, 0
			for _, e := range history {
				if e.Next == "RUNNING" {
					running++
				}
				if forgerun.Machine.Phase(e.Next) == job.Done {
					finals++
				}
			}
			if running != 1 || finals != 1 || len(history) != 5 {
				t.Fatalf("job %s has the history %+v", j.ID.Key, history)
			}
		}
	})
	t.Run("FR-118 FR-179 the counters of the nodes add up", func(t *testing.T) {
		for name, want := range map[string]float64{"jobs_submitted_total": jobs,
			"jobs_queued_total": jobs, "jobs_running_total": jobs,
			"jobs_succeeded_total": jobs / 2, "jobs_failed_total": jobs / 2,
			"jobs_canceled_total": 0, "job_execution_seconds": jobs,
			"idempotency_new_total": jobs} {
			assertEqual(t, name, sumMetric(t, all, name, nil), want)
		}
		assertEqual(t, "FAIL_IMMEDIATE",
			sumMetric(t, all, "jobs_by_scenario_total",
				map[string]string{"scenario": "FAIL_IMMEDIATE", "outcome": "FAILED"}), jobs/4)
		assertEqual(t, "depth", all[2].metric(t, "job_queue_depth", nil), 0)
	})
	t.Run("FR-070 50 submits with one key over three nodes", func(t *testing.T) {
		ids := testkit.RunConcurrently(50, func(i int) string {
			return (&customer{w: all[i%3], id: c.id, key: c.key}).submit(t,
				submitBody("SUCCESS_FAST"), "Idempotency-Key", "shared")
		})
		for _, id := range ids {
			assertEqual(t, "id", id, ids[0])
		}
		seen.waitFor(t, "the end of the shared job", func() bool { return seen.finals >= jobs+1 })
		assertEqual(t, "submitted", sumMetric(t, all, "jobs_submitted_total", nil), float64(jobs+1))
	})
	t.Run("FR-015 a revoked key on other nodes", func(t *testing.T) {
		c.Do(t, "POST", "/v1/clients/"+c.id+"/keys/revoke",
			`{"key_id":"`+c.keyID+`"}`).WantStatus(t, 200)
		for _, w := range all {
			w.clock.Advance(time.Second)
			w.Do(t, "GET", "/v1/jobs", "", "Authorization", "Bearer "+c.key).WantError(t, 403,
				"RFA_AUTH_API_KEY_DISABLED")
		}
	})
}

// TestCancelRace: a cancel and the end of a run at the same moment, 200 times.
func TestCancelRace(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		c := w.customer(t)
		w.Client.Transport = http.DefaultTransport
		t.Run("FR-138 FR-162 one final state, and the answer says which", func(t *testing.T) {
			ends := map[string]int{}
			const races = 60
			for range races {
				id := c.submit(t, submitBody("SUCCESS_FAST"))
				j := w.claimAndStart(t)
				var answer jobView
				testkit.RunConcurrently(2, func(i int) bool {
					if i == 0 {
						answer = c.cancel(t, id)
						return true
					}
					_, err := w.engine.Finish(context.Background(), currentRun(j),
						engine.Outcome{On: job.Succeeded})
					return err == nil || job.IsKind(err, job.RunLost)
				})
				v := c.get(t, id)
				assertEqual(t, "answer", answer.State, v.State)
				ends[v.State]++
				r := c.report(t, id)
				want := map[string]string{"SUCCEEDED": "succeeded", "CANCELED": "canceled"}[v.State]
				assertEqual(t, "events", r.names(), "created queued assigned started "+want)
				assertEqual(t, "outcome", r.Outcome, *v.Outcome)
			}
			assertEqual(t, "ends", ends["SUCCEEDED"]+ends["CANCELED"], races)
			assertEqual(t, "succeeded", w.metric(t, "jobs_succeeded_total", nil),
				float64(ends["SUCCEEDED"]))
			assertEqual(t, "canceled", w.metric(t, "jobs_canceled_total", nil),
				float64(ends["CANCELED"]))
		})
	})
}
