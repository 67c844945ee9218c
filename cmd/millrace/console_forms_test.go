package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/browser"
)

// TestConsoleScheduleForm: a schedule is made by a form that keeps what was typed where it is
// wrong, shows the next times before anything is stored, and, without JavaScript, edits what is
// there; schedules with the names of steps of a path are reached by links like others.
func TestConsoleScheduleForm(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, w *consoleWorld) {
		w.Go(t, "/console/schedules")
		w.Follow(t, `main .head a[href$="~new"]`)
		w.fillSchedule(t)
		w.WithoutScripts(t)
		w.login(t)
		w.editSchedule(t)
		for _, name := range []string{".", "..", "new"} {
			w.send(t, "POST", "/admin/v1/schedules", fmt.Sprintf(`{"name":%q,"every":"1h",
				"contract":"taskflow","request":{"name":"a","queue":"q"}}`, name), http.StatusCreated)
		}
		w.Go(t, "/console/schedules")
		for _, name := range []string{".", "..", "new", "nightly"} {
			w.Follow(t, "tbody tr:first-child th a")
			if h := w.heading(t); h != name {
				t.Errorf("the link of %q leads to %q", name, h)
			}
			w.Follow(t, `main form[action$="/pause"] button`)
			if text := w.Text(t, "main .head"); !strings.Contains(text, "paused") {
				t.Errorf("%q is not paused: %s", name, text)
			}
			w.pressForm(t, `form[action$="/delete"]`)
		}
		if text := w.Text(t, ".empty"); !strings.Contains(text, "millrace schedules add") {
			t.Errorf("without schedules there is %s", text)
		}
		w.Go(t, "/console/audit?target=schedule:..")
		for _, action := range []string{"schedule.create", "schedule.pause", "schedule.delete"} {
			if text := w.Text(t, "tbody"); !strings.Contains(text, action) {
				t.Errorf("AD-006 there is no %s in %s", action, text)
			}
		}
	})
}

// fillSchedule makes a schedule by the form, after two tries that are wrong.
func (w *consoleWorld) fillSchedule(t *testing.T) {
	t.Helper()
	w.Type(t, "input[name=name]", "nightly")
	w.Type(t, "input[name=cron]", "0 0 30 2 *")
	w.set(t, "contract", "taskflow")
	w.Type(t, "textarea", `{"name":"report","queue":"mail"}`)
	w.Follow(t, "button[value=store]")
	if text := w.Text(t, "[role=alert]"); !strings.Contains(text, "cron") {
		t.Errorf("SC-002 the form says %s", text)
	}
	w.wantWrong(t, "cron", "cron names a time that never comes")
	if kept := browser.Eval[string](t, w.Tab, `document.querySelector("[name=cron]").value`); kept !=
		"0 0 30 2 *" {
		t.Errorf("SC-002 the form keeps %q", kept)
	}
	w.set(t, "jitter", "soon")
	w.set(t, "ends_at", "tomorrow")
	w.Follow(t, "button[value=look]")
	for _, field := range []string{"jitter", "ends_at"} {
		w.wantWrong(t, field, field+" must be ")
	}
	w.set(t, "jitter", "")
	w.set(t, "ends_at", "")
	w.set(t, "cron", "0 3 * * *")
	w.set(t, "request", `{"name":`)
	w.Follow(t, "button[value=store]")
	if text := w.Text(t, "[role=alert]"); !strings.Contains(text, "request") {
		t.Errorf("SC-002 the form says %s", text)
	}
	w.wantWrong(t, "request", "request must be the JSON object that the contract's own route takes")
	w.set(t, "request", `{"name":"report","queue":"mail"}`)
	w.set(t, "time_zone", "Europe/Berlin")
	w.set(t, "overlap", "skip")
	w.Follow(t, "button[value=look]")
	if n := browser.Eval[int](t, w.Tab, `document.querySelectorAll(".list time").length`); n != 5 {
		t.Errorf("SC-003 the form shows %d times", n)
	}
	if text := w.Text(t, ".list"); !strings.Contains(text, " 03:00:00 CE") {
		t.Errorf("SC-003 the times are not those of the time zone: %s", text)
	}
	w.send(t, "GET", "/admin/v1/schedules/nightly", "", http.StatusNotFound)
	w.Follow(t, "button[value=store]")
	if h := w.heading(t); h != "nightly" {
		t.Fatalf("the form leads to %q", h)
	}
	w.Go(t, "/console/schedules/~new")
	w.set(t, "name", "nightly")
	w.set(t, "every", "1h")
	w.set(t, "contract", "taskflow")
	w.set(t, "request", `{"name":"report","queue":"mail"}`)
	w.Follow(t, "button[value=store]")
	w.wantWrong(t, "name", "there is a schedule of this name")
}

