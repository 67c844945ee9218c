package admin_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/worker"
)

// scheduleState is a schedule as it is answered.
type scheduleState struct {
	Name, Contract, Overlap string
	Cron, Every, Jitter     *string
	TimeZone                string `json:"time_zone"`
	CatchUp                 string `json:"catch_up"`
	Paused                  bool
	Request                 json.RawMessage
	Next                    []time.Time
	Latest                  *struct {
		Outcome string
		Job     *int64
	}
}

// send sends a body to a path of schedules.
func (w *jobsWorld) send(t *testing.T, method, path, body string) testkit.Reply {
	t.Helper()
	return w.do(t, w.api.Token(), method, "/admin/v1/schedules"+path, body, "Content-Type",
		"application/json")
}

const nightly = `"contract":"taskflow","request":{"name":"n","queue":"q"}`

// SC-001: schedules are made, listed, changed, paused, run and deleted, with entries of the audit.
func TestSchedules(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		made := testkit.DecodeReply[scheduleState](t, w.send(t, "POST", "", `{"name":"b.1",
			"cron":"30 2 * * *","time_zone":"Europe/Berlin",`+nightly+`}`).WantStatus(t, 201))
		if made.Overlap != "allow" || made.CatchUp != "last" || made.Paused ||
			string(made.Request) != `{"name":"n","queue":"q"}` || len(made.Next) != 1 {
			t.Errorf("SC-001 made %+v", made)
		}
		w.send(t, "POST", "", `{"name":"a","every":"90s",`+nightly+`,"jitter":"10s",
			"paused":true,"overlap":"skip","starts_at":"2026-04-01T00:00:00Z"}`).WantStatus(t, 201)
		w.send(t, "POST", "", `{"name":"a","every":"90s",`+nightly+`}`).WantError(t, 409,
			"CONFLICT", "name")
		all := get[struct {
			Items      []scheduleState
			NextCursor *string `json:"next_cursor"`
		}](t, w.world, "/admin/v1/schedules?limit=1")
		if len(all.Items) != 1 || all.Items[0].Name != "a" || all.NextCursor == nil {
			t.Errorf("SC-001 the first page is %+v", all)
		}
		next := get[scheduleState](t, w.world, "/admin/v1/schedules/b.1?next=30").Next
		if len(next) != 30 || next[29].Format(time.RFC3339) != "2026-03-31T00:30:00Z" ||
			next[27].Format(time.RFC3339) != "2026-03-29T01:00:00Z" {
			t.Errorf("SC-003 the next times are %v", next)
		}
		changed := testkit.DecodeReply[scheduleState](t, w.send(t, "PATCH", "/b.1",
			`{"every":"1m"}`).WantStatus(t, 200))
		if changed.Cron != nil || *changed.Every != "1m" {
			t.Errorf("SC-001 changed is %+v", changed)
		}
		w.send(t, "PATCH", "/b.1", `{"name":"c"}`).WantError(t, 400, "VALIDATION_ERROR", "name")
		w.send(t, "POST", "/a/resume", "").WantStatus(t, 200)
		paused := testkit.DecodeReply[scheduleState](t, w.send(t, "POST", "/a/pause",
			"").WantStatus(t, 200))
		ran := testkit.DecodeReply[jobState](t, w.send(t, "POST", "/a/run", "").WantStatus(t, 201))
		if !paused.Paused || ran.Contract != "taskflow" {
			t.Errorf("SC-001 paused %+v, ran %+v", paused, ran)
		}
		w.clock.Advance(time.Minute)
		w.tick(t)
		ticks := get[struct{ Items []struct{ Outcome string } }](t, w.world,
			"/admin/v1/schedules/b.1/ticks")
		if len(ticks.Items) != 1 || ticks.Items[0].Outcome != "submitted" {
			t.Errorf("SC-006 the ticks are %+v", ticks)
		}
		if s := get[scheduleState](t, w.world, "/admin/v1/schedules/b.1"); s.Latest == nil ||
			s.Latest.Job == nil {
			t.Errorf("SC-006 the latest tick is %+v", s.Latest)
		}
		w.send(t, "DELETE", "/b.1", "").WantStatus(t, 204)
		for _, path := range []string{"/b.1", "/b.1/ticks"} {
			w.send(t, "GET", path, "").WantError(t, 404, "NOT_FOUND")
		}
		w.send(t, "DELETE", "/b.1", "").WantError(t, 404, "NOT_FOUND")
		got := strings.Join(w.actions(t), " ")
		if want := "schedule.create schedule.create schedule.set schedule.resume schedule.pause " +
			"schedule.run schedule.delete"; got != want {
			t.Errorf("AD-006 the audit has %s", got)
		}
	})
}

