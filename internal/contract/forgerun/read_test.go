package forgerun_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

func TestRead(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		c := w.customer(t)
		t.Run("FR-120 FR-121 FR-122 members", func(t *testing.T) {
			id := c.submit(t, submitBody("FAIL_IMMEDIATE"))
			got := map[string]any{}
			body := c.Do(t, "GET", "/v1/jobs/"+id, "").WantStatus(t, 200).Body
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatal(err)
			}
			names := slices.Sorted(maps.Keys(got))
			assertEqual(t, "members", strings.Join(names, " "),
				"attempt callback created_at definition execution_at failure job_id outcome state type updated_at work_kind")
			for _, name := range []string{"outcome", "execution_at", "callback", "failure"} {
				if got[name] != nil {
					t.Errorf("%s is %v", name, got[name])
				}
			}
			assertEqual(t, "attempt", got["attempt"].(float64), 0) // G-FR-20
			w.claimAndRun(t)
			v := c.wantState(t, id, "FAILED")
			assertEqual(t, "outcome", *v.Outcome, "FAILED")
			if v.Failure == nil || v.Failure.Code != "simulated_failure" ||
				v.Failure.Message == "" {
				t.Errorf("failure %+v", v.Failure)
			}
		})
		t.Run("FR-121 outcomes", func(t *testing.T) {
			id := c.submit(t, submitBody("SUCCESS_FAST"))
			w.claimAndRun(t)
			assertEqual(t, "outcome", *c.get(t, id).Outcome, "SUCCESS")
			id = c.submit(t, submitBody("SUCCESS_FAST"))
			c.cancel(t, id)
			assertEqual(t, "outcome", *c.get(t, id).Outcome, "CANCELED")
		})
		t.Run("FR-123 reading changes nothing", func(t *testing.T) {
			id := c.submit(t, submitBody("SUCCESS_FAST"))
			first := c.Do(t, "GET", "/v1/jobs/"+id, "").WantStatus(t, 200).Body
			w.clock.Advance(time.Minute)
			assertEqual(t, "job", c.Do(t, "GET", "/v1/jobs/"+id, "").WantStatus(t, 200).Body, first)
			j := w.claimAndStart(t)
			first = c.Do(t, "GET", "/v1/jobs/"+id, "").WantStatus(t, 200).Body
			w.clock.Advance(5 * time.Second)
			if _, err := w.engine.Heartbeat(context.Background(), currentRun(j), nil); err != nil {
				t.Fatal(err)
			}
			assertEqual(t, "after a heartbeat",
				c.Do(t, "GET", "/v1/jobs/"+id, "").WantStatus(t, 200).Body, first)
			c.cancel(t, id)
		})
		t.Run("FR-125 FR-127 FR-128 the report of a run", func(t *testing.T) {
			id := c.submit(t, submitBody("SUCCESS_FAST"))
			w.clock.Advance(time.Minute)
			w.claimAndRun(t)
			r := c.report(t, id)
			assertEqual(t, "job and outcome", r.JobID+r.Outcome, id+"SUCCESS")
			assertEqual(t, "events", r.names(), "created queued assigned started succeeded")
			assertEqual(t, "duration_ms", r.DurationMS, 1000)
			assertEqual(t, "duration_ms is the difference",
				r.FinishedAt.Sub(*r.StartedAt).Round(time.Millisecond), time.Second)
			states := []string{"CREATED", "QUEUED", "ASSIGNED", "RUNNING", "SUCCEEDED"}
			for i, e := range r.Events {
				prev := "null"
				if e.PrevState != nil {
					prev = *e.PrevState
				}
				want := "null"
				if i > 0 {
					want = states[i-1]
				}
				assertEqual(t, "states", prev+" "+e.NextState, want+" "+states[i])
				assertEqual(t, "FR-119 scenario", e.Scenario, "SUCCESS_FAST")
				assertEqual(t, "job_id", e.JobID, id)
			}
			if !r.Events[4].Timestamp.Equal(r.FinishedAt) ||
				!r.Events[3].Timestamp.Equal(*r.StartedAt) {
				t.Errorf("times %v to %v", r.StartedAt, r.FinishedAt)
			}
		})
		t.Run("FR-126 FR-129 none before the end", func(t *testing.T) {
			id := c.submit(t, submitBody("SUCCESS_FAST",
				executionAtMember(w.clock.Now().Add(time.Second))))
			none := func(state string) {
				t.Helper()
				c.wantState(t, id, state)
				c.Do(t, "GET", "/v1/jobs/"+id+"/report", "").WantError(t, 404, "RFA_JOB_NOT_FOUND",
					state)
			}
			none("CREATED")
			w.clock.Advance(time.Second)
			w.runMaintenance(t)
			none("QUEUED")
			j := w.claim(t)
			none("ASSIGNED")
			w.engine.Start(context.Background(), currentRun(j))
			none("RUNNING")
			w.finish(t, j, engine.Outcome{On: job.Succeeded})
			c.report(t, id)
		})
		t.Run("FR-130 FR-146 withdrawn by a retry", func(t *testing.T) { // G-FR-09
			id := c.submit(t, submitBody("RETRY_ON_FAIL"))
			w.claimAndRun(t)
			first := c.Do(t, "GET", "/v1/jobs/"+id+"/report", "").WantStatus(t, 200).Body
			w.clock.Advance(time.Hour)
			assertEqual(t, "a finished report",
				c.Do(t, "GET", "/v1/jobs/"+id+"/report", "").WantStatus(t, 200).Body, first)
			c.retry(t, id)
			c.Do(t, "GET", "/v1/jobs/"+id+"/report", "").WantError(t, 404, "RFA_JOB_NOT_FOUND")
			v := c.get(t, id)
			if v.Outcome != nil || v.Failure != nil {
				t.Errorf("outcome %v, failure %v", v.Outcome, v.Failure)
			}
			w.clock.Advance(time.Minute)
			began := w.clock.Now()
			w.claimAndRun(t)
			r := c.report(t, id)
			assertEqual(t, "events", r.names(),
				"created queued assigned started failed queued assigned started succeeded")
			assertEqual(t, "duration_ms", r.DurationMS, 3000)
			if r.StartedAt.Before(began) {
				t.Errorf("started_at %v is that of the first run", r.StartedAt)
			}
		})
		t.Run("FR-131 canceled before it started", func(t *testing.T) { // G-FR-31
			for _, claimed := range []bool{false, true} {
				id := c.submit(t, submitBody("SUCCESS_FAST"))
				if claimed {
					w.claim(t)
				}
				w.clock.Advance(time.Second)
				c.cancel(t, id)
				r := c.report(t, id)
				if r.StartedAt != nil || r.DurationMS != 0 ||
					!r.FinishedAt.Equal(c.get(t, id).UpdatedAt) {
					t.Errorf("%+v", r)
				}
			}
			id := c.submit(t, submitBody("SUCCESS_FAST"))
			w.fail(t)
			c.retry(t, id)
			c.cancel(t, id)
			if r := c.report(t, id); r.StartedAt != nil || r.DurationMS != 0 {
				t.Errorf("canceled after a retry: %+v", r)
			}
		})
		t.Run("FR-122 a failure that a remote worker reported", func(t *testing.T) {
			for raw, want := range map[string]string{
				`{"code":"c","message":"m","retryable":true}`:      "c m true",
				`{"error":"m","error_type":"t","retryable":false}`: "t m false",
				`"a text"`: "failed a text false",
				`{"a`:      "failed the run failed false",
				`{}`:       "failed the run failed false",
				``:         "runner_lost the runner was lost while the job ran true",
			} {
				code, message, retryable := forgerun.DecodeFailure([]byte(raw))
				assertEqual(t, raw, fmt.Sprintf("%s %s %t", code, message, retryable), want)
			}
		})
	})
}