// wantWrong fails unless a form says beside a field what is wrong with it.
func (w *consoleWorld) wantWrong(t *testing.T, field, want string) {
	t.Helper()
	got := browser.Eval[string](t, w.Tab, fmt.Sprintf(`(() => {
		const wrong = document.querySelector("[name=%s]").closest("label").querySelector(".field-error");
		return wrong ? wrong.textContent : "nothing" })()`, field))
	if !strings.HasPrefix(got, want) {
		t.Errorf("SC-002 beside %s stands %q, want %q", field, got, want)
	}
}

// TestConsoleScheduleExamples: the form for a schedule has an example of a request for each
// contract that takes schedules, and each example, with what is said beside it, is taken.
func TestConsoleScheduleExamples(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, w *consoleWorld) {
		var client struct {
			ID string `json:"client_id"`
		}
		if err := json.Unmarshal([]byte(w.send(t, "POST", "/v1/clients", "", 201)),
			&client); err != nil {
			t.Fatal(err)
		}
		w.WithoutScripts(t)
		w.login(t)
		w.Go(t, "/console/schedules/~new")
		examples := browser.Eval[[][2]string](t, w.Tab, `Array.from(document.querySelectorAll(
			".examples dl > div"), one => [one.querySelector("dt").textContent,
			one.querySelector("pre").textContent])`)
		contracts := browser.Eval[int](t, w.Tab,
			`document.querySelectorAll("[name=contract] option").length`)
		if len(examples) != contracts || contracts != 4 {
			t.Errorf("there are %d examples for %d contracts", len(examples), contracts)
		}
		for _, example := range examples {
			name, _, _ := strings.Cut(example[0], ",")
			name, _, _ = strings.Cut(name, " ")
			_, jobType, _ := strings.Cut(example[0], "with the job type ")
			jobType, _, _ = strings.Cut(jobType, " ")
			w.Go(t, "/console/schedules/~new")
			w.set(t, "name", "of-"+name)
			w.set(t, "every", "1h")
			w.set(t, "contract", name)
			w.set(t, "request", example[1])
			w.set(t, "job_type", jobType)
			if strings.Contains(example[0], "as the owner") {
				w.set(t, "owner", client.ID)
			}
			w.Follow(t, "button[value=store]")
			if h := w.heading(t); h != "of-"+name {
				t.Errorf("the example for %s is refused: %s", example[0], w.Text(t, "main .note"))
			}
		}
	})
}

