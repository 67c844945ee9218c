package taskflow_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// attempts writes a policy.
func attempts(n int, strategy string, base, limit int) string {
	return fmt.Sprintf(`"retry_policy":{"max_attempts":%d,"backoff_strategy":%q,"base_delay_seconds":%d,"max_delay_seconds":%d}`, n, strategy, base, limit)
}

func TestRuns(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("TF-025 TF-026 TF-011 a run", func(t *testing.T) {
			v := w.create(t)
			w.clock.Advance(time.Second)
			j := w.claimAndStart(t, v.ID)
			running := w.status(t, v.ID, "RUNNING")
			assertEqual(t, "moved", running.UpdatedAt.After(v.UpdatedAt), true)
			w.clock.Advance(time.Second)
			w.finish(t, j, taskflow.SuccessOutcome(j, nil))
			done := w.status(t, v.ID, "COMPLETED")
			assertEqual(t, "moved and attempts",
				fmt.Sprint(done.UpdatedAt.After(running.UpdatedAt), done.AttemptCount), "true 0")
		})
		for strategy, delays := range map[string][]int{"FIXED": {10, 10, 10},
			"LINEAR": {10, 20, 25}, "EXPONENTIAL": {10, 20, 25}} {
			t.Run("TF-027 TF-028 TF-065 TF-067 "+strategy, func(t *testing.T) {
				id := w.create(t, attempts(4, strategy, 10, 25)).ID
				for n, delay := range delays {
					w.fail(t, id, true)
					v := w.status(t, id, "READY")
					assertEqual(t, "attempts", v.AttemptCount, n+1)
					assertEqual(t, "next_run_at",
						v.NextRunAt.Equal(w.clock.Now().Add(time.Duration(delay)*time.Second)),
						true)
					w.clock.Advance(time.Duration(delay)*time.Second - time.Microsecond)
					w.runMaintenance(t)
					_, err := w.engine.ClaimJob(t.Context(), engineJobID(id), "hasty")
					assertEqual(t, "too early", job.KindOf(err), job.Conflict)
					assertEqual(t, "too early for anybody", len(w.claims(t, 10)), 0)
					w.clock.Advance(time.Microsecond)
				}
				w.fail(t, id, true)
				v := w.status(t, id, "FAILED")
				assertEqual(t, "attempts", fmt.Sprint(v.AttemptCount, v.NextRunAt), "4 <nil>")
			})
		}
		t.Run("TF-066 TF-012 exactly as many runs as attempts", func(t *testing.T) {
			for n := 1; n <= 10; n++ {
				id := w.create(t, attempts(n, "FIXED", 1, 1)).ID
				runs := 0
				for ; w.get(t, id).Status == "READY"; runs++ {
					assertEqual(t, "attempts", w.get(t, id).AttemptCount, runs)
					w.fail(t, id, true)
					w.clock.Advance(time.Second)
				}
				assertEqual(t, "runs", fmt.Sprint(runs, w.get(t, id).AttemptCount),
					fmt.Sprint(n, n))
			}
		})
		t.Run("TF-028 not to be tried again", func(t *testing.T) { // G-TF-30
			id := w.create(t, attempts(5, "FIXED", 1, 1)).ID
			w.fail(t, id, true)
			w.clock.Advance(time.Second)
			w.fail(t, id, false)
			assertEqual(t, "attempts", w.status(t, id, "FAILED").AttemptCount, 2)
		})
		t.Run("TF-027 given back", func(t *testing.T) { // G-TF-30
			id := w.create(t).ID
			w.finish(t, w.claimAndStart(t, id), engine.Outcome{On: job.Released})
			v := w.status(t, id, "READY")
			assertEqual(t, "attempts and delay", fmt.Sprint(v.AttemptCount, v.NextRunAt), "0 <nil>")
			w.succeed(t, id)
		})
		t.Run("TF-107 a worker that disappears", func(t *testing.T) {
			id := w.create(t, attempts(2, "LINEAR", 7, 300)).ID
			for n := 1; n <= 2; n++ {
				j := w.claimAndStart(t, id)
				w.clock.Advance(lease)
				w.runMaintenance(t)
				assertEqual(t, "attempts", w.get(t, id).AttemptCount, n)
				_, err := w.engine.Finish(t.Context(), runOf(j), taskflow.SuccessOutcome(j, nil))
				assertEqual(t, "its result", job.KindOf(err), job.RunLost)
				if n == 1 {
					v := w.status(t, id, "READY")
					assertEqual(t, "next_run_at",
						v.NextRunAt.Equal(w.clock.Now().Add(7*time.Second)), true)
					w.clock.Advance(7 * time.Second)
				}
			}
			w.status(t, id, "FAILED")
		})
		t.Run("TF-068 the delay outlives the process", func(t *testing.T) {
			id := w.create(t, attempts(3, "FIXED", 100, 100)).ID
			w.fail(t, id, true)
			w.clock.Advance(99 * time.Second)
			if w.reopenStore != nil {
				w = newWorld(t, w.clock, w.reopenStore(t), config())
			} else {
				w = newWorld(t, w.clock, w.store, config())
			}
			w.runMaintenance(t)
			assertEqual(t, "too early", len(w.claims(t, 10)), 0)
			w.clock.Advance(time.Second)
			jobs := w.claims(t, 10)
			assertEqual(t, "jobs", len(jobs) == 1 && jobs[0].ID.Key == id &&
				taskflow.Attempt(jobs[0]) == 2, true)
		})
	})
}

