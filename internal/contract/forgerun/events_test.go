package forgerun_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

func TestEvents(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		c := w.customer(t)
		t.Run("FR-148 FR-149 FR-151 one for each change, times growing", func(t *testing.T) {
			id := c.submit(t, submitBody("RETRY_ON_FAIL"))
			w.claimAndRun(t)
			c.retry(t, id)
			w.clock.Advance(time.Minute)
			w.claim(t)
			w.clock.Advance(30 * time.Second)
			w.runMaintenance(t)
			w.claimAndRun(t)
			r := c.report(t, id)
			assertEqual(t, "events", r.names(),
				"created queued assigned started failed queued assigned requeued assigned started succeeded")
			seen := map[string]bool{}
			for i, e := range r.Events {
				if i > 0 && !e.Timestamp.After(r.Events[i-1].Timestamp) {
					t.Errorf("event %d at %v, the one before at %v", i, e.Timestamp,
						r.Events[i-1].Timestamp)
				}
				if i > 0 && (e.PrevState == nil || *e.PrevState != r.Events[i-1].NextState) {
					t.Errorf("event %d begins elsewhere", i)
				}
				if _, err := uuid.Parse(e.EventID); err != nil || seen[e.EventID] {
					t.Errorf("event_id %s: %v", e.EventID, err)
				}
				seen[e.EventID] = true
			}
			if r.Events[0].PrevState != nil { // G-FR-62
				t.Errorf("the first event comes from %s", *r.Events[0].PrevState)
			}
		})
		t.Run("FR-150 events do not change", func(t *testing.T) {
			id := c.submit(t, submitBody("FAIL_IMMEDIATE"))
			w.claimAndRun(t)
			first := c.report(t, id).Events
			c.retry(t, id)
			w.clock.Advance(time.Hour)
			w.claimAndRun(t)
			for i, e := range c.report(t, id).Events[:len(first)] {
				assertEqual(t, "event", fmt.Sprint(e.EventID, e.Timestamp, e.EventName, e.NextState,
					e.Reason, *derefBool(e.Final)),
					fmt.Sprint(first[i].EventID, first[i].Timestamp, first[i].EventName,
						first[i].NextState, first[i].Reason, *derefBool(first[i].Final)))
			}
		})
		t.Run("FR-152 FR-025 a time-out is named", func(t *testing.T) {
			id := c.submit(t, submitBody("RUNS_OVER_TIMEOUT"))
			w.claimAndRun(t)
			events := c.report(t, id).Events
			assertEqual(t, "reason", events[len(events)-1].Reason, "RFA_EXEC_TIMEOUT")
			assertEqual(t, "failure", c.get(t, id).Failure.Code, "RFA_EXEC_TIMEOUT")
		})
		t.Run("FR-157 FR-173 the system alone requeues", func(t *testing.T) { // G-FR-01
			id := c.submit(t, submitBody("SUCCESS_FAST"))
			w.claim(t)
			c.Do(t, "POST", "/v1/jobs/"+id+"/retry", "").WantError(t, 409, "RFA_JOB_CONFLICT")
			c.wantState(t, id, "ASSIGNED")
			w.clock.Advance(30 * time.Second)
			w.runMaintenance(t)
			assertEqual(t, "attempt", c.wantState(t, id, "QUEUED").Attempt, 0)
			j := w.claim(t)
			if _, err := w.engine.Release(context.Background(), currentRun(j)); err != nil {
				t.Fatal(err)
			}
			w.claimAndRun(t)
			var reasons []string
			for _, e := range c.report(t, id).Events {
				if e.EventName == "job_requeued" {
					reasons = append(reasons, e.Reason)
				}
			}
			assertEqual(t, "reasons", strings.Join(reasons, " "), "lease_expired released")
		})
	})
	t.Run("FR-153 names", func(t *testing.T) {
		assertEqual(t, "names", strings.Join(forgerun.EventNames, " "),
			"job_created job_queued job_assigned job_started job_succeeded job_failed job_canceled job_requeued")
		for pair := range allowed {
			from, to, _ := strings.Cut(pair, " ")
			want := map[string]string{"QUEUED": "job_queued", "ASSIGNED": "job_assigned",
				"RUNNING": "job_started", "SUCCEEDED": "job_succeeded",
				"FAILED": "job_failed", "CANCELED": "job_canceled"}[to]
			if from == "ASSIGNED" && to == "QUEUED" {
				want = "job_requeued"
			}
			assertEqual(t, pair, forgerun.EventName(job.State(from), job.State(to)), want)
		}
		assertEqual(t, "first", forgerun.EventName(job.StateNone, "CREATED"), "job_created")
	})
	t.Run("FR-149 an event's id is made of what makes it unique", func(t *testing.T) {
		at := time.Date(2026, 3, 1, 12, 0, 0, 1000, time.UTC)
		assertEqual(t, "id", forgerun.EventID(nobody, at, "job_created"),
			"0ad963e4-1cbb-8c0c-a083-388bab17864d")
		for _, other := range []string{forgerun.EventID(nobody, at.Add(time.Microsecond),
			"job_created"), forgerun.EventID(nobody, at, "job_queued"),
			forgerun.EventID(nobody[:35]+"2", at, "job_created")} {
			if other == forgerun.EventID(nobody, at, "job_created") {
				t.Error("two events have one id")
			}
		}
	})
}

func derefBool(b *bool) *bool {
	if b == nil {
		b = new(bool)
	}
	return b
}