// editSchedule changes the schedule by its form, without scripts.
func (w *consoleWorld) editSchedule(t *testing.T) {
	t.Helper()
	w.Go(t, "/console/schedules/nightly")
	w.Follow(t, `main a[href$="/edit"]`)
	w.Type(t, "input[name=every]", "15m")
	w.Follow(t, "button[value=store]")
	if text := w.Text(t, "[role=alert]"); !strings.Contains(text, "every") {
		t.Errorf("SC-001 the form says %s", text)
	}
	w.send(t, "PATCH", "/admin/v1/schedules/nightly",
		"{\"request\":{\"name\":\"re\u202eport\",\"queue\":\"mail\"}}", http.StatusOK)
	w.Go(t, "/console/schedules/nightly/edit")
	if text := browser.Eval[string](t, w.Tab, "document.querySelector('textarea').value"); !strings.
		Contains(text, `"re\u202eport"`) {
		t.Errorf("CO-008 the form hides what the request has: %q", text)
	}
	w.Click(t, "input[name=paused]")
	w.Type(t, "input[name=jitter]", "5m")
	w.Follow(t, "button[value=store]")
	var got struct {
		Cron, Jitter, Overlap string
		Zone                  string `json:"time_zone"`
		Paused                bool
		Request               struct{ Queue string }
	}
	answer := w.send(t, "GET", "/admin/v1/schedules/nightly", "", http.StatusOK)
	if err := json.Unmarshal([]byte(answer), &got); err != nil || got.Cron != "0 3 * * *" ||
		got.Jitter != "5m" || !got.Paused || got.Zone != "Europe/Berlin" || got.Overlap != "skip" ||
		got.Request.Queue != "mail" {
		t.Errorf("SC-001 the schedule is %s: %v", answer, err)
	}
	w.Go(t, "/console/schedules/nightly")
	w.Follow(t, `main form[action$="/resume"] button`)
}

// TestConsoleWebhookForm (WH-001): a webhook of operators is changed by a form without JavaScript,
// which says what the API says of what is wrong and keeps it; its URL is not shown and stays where
// none is typed, and its new secret is shown once.
func TestConsoleWebhookForm(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, w *consoleWorld) {
		var made struct{ ID, Secret string }
		if err := json.Unmarshal([]byte(w.send(t, "POST", "/admin/v1/webhooks",
			`{"url":"http://127.0.0.1:9/in?key=hidden","events":["*.job.failed"],"kinds":["manifest"]}`,
			http.StatusCreated)), &made); err != nil {
			t.Fatal(err)
		}
		page := "/console/webhooks/" + made.ID
		w.WithoutScripts(t)
		w.login(t)
		w.Go(t, page)
		w.Follow(t, `main .head a[href$="/edit"]`)
		for field, wrong := range map[string]string{"events": "*.job.faild", "contracts": "taskfow",
			"max_in_flight": "many"} {
			w.Go(t, page+"/edit")
			w.set(t, field, wrong)
			w.Follow(t, "main form button.main")
			if text := w.Text(t, "[role=alert]"); !strings.Contains(text, field) {
				t.Errorf("WH-001 of %s the form says %s", field, text)
			}
			kept := browser.Eval[string](t, w.Tab, `document.querySelector("[name=`+field+`]").value`)
			if kept != wrong {
				t.Errorf("WH-001 the form keeps %q of %s", kept, field)
			}
		}
		w.Go(t, page+"/edit")
		if text := w.Text(t, "main"); strings.Contains(text, "hidden") {
			t.Errorf("WH-001 the form shows %s", text)
		}
		w.set(t, "events", "*.job.failed, queue.*")
		w.set(t, "kinds", "")
		w.set(t, "contracts", "taskflow")
		w.set(t, "rate", "10")
		w.set(t, "rate_period", "1m")
		w.Click(t, "input[name=include_payload]")
		w.Follow(t, "main form button.main")
		got := w.send(t, "GET", "/admin/v1/webhooks/"+made.ID, "", http.StatusOK)
		for _, want := range []string{`"url":"http://127.0.0.1:9/in?…"`, `"rate":10`,
			`"events":["*.job.failed","queue.*"]`, `"kinds":[]`, `"contracts":["taskflow"]`,
			`"include_payload":true`, `"max_in_flight":4`, `"rate_period":"1m"`} {
			if !strings.Contains(got, want) {
				t.Errorf("WH-001 the webhook is %s, want %s", got, want)
			}
		}
		w.Follow(t, `main form[action$="/rotate-secret"] button`)
		if text := w.Text(t, "pre"); !strings.HasPrefix(text, "whsec_") || text == made.Secret {
			t.Errorf("WH-001 the new secret is %s", text)
		}
		w.Go(t, page)
		w.Follow(t, `main form[action$="/disable"] button`)
		w.Follow(t, `main form[action$="/enable"] button`)
	})
}

