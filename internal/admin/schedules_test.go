package admin_test

import (
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
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
	jobs, err := w.engine.Claim(t.Context(), engine.ClaimRequest{JobType: schedule.Name, Max: 10,
		Worker: "w"})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		o := w.api.Schedules.Handle(t.Context(), &worker.ClaimedJob{Job: j})
		_, err := w.engine.Finish(t.Context(), engine.Run{ID: j.ID, Run: j.Run}, o)
		if err != nil && !job.IsKind(err, job.RunLost) { // its submission has ended it
			t.Fatal(err)
		}
	}
}

// SC-002, SC-004: a request of ForgeRun with an idempotency key of its own, with which all times
// would be one job, is refused when the schedule is made or changed; else each time gives one.
func TestSchedulesOfForgeRun(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		const one = `"type":"EXECUTE","work_kind":"SUCCESS_FAST"`
		define := func(request string) string {
			return fmt.Sprintf(`{"name":"a","every":"1m","contract":"forgerun","owner":%q,
				"request":{%s}}`, w.client, request)
		}
		w.send(t, "POST", "", define(one+`,"idempotency_key":"k"`)).WantError(t, 400,
			"VALIDATION_ERROR", "idempotency_key")
		w.send(t, "GET", "/a", "").WantStatus(t, 404)
		w.send(t, "POST", "", define(one+`,"idempotency_key":null`)).WantStatus(t, 201)
		w.send(t, "PATCH", "/a", `{"request":{`+one+`,"idempotency_key":"k"}}`).WantError(t, 400,
			"VALIDATION_ERROR", "idempotency_key")
		for n := 1; n <= 3; n++ {
			w.clock.Advance(time.Minute)
			testkit.RunMaintenance(t, w.engine)
			w.tick(t)
			w.tick(t) // nothing is due
			if got := get[struct{ Items []jobState }](t, w.world,
				"/admin/v1/jobs?contract=forgerun").Items; len(got) != n {
				t.Fatalf("SC-004 %d times have made %+v", n, got)
			}
		}

		// A submission of an operator has one key, in its request or beside it.
		const owned = `,"owner":"CLIENT"`
		both := strings.ReplaceAll(owned, "CLIENT", w.client) + `,"idempotency_key":"k"`
		w.do(t, w.api.Token(), "POST", "/admin/v1/jobs", `{"contract":"forgerun","request":{`+one+
			`,"idempotency_key":"own"}`+both+`}`, "Content-Type", "application/json").WantError(t,
			400, "VALIDATION_ERROR", "idempotency_key")
		first := w.submitJob(t, "forgerun", `{`+one+`}`, both)
		if again := w.submitJob(t, "forgerun", `{`+one+`}`, both); again.Number != first.Number {
			t.Errorf("AD-017 one key made jobs %d and %d", first.Number, again.Number)
		}
	})
}

// SC-001, SC-002: what is wrong is named and changes nothing.
func TestSchedulesRefused(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.send(t, "POST", "", `{"name":"a","every":"1m",`+nightly+`}`).WantStatus(t, 201)
		for body, words := range map[string]string{
			`{}`:             "names nothing",
			`{"every":"1m"}`: "name",
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
			`{"name":"b","every":"1m","jitter":"61s",` + nightly + `}`:                     "0s to 1m",
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
		for body, words := range map[string]string{`{}`: "names nothing", `{"name":""}`: "name",
			`{"name":"a"}`: "name", `{"every":"1m","every":"2m"}`: "twice"} {
			w.send(t, "PATCH", "/a", body).WantError(t, 400, "VALIDATION_ERROR", words)
		}
		w.send(t, "GET", "/a?next=0", "").WantError(t, 400, "VALIDATION_ERROR", "next")
		w.send(t, "PATCH", "/none", `{"paused":true}`).WantError(t, 404, "NOT_FOUND")
		if s := get[scheduleState](t, w.world, "/admin/v1/schedules/a"); *s.Every != "1m" {
			t.Errorf("SC-001 a refused change left %+v", s)
		}
	})
}

// SC-001, CO-002: the form of a schedule sets what was changed on it alone, so that what others
// have changed since it was opened stays: their pause too.
func TestScheduleFormKeepsOthersChanges(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.send(t, "POST", "", `{"name":"a","cron":"0 3 * * *",`+nightly+`}`).WantStatus(t, 201)
		session := with(w.login(t, "token="+w.api.Token()))
		const path = "/console/schedules/a/edit"
		page := w.Do(t, "GET", path, "", session...).WantStatus(t, 200).Body
		shown := url.Values{}
		for _, f := range confirmFields.FindAllStringSubmatch(page, -1) {
			name, found := strings.CutPrefix(f[1], "shown_")
			if !found {
				t.Fatalf("the form has a hidden %s", f[1])
			}
			shown.Set(f[1], html.UnescapeString(f[2]))
			if name != "paused" {
				shown.Set(name, strings.ReplaceAll(html.UnescapeString(f[2]), "\n", "\r\n"))
			}
		}
		save := func(status int, pairs ...string) scheduleState {
			t.Helper()
			form := maps.Clone(shown)
			for i := 0; i < len(pairs); i += 2 {
				form.Set(pairs[i], pairs[i+1])
			}
			w.form(t, path, form.Encode(), session...).WantStatus(t, status)
			return get[scheduleState](t, w.world, "/admin/v1/schedules/a")
		}
		w.send(t, "PATCH", "/a", `{"paused":true,"time_zone":"Europe/Berlin",
			"request":{"name":"m","queue":"q"}}`).WantStatus(t, 200)
		if s := save(303, "jitter", "5m"); !s.Paused || s.TimeZone != "Europe/Berlin" ||
			*s.Jitter != "5m" || !strings.Contains(string(s.Request), `"m"`) {
			t.Errorf("SC-001 the form has undone what others did: %+v", s)
		}
		save(303)
		save(400, "every", "15m") // and cron is there still
		if s := save(303, "cron", "", "every", "15m", "paused", "true"); s.Cron != nil ||
			*s.Every != "15m" || !s.Paused {
			t.Errorf("SC-001 the form made %+v", s)
		}
		shown.Set("shown_paused", "true")
		if s := save(303); s.Paused {
			t.Errorf("SC-001 the form has not resumed %+v", s)
		}
		if got := w.audit(t, "?action=schedule.set").Items; len(got) != 4 {
			t.Errorf("AD-006 the audit has %+v", got)
		}
	})
}

// CO-002: the overview finds the schedule that has missed its time among any number of others.
func TestMissedScheduleOfMany(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		for i := range 501 {
			w.send(t, "POST", "", fmt.Sprintf(`{"name":"a%d","every":"1h","paused":true,%s}`, i,
				nightly)).WantStatus(t, 201)
		}
		w.send(t, "POST", "", `{"name":"z","every":"1h","catch_up":"none",`+nightly+`}`).
			WantStatus(t, 201)
		missed := func() bool {
			t.Helper()
			page := w.do(t, w.api.Token(), "GET", "/console", "").WantStatus(t, 200).Body
			return strings.Contains(page, "schedule z has missed its latest time")
		}
		if missed() {
			t.Error("CO-002 a schedule has missed its time before it came")
		}
		w.clock.Advance(5 * time.Hour)
		testkit.RunMaintenance(t, w.engine)
		w.tick(t)
		if !missed() {
			t.Error("CO-002 the overview shows no schedule that has missed its time")
		}
	})
}
