package forgerun_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// submitIntoState submits a job and brings it into a state.
func (c *customer) submitIntoState(t testing.TB, state string) (id string, j *job.Job) {
	t.Helper()
	switch state {
	case "CREATED":
		return c.submit(t, submitBody("SUCCESS_FAST",
			executionAtMember(c.w.clock.Now().Add(1000*time.Hour)))), nil
	case "QUEUED":
		return c.submit(t, submitBody("SUCCESS_FAST")), nil
	case "CANCELED":
		id = c.submit(t, submitBody("SUCCESS_FAST"))
		c.cancel(t, id)
		return id, nil
	}
	id = c.submit(t, submitBody("SUCCESS_FAST"))
	j = c.w.claim(t)
	if state == "ASSIGNED" {
		return id, j
	}
	if _, err := c.w.engine.Start(context.Background(), currentRun(j)); err != nil {
		t.Fatal(err)
	}
	switch state {
	case "SUCCEEDED":
		c.w.finish(t, j, engine.Outcome{On: job.Succeeded})
	case "FAILED":
		c.w.finish(t, j, engine.Outcome{On: job.Failed, Reason: "broken"})
	}
	return id, j
}

func TestCancel(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		c := w.customer(t)
		events := map[string]string{"CREATED": "created canceled",
			"QUEUED":   "created queued canceled",
			"ASSIGNED": "created queued assigned canceled",
			"RUNNING":  "created queued assigned started canceled"}
		for _, state := range []string{"CREATED", "QUEUED", "ASSIGNED", "RUNNING"} {
			t.Run("FR-133 FR-134 from "+state, func(t *testing.T) {
				id, _ := c.submitIntoState(t, state)
				w.clock.Advance(time.Second)
				v := c.cancel(t, id)
				assertEqual(t, "answer", v.JobID+v.State, id+"CANCELED")
				got := c.wantState(t, id, "CANCELED")
				assertEqual(t, "outcome", *got.Outcome, "CANCELED")
				if !got.UpdatedAt.Equal(v.UpdatedAt) || !v.UpdatedAt.Equal(w.clock.Now()) {
					t.Errorf("updated_at %v and %v", v.UpdatedAt, got.UpdatedAt)
				}
				assertEqual(t, "events", c.report(t, id).names(), events[state])
			})
		}
		for _, state := range []string{"SUCCEEDED", "FAILED", "CANCELED"} {
			t.Run("FR-137 of a job that is "+state, func(t *testing.T) {
				id, _ := c.submitIntoState(t, state)
				before, report := c.get(t, id), c.report(t, id)
				w.clock.Advance(time.Second)
				for range 2 {
					v := c.cancel(t, id)
					assertEqual(t, "state", v.State, state)
					if !v.UpdatedAt.Equal(before.UpdatedAt) {
						t.Errorf("updated_at %v, was %v", v.UpdatedAt, before.UpdatedAt)
					}
				}
				assertEqual(t, "events", c.report(t, id).names(), report.names())
			})
		}
		t.Run("FR-135 what the run says afterwards is refused", func(t *testing.T) {
			id, j := c.submitIntoState(t, "RUNNING")
			c.cancel(t, id)
			for _, on := range []job.Cause{job.Succeeded, job.Failed, job.Released} {
				if _, err := w.engine.Finish(context.Background(), currentRun(j),
					engine.Outcome{On: on}); !job.IsKind(err, job.RunLost) {
					t.Errorf("%s: %v", on, err)
				}
			}
			if _, err := w.engine.Heartbeat(context.Background(), currentRun(j),
				nil); !job.IsKind(err, job.RunLost) {
				t.Errorf("a heartbeat: %v", err)
			}
			c.wantState(t, id, "CANCELED")
		})
		t.Run("FR-136 a canceled job never runs", func(t *testing.T) {
			id := c.submit(t, submitBody("SUCCESS_FAST",
				executionAtMember(w.clock.Now().Add(time.Minute))))
			c.cancel(t, id)
			w.clock.Advance(time.Hour)
			w.runMaintenance(t)
			for _, j := range w.claims(t, 100) {
				if j.ID.Key == id {
					t.Error("it was claimed")
				}
			}
			c.wantState(t, id, "CANCELED")
		})
		t.Run("FR-016 FR-006 unknown job, broken body", func(t *testing.T) {
			c.Do(t, "POST", "/v1/jobs/"+nobody+"/cancel", "").WantError(t, 404, "RFA_JOB_NOT_FOUND")
			id, _ := c.submitIntoState(t, "QUEUED")
			c.Do(t, "POST", "/v1/jobs/"+id+"/cancel", "{").WantError(t, 400,
				"RFA_REQUEST_MALFORMED")
			c.wantState(t, id, "QUEUED")
			c.Do(t, "POST", "/v1/jobs/"+strings.ToUpper(id)+"/cancel", "{}").WantStatus(t, 200)
			c.wantState(t, id, "CANCELED")
		})
	})
}