func TestSchedule(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		c := w.customer(t)
		due := w.clock.Now().Add(time.Minute)
		// G-FR-19: EXECUTE as well
		t.Run("FR-163 FR-164 FR-165 CREATED until its time", func(t *testing.T) {
			for _, typ := range []string{"EXECUTE", "DEFERRED", "EMIT_EVENT"} {
				due = w.clock.Now().Add(time.Minute)
				id := c.submit(t, submitBody("SUCCESS_FAST", fmt.Sprintf(`"type":%q`, typ),
					executionAtMember(due)))
				w.runMaintenance(t)
				w.clock.Advance(time.Minute - time.Microsecond)
				w.runMaintenance(t)
				assertEqual(t, "claimed too early", len(w.claims(t, 10)), 0)
				c.wantState(t, id, "CREATED")
				w.clock.Advance(time.Microsecond)
				next, _, err := w.engine.NextDue(context.Background())
				if err != nil || next > 0 {
					t.Errorf("the next is due in %v: %v", next, err)
				}
				w.runMaintenance(t)
				c.wantState(t, id, "QUEUED")
				w.claimAndRun(t)
				r := c.report(t, id)
				if r.StartedAt.Before(due) || r.StartedAt.After(due.Add(time.Second)) {
					t.Errorf("it started at %v and was due at %v", r.StartedAt, due)
				}
			}
		})
		t.Run("FR-166 UTC", func(t *testing.T) {
			due := w.clock.Now().Add(time.Hour)
			id := c.submit(t, submitBody("SUCCESS_FAST",
				fmt.Sprintf(`"execution_at":%q`,
					due.In(time.FixedZone("", -5*3600)).Format(time.RFC3339Nano))))
			body := c.Do(t, "GET", "/v1/jobs/"+id, "").Body
			if want := fmt.Sprintf(`"execution_at":%q`,
				due.UTC().Format(time.RFC3339Nano)); !strings.Contains(body, want) {
				t.Errorf("%s is not in %s", want, body)
			}
		})
		t.Run("FR-169 by creation, not by schedule", func(t *testing.T) { // G-FR-39
			first := c.submit(t, submitBody("SUCCESS_FAST",
				executionAtMember(w.clock.Now().Add(20*time.Second))))
			w.clock.Advance(time.Second)
			second := c.submit(t, submitBody("SUCCESS_FAST",
				executionAtMember(w.clock.Now().Add(time.Second))))
			w.clock.Advance(20 * time.Second)
			third := c.submit(t, submitBody("SUCCESS_FAST"))
			w.runMaintenance(t)
			for _, want := range []string{first, second, third} {
				j := w.claim(t)
				assertEqual(t, "next", j.ID.Key, want)
				c.cancel(t, want)
			}
		})
	})
}

// TestRestart: what was stored is there for the next process.
func TestRestart(t *testing.T) {
	t.Parallel()
	w := onPostgres(t, config())
	c := w.customer(t)
	hook, _ := c.register(t, "http://localhost:9/some", "job_failed")
	done := c.submit(t, submitBody("SUCCESS_FAST"), "Idempotency-Key", "kept")
	w.claimAndRun(t)
	due := c.submit(t, submitBody("SUCCESS_FAST",
		executionAtMember(w.clock.Now().Add(time.Minute))))
	later := c.submit(t, submitBody("SUCCESS_FAST",
		executionAtMember(w.clock.Now().Add(10*time.Hour))))
	queued := c.submit(t, submitBody("SUCCESS_FAST"))
	report := c.Do(t, "GET", "/v1/jobs/"+done+"/report", "").WantStatus(t, 200).Body
	w.clock.Advance(time.Hour) // nobody is there
	next := newWorld(t, w.clock, w.reopenStore(t), config())
	c = &customer{w: next, id: c.id, key: c.key, keyID: c.keyID}
	t.Run("FR-038 FR-132 FR-249 clients, keys, jobs, reports, webhooks", func(t *testing.T) {
		assertEqual(t, "report", c.Do(t, "GET", "/v1/jobs/"+done+"/report", "").WantStatus(t,
			200).Body, report)
		assertEqual(t, "key", testkit.DecodeReply[issuedKey](t,
			c.Do(t, "POST", "/v1/clients/"+c.id+"/keys", "").WantStatus(t, 200)).KeyID, c.keyID)
		if body := c.Do(t, "GET", "/v1/webhooks", "").WantStatus(t,
			200).Body; !strings.Contains(body, hook) {
			t.Errorf("%s is not in %s", hook, body)
		}
		assertEqual(t, "jobs", next.jobs(t), 4)
	})
	t.Run("FR-071 a key still deduplicates", func(t *testing.T) {
		assertEqual(t, "id", c.submit(t, submitBody("SUCCESS_FAST"), "Idempotency-Key", "kept"),
			done)
	})
	t.Run("FR-167 FR-168 FR-108 what came due meanwhile is queued, once", func(t *testing.T) {
		c.wantState(t, due, "CREATED")
		next.runMaintenance(t)
		w.runMaintenance(t) // another node
		next.runMaintenance(t)
		c.wantState(t, due, "QUEUED")
		c.wantState(t, later, "CREATED")
	})
	t.Run("FR-177 FR-169 what was queued is claimed, once", func(t *testing.T) {
		got := map[string]int{}
		for _, j := range next.claims(t, 10) {
			got[j.ID.Key]++
		}
		assertEqual(t, "claimed", fmt.Sprint(len(got), got[due], got[queued]), "2 1 1")
	})
	t.Run("FR-168 exactly one event of it", func(t *testing.T) {
		c.cancel(t, due)
		assertEqual(t, "events", c.report(t, due).names(), "created queued assigned canceled")
	})
	t.Run("FR-109 far in the future", func(t *testing.T) {
		next.clock.Advance(10 * time.Hour)
		next.runMaintenance(t)
		next.claimAndRun(t)
		c.wantState(t, later, "SUCCEEDED")
	})
}