func TestScheduling(t *testing.T) {
	c := config()
	c.MaxConcurrent = 3
	onEveryStoreWith(t, c, func(t *testing.T, w *world) {
		ended := func(jobs []*job.Job) {
			for _, j := range jobs {
				w.finish(t, j, taskflow.SuccessOutcome(j, nil))
			}
		}
		t.Run("TF-052 TF-053 TF-054 TF-057 the order", func(t *testing.T) {
			var want []string
			made := map[string][]string{}
			for _, group := range []struct{ at, priority int }{{0, 5}, {0, 9}, {0, 1}, {1, 9},
				{1, 5}} {
				key := fmt.Sprint(group.priority, group.at)
				w.clock.Advance(time.Duration(group.at) * time.Second)
				for range 3 {
					made[key] = append(made[key],
						w.create(t, fmt.Sprint(`"priority":`, group.priority)).ID)
				}
			}
			for _, key := range []string{"9 0", "9 1", "5 0", "5 1", "1 0"} {
				want = append(want, made[key]...)
			}
			var got []string
			for len(got) < len(want) {
				jobs := w.claims(t, 2)
				for _, j := range jobs {
					got = append(got, j.ID.Key)
				}
				ended(jobs)
				if len(jobs) == 0 {
					break
				}
			}
			assertEqual(t, "order", fmt.Sprint(got), fmt.Sprint(want))
			ordered := taskflow.Job{ID: want[0]}
			assertEqual(t, "ids of equal time grow",
				taskflow.CompareJobs(ordered, taskflow.Job{ID: want[1]}) < 0, true)
		})
		t.Run("TF-055 TF-056 TF-057 TF-058 slots", func(t *testing.T) {
			for range 5 {
				w.create(t, `"priority":5`)
				w.clock.Advance(time.Second)
			}
			first := w.claims(t, 10)
			assertEqual(t, "started", len(first), 3)
			assertEqual(t, "no slot", len(w.claims(t, 10)), 0)
			_, err := w.engine.ClaimJob(t.Context(), engineJobID(w.create(t, `"queue":"other"`).ID),
				"w")
			assertEqual(t, "no slot in another queue", job.KindOf(err), job.Conflict)
			urgent := w.create(t, `"priority":10`).ID
			w.finish(t, first[0], taskflow.SuccessOutcome(first[0], nil))
			next := w.claims(t, 10)
			assertEqual(t, "next", len(next) == 1 && next[0].ID.Key == urgent, true)
			ended(first[1:])
			ended(next)
			ended(w.claims(t, 10))
		})
		if w.reopenStore == nil {
			return // one node has this store to itself
		}
		t.Run("TF-059 over all nodes", func(t *testing.T) {
			other := newWorld(t, w.clock, w.reopenStore(t), c)
			for range 20 {
				w.create(t)
			}
			for range 5 {
				all := testkit.RunConcurrently(8, func(i int) []*job.Job {
					node := []*world{w, other}[i%2]
					jobs, _ := node.engine.Claim(t.Context(),
						engine.ClaimRequest{JobType: taskflow.Name, Max: 2, Worker: "w"})
					return jobs
				})
				n := 0
				for _, jobs := range all {
					n += len(jobs)
				}
				assertEqual(t, "running", n, 3)
				for _, jobs := range all {
					ended(jobs)
				}
			}
		})
	})
}