func TestRetry(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		c := w.customer(t)
		t.Run("FR-139 FR-140 FR-146 FAILED to QUEUED", func(t *testing.T) {
			id, _ := c.submitIntoState(t, "FAILED")
			assertEqual(t, "attempt", c.get(t, id).Attempt, 0)
			v := c.retry(t, id)
			if v.JobID != id || v.State != "QUEUED" || v.Attempt != 1 ||
				!v.UpdatedAt.Equal(c.get(t, id).UpdatedAt) {
				t.Errorf("%+v", v)
			}
			got := c.wantState(t, id, "QUEUED")
			if got.Attempt != 1 || got.Outcome != nil {
				t.Errorf("%+v", got)
			}
			c.cancel(t, id)
			assertEqual(t, "attempt", c.get(t, id).Attempt, 1)
		})
		for _, state := range []string{"CREATED", "QUEUED", "ASSIGNED", "RUNNING", "SUCCEEDED",
			"CANCELED"} {
			t.Run("FR-141 of a job that is "+state, func(t *testing.T) { // G-FR-07
				id, _ := c.submitIntoState(t, state)
				before := c.Do(t, "GET", "/v1/jobs/"+id, "").Body
				c.Do(t, "POST", "/v1/jobs/"+id+"/retry", "").WantError(t, 409, "RFA_JOB_CONFLICT",
					state)
				assertEqual(t, "job", c.Do(t, "GET", "/v1/jobs/"+id, "").Body, before)
				c.cancel(t, id)
			})
		}
		t.Run("FR-145 a repeat answers the state there is", func(t *testing.T) {
			id, _ := c.submitIntoState(t, "FAILED")
			first := c.retry(t, id)
			repeat := func(state string) {
				t.Helper()
				v := c.retry(t, id)
				assertEqual(t, "state", v.State, state)
				assertEqual(t, "attempt", v.Attempt, 1)
			}
			repeat("QUEUED")
			if v := c.retry(t, id); !v.UpdatedAt.Equal(first.UpdatedAt) {
				t.Errorf("updated_at %v, was %v", v.UpdatedAt, first.UpdatedAt)
			}
			w.clock.Advance(time.Minute)
			j := w.claim(t)
			repeat("ASSIGNED")
			w.engine.Start(context.Background(), currentRun(j))
			repeat("RUNNING")
			w.finish(t, j, engine.Outcome{On: job.Succeeded})
			c.Do(t, "POST", "/v1/jobs/"+id+"/retry", "").WantError(t, 409, "RFA_JOB_CONFLICT",
				"SUCCEEDED")
			assertEqual(t, "events", c.report(t, id).names(),
				"created queued assigned started failed queued assigned started succeeded")
		})
		t.Run("FR-142 FR-143 three retries", func(t *testing.T) { // G-FR-08
			id := c.submit(t, submitBody("SUCCESS_FAST"))
			for n := range 4 {
				w.fail(t)
				assertEqual(t, "attempt", c.get(t, id).Attempt, n)
				events := c.report(t, id).Events
				last := events[len(events)-1]
				if last.Final == nil || *last.Final != (n == 3) || last.EventName != "job_failed" {
					t.Errorf("failure %d: %+v", n, last)
				}
				if n < 3 {
					assertEqual(t, "attempt", c.retry(t, id).Attempt, n+1)
					w.clock.Advance(time.Minute)
				}
			}
			before := c.Do(t, "GET", "/v1/jobs/"+id+"/report", "").Body
			c.Do(t, "POST", "/v1/jobs/"+id+"/retry", "").WantError(t, 409, "RFA_JOB_CONFLICT",
				"FAILED", "3")
			c.wantState(t, id, "FAILED")
			assertEqual(t, "report", c.Do(t, "GET", "/v1/jobs/"+id+"/report", "").Body, before)
			for _, e := range c.report(t, id).Events {
				if (e.Final != nil) != (e.EventName == "job_failed") {
					t.Errorf("final of %s", e.EventName)
				}
			}
		})
		t.Run("FR-144 it waits before it is claimed", func(t *testing.T) { // G-FR-64
			id := c.submit(t, submitBody("SUCCESS_FAST"))
			for n, maxTime := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
				w.fail(t)
				c.retry(t, id)
				w.clock.Advance(maxTime/2 - time.Millisecond)
				w.runMaintenance(t)
				assertEqual(t, "claimed too early", len(w.claims(t, 1)), 0)
				c.wantState(t, id, "QUEUED")
				assertEqual(t, "FR-179 depth", w.metric(t, "job_queue_depth", nil), 1)
				w.clock.Advance(maxTime/2 + time.Millisecond)
				if n == 2 {
					c.cancel(t, id)
				}
			}
		})
		t.Run("FR-016 unknown job", func(t *testing.T) {
			c.Do(t, "POST", "/v1/jobs/"+nobody+"/retry", "").WantError(t, 404, "RFA_JOB_NOT_FOUND")
		})
	})
}

