package forgerun_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// TestWorkers runs the pool of a node.
func TestWorkers(t *testing.T) {
	t.Parallel()
	config := config()
	config.Workers = 2
	// no heartbeat tells a worker anything here
	config.Lease, config.Heartbeat = time.Hour, 30*time.Minute
	w := inMemory(t, config)
	c := w.customer(t)
	var ids []string
	for range 5 {
		ids = append(ids, c.submit(t, submitBody("SUCCESS_NORMAL")))
	}
	stop := w.runServer(t)
	w.await(t, ids[0], "RUNNING")
	w.await(t, ids[1], "RUNNING")
	w.awaitTimers(t, 2)
	t.Run("FR-178 FR-176 with no worker free they stay QUEUED", func(t *testing.T) {
		for _, id := range ids[2:] {
			c.wantState(t, id, "QUEUED")
		}
		assertEqual(t, "FR-239 available", w.metric(t, "workers_available", nil), 0)
		assertEqual(t, "FR-239 workers", w.metric(t, "workers", nil), 2)
		assertEqual(t, "FR-227 FR-179 depth", w.metric(t, "job_queue_depth", nil), 3)
		assertEqual(t, "active", w.metric(t, "jobs_active", nil), 2)
	})
	t.Run("FR-135 FR-097 a cancel stops a run at once", func(t *testing.T) {
		c.cancel(t, ids[0])
		w.await(t, ids[2], "RUNNING") // the worker is free although no time has passed
		c.wantState(t, ids[0], "CANCELED")
	})
	t.Run("FR-116 FR-169 the others follow in their order", func(t *testing.T) {
		w.awaitTimers(t, 1)
		w.fakeTimers.advance(10 * time.Second)
		for _, id := range ids[3:] {
			w.await(t, id, "RUNNING")
		}
		w.awaitTimers(t, 2)
		w.fakeTimers.advance(10 * time.Second)
		w.awaitFinals(t, 5)
		for _, id := range ids[1:] {
			c.wantState(t, id, "SUCCEEDED")
		}
	})
	t.Run("G-X-13_a_node_that_stops", func(t *testing.T) {
		id := c.submit(t, submitBody("SUCCESS_NORMAL"))
		w.await(t, id, "RUNNING")
		stop()
		v := c.wantState(t, id, "FAILED")
		assertEqual(t, "failure", v.Failure.Code, "runner_lost")
		assertEqual(t, "attempt", c.retry(t, id).Attempt, 1)
	})
}

// awaitTimers waits until n runs have started to wait.
func (w *world) awaitTimers(t testing.TB, n int) {
	t.Helper()
	for range n {
		testkit.Receive(t, "a run to wait", w.fakeTimers.created)
	}
}