type jobList struct {
	Items      []jobView `json:"items"`
	NextCursor *string   `json:"next_cursor"`
	HasMore    bool      `json:"has_more"`
}

func TestList(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		c, other := w.customer(t), w.customer(t)
		var ids []string
		for i := range 45 {
			ids = append(ids, c.submit(t, submitBody("SUCCESS_FAST")))
			other.submit(t, submitBody("SUCCESS_FAST"))
			if i%3 == 0 {
				c.cancel(t, ids[i])
			}
		}
		slices.Reverse(ids)
		walk := func(query string) (got []string, pages int) {
			cursor := ""
			for {
				l := testkit.DecodeReply[jobList](t,
					c.Do(t, "GET", "/v1/jobs?"+query+cursor, "").WantStatus(t, 200))
				pages++
				for _, v := range l.Items {
					got = append(got, v.JobID)
				}
				assertEqual(t, "has_more", l.HasMore, l.NextCursor != nil)
				if !l.HasMore {
					return got, pages
				}
				cursor = "&cursor=" + *l.NextCursor
			}
		}
		t.Run("FR-250 all of the client's jobs, newest first", func(t *testing.T) { // G-FR-43
			for query, pages := range map[string]int{"": 3, "limit=100": 1, "limit=1": 45,
				"limit=45": 1, "limit=44": 2} {
				got, n := walk(query)
				assertEqual(t, query+" pages", n, pages)
				if !slices.Equal(got, ids) {
					t.Errorf("%s lists %v", query, got)
				}
			}
		})
		t.Run("FR-250 by state", func(t *testing.T) {
			got, _ := walk("state=CANCELED&limit=4")
			assertEqual(t, "jobs", len(got), 15)
			for _, id := range got {
				c.wantState(t, id, "CANCELED")
			}
			got, _ = walk("state=FAILED")
			assertEqual(t, "jobs", len(got), 0)
		})
		t.Run("FR-250 an item is what a job shows", func(t *testing.T) {
			r := c.Do(t, "GET", "/v1/jobs?limit=1", "").WantStatus(t, 200)
			if one := c.Do(t, "GET", "/v1/jobs/"+ids[0], "").Body; !strings.Contains(r.Body, one) {
				t.Errorf("%s is not in %s", one, r.Body)
			}
		})
		next := *testkit.DecodeReply[jobList](t,
			c.Do(t, "GET", "/v1/jobs?limit=1", "").WantStatus(t, 200)).NextCursor
		for _, query := range []string{"limit=0", "limit=101", "limit=-1", "limit=x", "limit=",
			"limit=1.5", "limit=99999999999999999999", "state=", "state=queued",
			"state=NOTHING", "cursor=", "cursor=x", "cursor=%00", "cursor=ajow",
			"cursor=" + next + "x", "cursor=azox"} {
			t.Run("FR-007 refused "+query, func(t *testing.T) { // G-X-19, G-FR-61
				c.Do(t, "GET", "/v1/jobs?"+query, "").WantError(t, 400, "RFA_JOB_VALIDATION_FAILED",
					query[:strings.IndexByte(query, '=')])
			})
		}
		t.Run("FR-006 given twice", func(t *testing.T) {
			c.Do(t, "GET", "/v1/jobs?limit=1&limit=2", "").WantError(t, 400,
				"RFA_REQUEST_MALFORMED", "limit")
		})
		t.Run("FR-007 a cursor of another list", func(t *testing.T) {
			for _, path := range []string{"/v1/webhooks", "/v1/clients/" + c.id + "/keys"} {
				c.Do(t, "GET", path+"?cursor="+next, "").WantError(t, 400,
					"RFA_JOB_VALIDATION_FAILED", "cursor")
			}
		})
	})
}