// TestRetrySettings: how many retries there are and how long they wait are settings.
func TestRetrySettings(t *testing.T) {
	t.Parallel()
	t.Run("FR-142 FR-248 no retries", func(t *testing.T) {
		config := config()
		config.MaxRetries = 0
		w := inMemory(t, config)
		c := w.customer(t)
		id := c.submit(t, submitBody("SUCCESS_FAST"))
		w.fail(t)
		c.Do(t, "POST", "/v1/jobs/"+id+"/retry", "").WantError(t, 409, "RFA_JOB_CONFLICT")
		events := c.report(t, id).Events
		assertEqual(t, "final", *events[len(events)-1].Final, true)
	})
	t.Run("FR-144 FR-248 base and maximum", func(t *testing.T) {
		config := config()
		config.BackoffBase, config.BackoffMax, config.MaxRetries = 10*time.Second, 20*time.Second,
			10
		w := inMemory(t, config)
		c := w.customer(t)
		waits := map[time.Duration]bool{}
		c.submit(t, submitBody("SUCCESS_FAST"))
		for n := range 10 {
			j := w.fail(t)
			c.retry(t, j.ID.Key)
			j, err := w.engine.Get(context.Background(), j.ID)
			if err != nil {
				t.Fatal(err)
			}
			wait := j.DueAt.Sub(w.clock.Now())
			maxTime := min(10*time.Second<<n, 20*time.Second)
			if wait < maxTime/2 || wait > maxTime {
				t.Errorf("retry %d waits %v, want %v to %v", n, wait, maxTime/2, maxTime)
			}
			waits[wait] = true
			w.clock.Advance(20 * time.Second)
		}
		if len(waits) < 8 {
			t.Errorf("there is no jitter in %v", waits)
		}
	})
	for _, on := range []bool{false, true} {
		t.Run("FR-147 FR-098 automatic only when it is set", func(t *testing.T) { // G-FR-06
			config := config()
			config.AutoRetry = on
			w := inMemory(t, config)
			c := w.customer(t)
			retryable, not := c.submit(t, submitBody("RETRY_ON_FAIL")),
				c.submit(t, submitBody("FAIL_IMMEDIATE"))
			w.claimAndRun(t)
			w.claimAndRun(t)
			c.wantState(t, retryable, "FAILED")
			w.deliver(t)
			w.deliver(t)
			c.wantState(t, not, "FAILED")
			if !on {
				c.wantState(t, retryable, "FAILED")
				return
			}
			assertEqual(t, "attempt", c.wantState(t, retryable, "QUEUED").Attempt, 1)
			w.clock.Advance(time.Minute)
			w.claimAndRun(t)
			w.deliver(t)
			c.wantState(t, retryable, "SUCCEEDED")
		})
	}
	t.Run("TX-006 a run whose recorded end was refused is not repeated", func(t *testing.T) {
		config := config()
		config.AutoRetry = true
		w := inMemory(t, config)
		c := w.customer(t)
		id := c.submit(t, submitBody("RETRY_ON_FAIL"))
		w.finish(t, w.claimAndStart(t), engine.Outcome{On: job.Failed, Reason: engine.RefusedType,
			Failure: []byte(`{"code":"end_refused","message":"nested too deep","retryable":false}`)})
		w.deliver(t)
		c.wantState(t, id, "FAILED")
	})
	t.Run("FR-147 an old message retries nothing", func(t *testing.T) {
		config := config()
		config.AutoRetry = true
		w := inMemory(t, config)
		c := w.customer(t)
		id := c.submit(t, submitBody("RETRY_LIMIT_REACHED"))
		w.claimAndRun(t)
		again := w.deliver(t)
		w.clock.Advance(time.Minute)
		w.claimAndRun(t)
		c.wantState(t, id, "FAILED")
		if err := w.forge.Deliver(context.Background(), again); err != nil {
			t.Fatal(err)
		}
		assertEqual(t, "attempt", c.wantState(t, id, "FAILED").Attempt, 1)
		for range 5 {
			w.deliver(t)
			w.clock.Advance(time.Minute)
			if j := w.claims(t, 1); len(j) > 0 {
				w.simulate(t, j[0])
			}
		}
		assertEqual(t, "attempt", c.wantState(t, id, "FAILED").Attempt, 3)
	})
}