// tick lets the schedules that are due run once.
func (w *jobsWorld) tick(t *testing.T) {
	t.Helper()
	jobs, err := w.engine.Claim(t.Context(), engine.ClaimRequest{Contract: schedule.Name, Max: 10,
		Worker: "w"})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		w.end(t, engine.Run{ID: j.ID, Run: j.Run},
			w.api.Schedules.Handle(context.Background(), &worker.Task{Job: j}))
	}
}

// SC-001, SC-002: what is wrong is named and changes nothing.
func TestSchedulesRefused(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.send(t, "POST", "", `{"name":"a","every":"1m",`+nightly+`}`).WantStatus(t, 201)
		for body, words := range map[string]string{
			`{}`: "name",
			`{"name":"ü","every":"1m",` + nightly + `}`:                                    "name",
			`{"name":1,"every":"1m",` + nightly + `}`:                                      "name",
			`{"name":"b",` + nightly + `}`:                                                 "cron or every",
			`{"name":"b","every":"1m","cron":"* * * * *",` + nightly + `}`:                 "only one",
			`{"name":"b","every":"60",` + nightly + `}`:                                    "every",
			`{"name":"b","every":"1ms",` + nightly + `}`:                                   "every",
			`{"name":"b","cron":"0 0 30 2 *",` + nightly + `}`:                             "never comes",
			`{"name":"b","cron":"0 0 L * *",` + nightly + `}`:                              "cron",
			`{"name":"b","cron":"@daily","time_zone":"Mars/X",` + nightly + `}`:            "time_zone",
			`{"name":"b","every":"1m","overlap":"no",` + nightly + `}`:                     "overlap",
			`{"name":"b","every":"1m","catch_up":"no",` + nightly + `}`:                    "catch_up",
			`{"name":"b","every":"1m","jitter":"25h",` + nightly + `}`:                     "jitter",
			`{"name":"b","every":"1m","ends_at":"2020-01-01T00:00:00Z",` + nightly + `}`:   "ends_at",
			`{"name":"b","every":"1m","starts_at":"monday",` + nightly + `}`:               "starts_at",
			`{"name":"b","every":"1m","paused":1,` + nightly + `}`:                         "paused",
			`{"name":"b","every":"1m","retries":1,` + nightly + `}`:                        "retries",
			`{"name":"b","every":"1m","contract":"no","request":{}}`:                       "taskflow",
			`{"name":"b","every":"1m","contract":"taskflow"}`:                              "request",
			`{"name":"b","every":"1m","contract":"taskflow","request":[]}`:                 "request",
			`{"name":"b","every":"1m","contract":"taskflow","request":{"queue":"q"}}`:      "name",
			`{"name":"b","every":"1m","job_type":"x",` + nightly + `}`:                     "job_type",
			`{"name":"b","every":"1m","contract":"forgerun","request":{"type":"EXECUTE"}}`: "owner",
		} {
			w.send(t, "POST", "", body).WantError(t, 400, "VALIDATION_ERROR", words)
			patch := strings.Replace(body, `"name":"b",`, "", 1)
			if patch != body && !strings.Contains(body, `"contract":"taskflow"}`) &&
				words != "cron or every" {
				w.send(t, "PATCH", "/a", patch).WantError(t, 400, "VALIDATION_ERROR", words)
			}
		}
		w.send(t, "GET", "/a?next=0", "").WantError(t, 400, "VALIDATION_ERROR", "next")
		w.send(t, "PATCH", "/none", `{"paused":true}`).WantError(t, 404, "NOT_FOUND")
		if s := get[scheduleState](t, w.world, "/admin/v1/schedules/a"); *s.Every != "1m" {
			t.Errorf("SC-001 a refused change left %+v", s)
		}
	})
}