func TestDependencies(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("TF-032 TF-042 at creation", func(t *testing.T) {
			open, done, failed := w.create(t).ID, w.create(t).ID, w.create(t).ID
			w.succeed(t, done)
			w.fail(t, failed, false)
			blocked := w.create(t, dependenciesMember(failed)).ID
			for want, deps := range map[string][][]string{
				"READY":   {{}, {done}},
				"PENDING": {{open}, {open, done}},
				"BLOCKED": {{failed}, {open, failed}, {done, failed, open}, {blocked}},
			} {
				for _, ids := range deps {
					assertEqual(t, fmt.Sprint(ids), w.create(t, dependenciesMember(ids...)).Status,
						want)
				}
			}
		})
		t.Run("TF-023 TF-046 TF-011 released when the last completes", func(t *testing.T) {
			a, b := w.create(t).ID, w.create(t).ID
			v := w.create(t, dependenciesMember(a, b))
			w.succeed(t, a)
			w.status(t, v.ID, "PENDING")
			w.clock.Advance(time.Second)
			w.succeed(t, b)
			assertEqual(t, "moved", w.status(t, v.ID, "READY").UpdatedAt.After(v.UpdatedAt), true)
			w.succeed(t, v.ID)
		})
		t.Run("TF-024 TF-047 TF-051 blocked when one fails for good", func(t *testing.T) {
			a, other := w.create(t, attempts(2, "FIXED", 1, 1)).ID, w.create(t).ID
			b := w.create(t, dependenciesMember(a, other)).ID
			c := w.create(t, dependenciesMember(b)).ID
			d := w.create(t, dependenciesMember(other)).ID
			w.fail(t, a, true)
			w.status(t, b, "PENDING")
			w.clock.Advance(time.Second)
			w.fail(t, a, true)
			for id, want := range map[string]string{a: "FAILED", b: "BLOCKED", c: "BLOCKED",
				d: "PENDING"} {
				w.status(t, id, want)
			}
			w.succeed(t, other)
			w.status(t, b, "BLOCKED")
			w.status(t, d, "READY")
		})
		t.Run("TF-049 no reader sees a half", func(t *testing.T) {
			for range 10 {
				a := w.create(t).ID
				b := w.create(t, dependenciesMember(a)).ID
				j := w.claimAndStart(t, a)
				testkit.RunConcurrently(5, func(i int) bool {
					if i == 0 {
						_, err := w.engine.Finish(t.Context(), runOf(j),
							taskflow.FailureOutcome(j, "x", "y", false))
						return err == nil
					}
					for range 5 {
						first := w.get(t, a).Status
						if second := w.get(t, b).Status; first == "FAILED" && second != "BLOCKED" {
							t.Errorf("%s after %s", second, first)
						}
					}
					return true
				})
				w.status(t, b, "BLOCKED")
			}
		})
		t.Run("TF-050 both sides of a diamond at once", func(t *testing.T) {
			for range 30 { // internal/engine has a crowd of them
				top := w.create(t).ID
				left, right := w.create(t, dependenciesMember(top)).ID,
					w.create(t, dependenciesMember(top)).ID
				end := w.create(t, dependenciesMember(left, right)).ID
				w.succeed(t, top)
				runs := []*job.Job{w.claimAndStart(t, left), w.claimAndStart(t, right)}
				testkit.RunConcurrently(2, func(i int) bool {
					w.finish(t, runs[i], taskflow.SuccessOutcome(runs[i], nil))
					return true
				})
				w.status(t, end, "READY")
				history, err := w.engine.History(t.Context(), engineJobID(end))
				if err != nil || len(history) != 2 {
					t.Fatalf("history %+v: %v", history, err)
				}
				w.succeed(t, end)
			}
		})
		t.Run("TF-046 a dependent made while its dependency ends", func(t *testing.T) { // G-TF-11
			for i := range 60 {
				a := w.create(t).ID
				j := w.claimAndStart(t, a)
				well := i%2 == 0
				answers := testkit.RunConcurrently(2, func(i int) testkit.Reply {
					switch {
					case i == 0:
						return w.Do(t, "POST", jobsPath, jobSpec(dependenciesMember(a)))
					case well:
						w.finish(t, j, taskflow.SuccessOutcome(j, nil))
					default:
						w.finish(t, j, taskflow.FailureOutcome(j, "x", "y", false))
					}
					return testkit.Reply{}
				})
				w.status(t, testkit.DecodeReply[jobView](t, answers[0].WantStatus(t, 201)).ID,
					map[bool]string{true: "READY", false: "BLOCKED"}[well])
			}
		})
		t.Run("TF-046 TF-047 TF-049 a thousand wait for one", func(t *testing.T) {
			for want, well := range map[string]bool{"READY": true, "BLOCKED": false} {
				all := []string{leaf("top")}
				for i := range 1000 {
					all = append(all, vertex(fmt.Sprint(i), "top"))
				}
				ids := w.graph(t, all...)
				if well {
					w.succeed(t, ids["top"])
				} else {
					w.fail(t, ids["top"], false)
				}
				n := len(w.allPages(t, "queue", "g", "status", want, "limit", "100"))
				assertEqual(t, want, n, 1000)
			}
		})
		t.Run("TF-106 workers claim by queue", func(t *testing.T) {
			id := w.create(t, `"queue":"mine"`).ID
			jobs, err := w.engine.Claim(t.Context(),
				engine.ClaimRequest{JobType: taskflow.Name, Queues: []string{"mine"}, Max: 5,
					Worker: "w"})
			assertEqual(t, "job", err == nil && len(jobs) == 1 && jobs[0].ID.Key == id, true)
			assertEqual(t, "payload", string(jobs[0].Payload), "{}")
		})
	})
}