// TestConsoleQueueForms: limits of a queue that are wrong are told on its page, right ones are set;
// a queue is cleared after what would be deleted was shown.
func TestConsoleQueueForms(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, w *consoleWorld) {
		w.fill(t)
		w.Go(t, "/console/queues/taskflow/mail")
		w.set(t, "run_limit", "many")
		w.Follow(t, "form.panel button")
		if text := w.Text(t, "[role=alert]"); !strings.Contains(text, "run_limit") {
			t.Errorf("AD-031 the page says %s", text)
		}
		if h := w.heading(t); h != "mail" {
			t.Errorf("AD-031 the page is %q", h)
		}
		w.set(t, "run_limit", "3")
		w.set(t, "rate", "100")
		w.set(t, "rate_period", "1m")
		w.Follow(t, "form.panel button")
		got := browser.Eval[[]string](t, w.Tab, `["run_limit", "rate", "rate_period"].map(
			name => document.querySelector("[name=" + name + "]").value)`)
		if !slices.Equal(got, []string{"3", "100", "1m"}) {
			t.Errorf("AD-031 the limits are %q", got)
		}
		w.Follow(t, `main a[href$="/clear"]`)
		if text := w.Text(t, ".note"); !strings.Contains(text, "8 jobs match: 8 ready.") {
			t.Errorf("AD-033 the dry run says %s", text)
		}
		w.send(t, "GET", "/admin/v1/jobs/12", "", http.StatusOK)
		w.Follow(t, "form.panel button.main")
		w.awaitOperation(t, "8")
		w.send(t, "GET", "/admin/v1/jobs/12", "", http.StatusNotFound)
		w.Go(t, "/console/jobs?contract=taskflow&queue=mail")
		if got := w.rows(t); len(got) != 4 {
			t.Errorf("AD-033 there are left %v", got)
		}
		w.send(t, "GET", "/console/queues/images/process_file/clear", "", http.StatusConflict)
		w.send(t, "GET", "/console/queues/none/a/clear", "", http.StatusNotFound)
	})
}

// TestConsoleReplayAgain: AD-051: a dead letter that was replayed is replayed again on request.
func TestConsoleReplayAgain(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, w *consoleWorld) {
		w.fill(t)
		const list = "/console/dead-letters/list"
		w.Go(t, list)
		w.Follow(t, `tbody tr:first-child form[action$="/replay"] button`)
		first := browser.Eval[string](t, w.Tab, "location.pathname")
		w.Go(t, list)
		if text := w.Text(t, `tbody tr:first-child form[action$="/replay"] button`); text !=
			"Replay again" {
			t.Errorf("AD-051 the button says %q", text)
		}
		w.Follow(t, `tbody tr:first-child form[action$="/replay"] button`)
		second := browser.Eval[string](t, w.Tab, "location.pathname")
		if !strings.HasPrefix(second, "/console/jobs/") || first == second {
			t.Errorf("AD-051 replays lead to %s and %s", first, second)
		}
	})
}