func TestLeases(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		c := w.customer(t)
		t.Run("FR-170 FR-171 a claim gives a job once", func(t *testing.T) {
			id := c.submit(t, submitBody("SUCCESS_FAST"))
			got := testkit.RunConcurrently(20, func(int) int { return len(w.claims(t, 1)) })
			n := 0
			for _, g := range got {
				n += g
			}
			assertEqual(t, "claims", n, 1)
			c.wantState(t, id, "ASSIGNED")
			c.cancel(t, id)
		})
		t.Run("FR-169 the order of creation", func(t *testing.T) {
			var ids []string
			for range 10 {
				ids = append(ids, c.submit(t, submitBody("SUCCESS_FAST")))
			}
			for _, id := range ids {
				assertEqual(t, "next", w.claim(t).ID.Key, id)
				c.cancel(t, id)
			}
		})
		t.Run("FR-172 FR-173 a lease of 30 s before the start", func(t *testing.T) {
			id := c.submit(t, submitBody("SUCCESS_FAST"))
			j := w.claim(t)
			w.clock.Advance(30*time.Second - time.Millisecond)
			w.runMaintenance(t)
			c.wantState(t, id, "ASSIGNED")
			w.clock.Advance(time.Millisecond)
			w.runMaintenance(t)
			c.wantState(t, id, "QUEUED")
			if _, err := w.engine.Start(context.Background(), currentRun(j)); !job.IsKind(err,
				job.RunLost) {
				t.Errorf("the run that lost it starts: %v", err)
			}
			w.claimAndRun(t)
			assertEqual(t, "events", c.report(t, id).names(),
				"created queued assigned requeued assigned started succeeded")
			assertEqual(t, "attempt", c.get(t, id).Attempt, 0)
		})
		t.Run("FR-174 each heartbeat extends the lease", func(t *testing.T) {
			id := c.submit(t, submitBody("SUCCESS_SLOW"))
			j := w.claimAndStart(t)
			for range 20 {
				w.clock.Advance(5 * time.Second)
				w.runMaintenance(t)
				if _, err := w.engine.Heartbeat(context.Background(), currentRun(j),
					nil); err != nil {
					t.Fatal(err)
				}
			}
			w.clock.Advance(29 * time.Second)
			w.runMaintenance(t)
			c.wantState(t, id, "RUNNING")
			w.finish(t, j, engine.Outcome{On: job.Succeeded})
		})
		t.Run("FR-175 FR-182 a run that falls silent has failed", func(t *testing.T) { // G-FR-35
			id := c.submit(t, submitBody("SUCCESS_SLOW"))
			j := w.claimAndStart(t)
			w.clock.Advance(30 * time.Second)
			w.runMaintenance(t)
			v := c.wantState(t, id, "FAILED")
			assertEqual(t, "failure", fmt.Sprint(v.Failure.Code, v.Failure.Retryable),
				"runner_losttrue")
			r := c.report(t, id)
			assertEqual(t, "event", r.names()+" "+r.Events[4].Reason,
				"created queued assigned started failed runner_lost")
			if _, err := w.engine.Finish(context.Background(), currentRun(j),
				engine.Outcome{On: job.Succeeded}); !job.IsKind(err, job.RunLost) {
				t.Errorf("the lost run finishes: %v", err)
			}
			assertEqual(t, "attempt", c.retry(t, id).Attempt, 1)
			w.clock.Advance(time.Minute)
			w.claimAndRun(t)
			v = c.wantState(t, id, "SUCCEEDED")
			assertEqual(t, "attempt", v.Attempt, 1)
		})
		t.Run("FR-175 FR-142 lost runs count as failures", func(t *testing.T) {
			id := c.submit(t, submitBody("SUCCESS_SLOW"))
			for n := range 4 {
				j := w.claimAndStart(t)
				if n%2 == 0 {
					w.clock.Advance(30 * time.Second)
					w.runMaintenance(t)
				} else if _, err := w.engine.Release(context.Background(),
					currentRun(j)); err != nil {
					// given up by a node that stops
					t.Fatal(err)
				}
				v := c.wantState(t, id, "FAILED")
				assertEqual(t, "attempt", v.Attempt, n)
				assertEqual(t, "failure", v.Failure.Code, "runner_lost")
				events := c.report(t, id).Events
				assertEqual(t, "final", *events[len(events)-1].Final, n == 3)
				if n < 3 {
					c.retry(t, id)
					w.clock.Advance(time.Minute)
				}
			}
			c.Do(t, "POST", "/v1/jobs/"+id+"/retry", "").WantError(t, 409, "RFA_JOB_CONFLICT")
		})
		t.Run("FR-181 a job without a definition", func(t *testing.T) { // G-FR-33
			for _, spoiled := range []string{"", "{", "[]", `{"work_kind":"SUCCESS_FAST"}`,
				`{"work_kind":"NOTHING","duration_ms":1,"payload_size":1}`} {
				id := c.submit(t, submitBody("SUCCESS_FAST",
					executionAtMember(w.clock.Now().Add(time.Hour))))
				_, err := w.engine.Change(context.Background(),
					job.ID{JobType: "forgerun", Key: id}, job.Due,
					func(j *job.Job, now time.Time) error {
						j.Definition, j.DueAt = []byte(spoiled), now
						return nil
					})
				if err != nil {
					t.Fatal(err)
				}
				w.claimAndRun(t)
				v := c.wantState(t, id, "FAILED")
				if v.Definition != nil || v.Type != "EXECUTE" {
					t.Errorf("%+v", v)
				}
				assertEqual(t, "failure", v.Failure.Code, "definition_missing")
				assertEqual(t, "events", c.report(t, id).names(),
					"created queued assigned started failed")
			}
		})
	})
}

func TestRuns(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	c := w.customer(t)
	t.Run("FR-180 FR-210 too long", func(t *testing.T) {
		id := c.submit(t, submitBody("RUNS_OVER_TIMEOUT"))
		w.claimAndRun(t)
		assertEqual(t, "duration_ms", c.report(t, id).DurationMS, 120_000)
		assertEqual(t, "failure", c.wantState(t, id, "FAILED").Failure.Code, "RFA_EXEC_TIMEOUT")
	})
	for _, scale := range []float64{0.001, 0.5, 3} {
		t.Run(fmt.Sprintf("FR-180 FR-247 at the scale %v", scale), func(t *testing.T) { // G-FR-55
			config := config()
			config.DurationScale, config.MaxRunTime = scale, 15*time.Second
			w := inMemory(t, config)
			c := w.customer(t)
			for kind, want := range map[string]string{"SUCCESS_NORMAL": "SUCCEEDED",
				"RUNS_OVER_TIMEOUT": "FAILED", "RUNS_LONG": "FAILED"} {
				id := c.submit(t, submitBody(kind))
				w.claimAndRun(t)
				c.wantState(t, id, want)
				ms := map[bool]float64{true: 10_000, false: 15_000}[want == "SUCCEEDED"] * scale
				assertEqual(t, "duration_ms", c.report(t, id).DurationMS, int64(ms))
			}
		})
	}
	for name, invalidate := range map[string]func([]byte) []byte{
		"cut":     func(b []byte) []byte { return b[:len(b)-1] },
		"empty":   func([]byte) []byte { return nil },
		"longer":  func(b []byte) []byte { return append(b, 0) },
		"changed": func(b []byte) []byte { b[7] ^= 1; return b },
	} {
		t.Run("FR-184 an output that is "+name, func(t *testing.T) {
			w := inMemory(t, config())
			w.forge.CorruptOutputs(invalidate)
			c := w.customer(t)
			id := c.submit(t, submitBody("SUCCESS_FAST"))
			w.claimAndRun(t)
			assertEqual(t, "failure", c.wantState(t, id, "FAILED").Failure.Code, "output_invalid")
		})
	}
	t.Run("FR-116 the output is of its size", func(t *testing.T) {
		id := c.submit(t, submitBody("PAYLOAD_LARGE"))
		w.claimAndRun(t)
		j, err := w.engine.Get(context.Background(), job.ID{JobType: "forgerun", Key: id})
		if err != nil {
			t.Fatal(err)
		}
		assertEqual(t, "bytes", testkit.DecodeReply[struct{ Bytes int }](t,
			testkit.Reply{Body: string(j.Result)}).Bytes, 256<<10)
	})
	t.Run("FR-135 a run stops when it is canceled", func(t *testing.T) {
		c.submit(t, submitBody("SUCCESS_SLOW"))
		j := w.claim(t)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan engine.Outcome, 1)
		go func() {
			done <- w.forge.Simulate(ctx, j, func(ctx context.Context) error {
				_, err := w.engine.Start(ctx, currentRun(j))
				return err
			})
		}()
		<-w.fakeTimers.created
		cancel()
		assertEqual(t, "outcome", (<-done).On, job.Released)
	})
	t.Run("FR-181 a run that cannot start does nothing", func(t *testing.T) {
		o := w.forge.Simulate(context.Background(), &job.Job{}, func(context.Context) error {
			return fmt.Errorf("lost")
		})
		assertEqual(t, "outcome", o.On, job.Released)
	})
}