// TestConsoleClientForms: AD-052, AD-053: an operator sets limits of a client and takes them back,
// and has deliveries of its webhook made again, one and all that were given up.
func TestConsoleClientForms(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, w *consoleWorld) {
		var fails atomic.Bool
		var received atomic.Int64
		receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter,
			_ *http.Request) {
			received.Add(1)
			if fails.Load() {
				rw.WriteHeader(http.StatusInternalServerError)
			}
		}))
		defer receiver.Close()
		var made struct {
			ClientID string `json:"client_id"`
			APIKey   string `json:"api_key"`
		}
		for _, step := range []func() string{
			func() string { return w.send(t, "POST", "/v1/clients", "", 201) },
			func() string {
				_, answer := sendTo(t, http.DefaultClient, "POST",
					w.url+"/v1/clients/"+made.ClientID+"/keys", "")
				return answer
			}} {
			if answer := step(); json.Unmarshal([]byte(answer), &made) != nil {
				t.Fatal(answer)
			}
		}
		w.setLimits(t, made.ClientID)
		status, answer := sendTo(t, http.DefaultClient, "POST", w.url+"/v1/webhooks", fmt.Sprintf(
			`{"url":%q,"events":["job_created"]}`, receiver.URL), "Authorization",
			"Bearer "+made.APIKey, "Content-Type", "application/json")
		if status != http.StatusCreated {
			t.Fatalf("the webhook: %d %s", status, answer)
		}
		fails.Store(true)
		w.send(t, "POST", "/admin/v1/jobs", fmt.Sprintf(`{"contract":"forgerun","owner":%q,
			"request":{"type":"EXECUTE","work_kind":"SUCCESS_FAST","payload":{}}}`, made.ClientID),
			http.StatusCreated)
		w.Go(t, "/console/clients/"+made.ClientID)
		w.Follow(t, `main a[href^="/console/webhooks"]`)
		w.Follow(t, "tbody th a")
		hook := browser.Eval[string](t, w.Tab, "location.pathname")
		testkit.WaitUntil(t, "the delivery to be given up", func() bool {
			w.Go(t, hook)
			return browser.Eval[bool](t, w.Tab,
				`(document.querySelector("tbody .state") || {}).textContent === "exhausted"`)
		})
		fails.Store(false)
		before := received.Load()
		w.Follow(t, `form[action$="/replay"].panel button`)
		w.awaitOperation(t, "1")
		testkit.WaitUntil(t, "the replay", func() bool { return received.Load() == before+1 })
		w.Go(t, hook)
		w.WaitFor(t, `document.querySelectorAll("tbody tr").length === 2`)
		w.Follow(t, `tbody tr:last-child form[action$="/replay"] button`) // it has been replayed
		replayed := w.heading(t)
		w.Go(t, hook)
		w.Follow(t, `tbody tr:first-child form[action$="/replay"] button`)
		testkit.WaitUntil(t, "the delivery", func() bool { return received.Load() == before+2 })
		if h := w.heading(t); !strings.HasPrefix(h, "Job ") || h == replayed {
			t.Errorf("AD-052 a replay leads to %q, a second one of a delivery to %q", h, replayed)
		}
		w.Go(t, "/console/audit?action=webhook.replay")
		if n := browser.Eval[int](t, w.Tab, `document.querySelectorAll("tbody tr").length`); n != 1 {
			t.Errorf("AD-006 the audit has %d replays of one delivery", n)
		}
	}, "--set", "webhook.max_tries=1")
}

// setLimits sets the limits of a client by its form, and takes one of them back.
func (w *consoleWorld) setLimits(t *testing.T, id string) {
	t.Helper()
	w.Go(t, "/console/clients")
	w.Follow(t, "tbody th a")
	w.set(t, "quota_per_day", "-5")
	w.Follow(t, "form.panel button")
	if text := w.Text(t, "[role=alert]"); !strings.Contains(text, "quota_per_day") {
		t.Errorf("AD-053 the page says %s", text)
	}
	w.set(t, "quota_per_day", "500")
	w.set(t, "rate_limit_per_minute", "0")
	w.Follow(t, "form.panel button")
	w.set(t, "rate_limit_per_minute", "")
	w.Follow(t, "form.panel button")
	var got struct {
		Quota int      `json:"quota_per_day"`
		Own   []string `json:"own_limits"`
	}
	answer := w.send(t, "GET", "/admin/v1/clients/"+id, "", http.StatusOK)
	if err := json.Unmarshal([]byte(answer), &got); err != nil || got.Quota != 500 ||
		!slices.Equal(got.Own, []string{"quota_per_day"}) {
		t.Errorf("AD-053 the client is %s: %v", answer, err)
	}
}
