package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/browser"
)

// button is a button of the console: the page on which it is, the fields of its form that are set
// before, and what the API then answers.
type button struct {
	page, form string
	fields     map[string]string
	path       string
	want       string // part of the answer; empty: there is none any more
	action     string // of the audit
	target     string // empty: that is not known before
}

// audited returns how many entries the audit has of what was done to a target, or to anything.
func (w *consoleWorld) audited(t *testing.T, action, target string) (n int) {
	t.Helper()
	var found struct{ Items []struct{ Refused *string } }
	query := url.Values{"action": {action}}
	if target != "" {
		query.Set("target", target)
	}
	answer := w.send(t, "GET", "/admin/v1/audit?"+query.Encode(), "", http.StatusOK)
	if err := json.Unmarshal([]byte(answer), &found); err != nil {
		t.Fatal(err)
	}
	for _, entry := range found.Items {
		if entry.Refused == nil || *entry.Refused == "" {
			n++
		}
	}
	return n
}

// asking are the actions whose buttons ask first, as what they do cannot be undone.
var asking = []string{"job.cancel", "job.delete", "dead_letter.discard", "inbox.discard",
	"client.revoke_key", "schedule.delete", "bulk.cancel"}

// pressForm presses the button of a form and waits for the page after it. It reports whether the
// button asks first: then the form is folded, and is unfolded here.
func (w *consoleWorld) pressForm(t *testing.T, form string) (asks bool) {
	t.Helper()
	asks = browser.Eval[bool](t, w.Tab, fmt.Sprintf(`(() => {
		const form = document.querySelector(%q), sure = form.closest("details.confirm");
		return sure !== null && !form.checkVisibility() &&
			sure.querySelector("summary").textContent.endsWith("…") })()`, "main "+form))
	if asks {
		w.Click(t, "main details.confirm:has("+form+") > summary")
		w.Screenshot(t, "asks"+strings.NewReplacer("/", "-", "\"", "").Replace(form))
	}
	w.Follow(t, "main "+form+" button")
	return asks
}

// pressButton presses a button and fails the test unless the API tells what was done, and the audit
// has one entry more.
func (w *consoleWorld) pressButton(t *testing.T, b *button) {
	t.Helper()
	before := w.audited(t, b.action, b.target)
	w.Go(t, b.page)
	for name, value := range b.fields {
		w.set(t, name, value)
	}
	if asks := w.pressForm(t, b.form); asks != slices.Contains(asking, b.action) {
		t.Errorf("CO-001 the button for %s of %s asks first: %t", b.action, b.target, asks)
	}
	testkit.WaitUntil(t, fmt.Sprintf("%s of %s: %q in %s", b.action, b.target, b.want, b.path),
		func() bool {
			status, answer := sendTo(t, http.DefaultClient, "GET", w.url+b.path, "", "Authorization",
				"Bearer secret")
			return (b.want == "" && status == http.StatusNotFound) ||
				(b.want != "" && status == http.StatusOK && strings.Contains(answer, b.want))
		})
	if n := w.audited(t, b.action, b.target) - before; n != 1 {
		t.Errorf("AD-006 the audit has %d entries more of %s of %s", n, b.action, b.target)
	}
}

// TestConsoleButtons: CO-001, AD-006: each button that changes something does what it says, and the
// audit has one entry of it: on one database with JavaScript, on the other one without.
func TestConsoleButtons(t *testing.T) {
	t.Parallel()
	onConsole(t, func(t *testing.T, w *consoleWorld) {
		all := w.jobButtons(t)
		all = append(all, w.queueButtons(t)...)
		all = append(all, w.deadLetterButtons(t)...)
		all = append(all, w.inboxButtons(t)...)
		all = append(all, w.workButtons(t)...)
		all = append(all, w.scheduleButtons(t)...)
		if w.store == "sqlite" {
			w.WithoutScripts(t)
			w.login(t)
		}
		for i := range all {
			w.pressButton(t, &all[i])
		}
		w.pressBulk(t)
	}, "--set", "forgerun.duration_scale=0.01", "--set", "webhook.max_tries=1")
}

// submit submits a job and returns its number.
func (w *consoleWorld) submit(t *testing.T, contract, request, more string) string {
	t.Helper()
	var made struct{ Number int64 }
	answer := w.send(t, "POST", "/admin/v1/jobs", fmt.Sprintf(`{"contract":%q,"request":%s%s}`,
		contract, request, more), http.StatusCreated)
	if err := json.Unmarshal([]byte(answer), &made); err != nil || made.Number == 0 {
		t.Fatalf("%s: %v", answer, err)
	}
	return fmt.Sprint(made.Number)
}

// taskFlow submits a job of TaskFlow and returns its number.
func (w *consoleWorld) taskFlow(t *testing.T, queue string) string {
	t.Helper()
	return w.submit(t, "taskflow", `{"name":"n","queue":"`+queue+`"}`, "")
}

// jobButtons are the buttons of jobs, webhooks and the client of both.
func (w *consoleWorld) jobButtons(t *testing.T) []button {
	t.Helper()
	hook := w.fillForgeRun(t)
	owner := w.firstOf(t, "/admin/v1/clients", "id")
	forge := func(kind string) string {
		return w.submit(t, "forgerun", `{"type":"EXECUTE","work_kind":"`+kind+`","payload":{}}`,
			`,"owner":"`+owner+`"`)
	}
	failed := forge("FAIL_IMMEDIATE")
	testkit.WaitUntil(t, "a job that has failed", func() bool {
		return strings.Contains(w.send(t, "GET", "/admin/v1/jobs/"+failed, "", 200), `"FAILED"`)
	})
	w.send(t, "PATCH", "/admin/v1/queues/forgerun/"+w.firstOf(t,
		"/admin/v1/jobs?contract=forgerun", "queue"), `{"paused":true}`, 200)
	on := func(number, action, path, want string) button {
		return button{page: "/console/jobs/" + number, form: `form[action$="/` + action + `"]`,
			path: path, want: want, action: "job." + action, target: "job:" + number}
	}
	job := func(number, action, want string) button {
		return on(number, action, "/admin/v1/jobs/"+number, want)
	}
	w.failIn(t, "again")
	released := w.taskFlow(t, "released")
	w.claim(t, "released", 1, "w")
	client := "/admin/v1/clients/" + owner
	webhook := func(action, path, want string) button {
		return button{page: "/console/webhooks/" + hook, form: `form[action$="/` + action + `"]`,
			path: path, want: want, action: "webhook." + action, target: "webhook:" + hook}
	}
	const disabled = "/admin/v1/webhooks?state=disabled"
	const enabled = "/admin/v1/webhooks?state=enabled"
	return []button{
		job(failed, "retry", `"state":"QUEUED"`),
		job(forge("SUCCESS_FAST"), "cancel", `"state":"CANCELED"`),
		on(w.firstOf(t, "/admin/v1/jobs?queue=again", "number"), "rerun",
			"/admin/v1/jobs?queue=again&state=READY", `"queue":"again"`),
		job(w.submit(t, "relay", `{"id":"later","queue":"later","timeout":60,"payload":{},
			"run_at":"2100-01-01T00:00:00Z"}`, ""), "run-now", `"phase":"ready"`),
		job(released, "release", `"phase":"ready"`),
		job(w.taskFlow(t, "deleted"), "delete", ""),
		webhook("disable", disabled, hook),
		webhook("enable", enabled, hook),
		webhook("test", enabled, hook),
		{page: "/console/webhooks/" + hook, form: `form[action$="/replay"]`,
			path: "/admin/v1/webhooks/" + hook + "/deliveries?state=exhausted",
			want: `"status":500`, action: "bulk.start"},
		{page: "/console/clients/" + owner, form: "form.panel", path: client,
			fields: map[string]string{"quota_per_day": "500"}, want: `"quota_per_day":500`,
			action: "client.set", target: "client:" + owner},
		{page: "/console/clients/" + owner, form: `form[action$="/revoke"]`, path: client,
			want: `"revoked_at":"2`, action: "client.revoke_key", target: "client:" + owner},
	}
}

// queueButtons are the buttons of a queue.
func (w *consoleWorld) queueButtons(t *testing.T) []button {
	t.Helper()
	w.send(t, "PATCH", "/admin/v1/queues/taskflow/held", `{"run_limit":3}`, 200)
	kept := w.taskFlow(t, "cleared")
	const page, target = "/console/queues/taskflow/held", "queue:taskflow/held"
	const list = "/admin/v1/queues?text=held"
	form := func(action string) string { return `form[action$="/` + action + `"]` }
	return []button{
		{page: page, form: form("pause"), path: list, want: `"paused":true`, action: "queue.set",
			target: target},
		{page: page, form: form("resume"), path: list, want: `"paused":false`, action: "queue.set",
			target: target},
		{page: page, form: form("reset"), path: list, want: `"run_limit":null`,
			action: "queue.reset", target: target},
		{page: "/console/queues/taskflow/cleared/clear", form: "form.panel",
			path: "/admin/v1/jobs/" + kept, action: "bulk.start"},
	}
}

// deadLetterButtons are the buttons of dead letters.
func (w *consoleWorld) deadLetterButtons(t *testing.T) []button {
	t.Helper()
	deadLetter := func(queue, action, want string) button {
		w.failIn(t, queue)
		id := w.firstOf(t, "/admin/v1/dead-letters?contract=taskflow&queue="+queue, "id")
		return button{page: "/console/dead-letters/list?contract=taskflow&queue=" + queue,
			form: `form[action$="/` + action + `"]`, path: "/admin/v1/dead-letters/" + id, want: want,
			action: "dead_letter." + action, target: "dead_letter:" + id}
	}
	return []button{deadLetter("replayed", "replay", `"replayed_at":"2`),
		deadLetter("discarded", "discard", "")}
}

// inboxButtons are the buttons of requests in the inbox, which SQLite does not have.
func (w *consoleWorld) inboxButtons(t *testing.T) (all []button) {
	t.Helper()
	if w.database == "" {
		return nil
	}
	for action, want := range map[string]string{"retry": `"error":"contract must`, "discard": ""} {
		id := w.refuse(t, action, "")
		all = append(all, button{page: "/console/inbox?state=refused&contract=" + action,
			form: `form[action$="/` + action + `"]`, path: "/admin/v1/inbox/" + id, want: want,
			action: "inbox." + action, target: "inbox:" + id})
	}
	return all
}

// workButtons are the buttons of workers and nodes.
func (w *consoleWorld) workButtons(t *testing.T) (all []button) {
	t.Helper()
	w.taskFlow(t, "worked")
	w.claim(t, "worked", 1, "drained")
	for kind, name := range map[string]string{"worker": "drained",
		"node": w.firstOf(t, "/admin/v1/nodes", "name")} {
		for _, action := range []string{"drain", "resume"} {
			all = append(all, button{page: "/console/workers",
				form: fmt.Sprintf(`form[action="/console/%ss/%s/%s"]`, kind, url.PathEscape(name),
					action),
				path: "/admin/v1/" + kind + "s", action: kind + "." + action,
				target: kind + ":" + name, want: fmt.Sprintf(`"draining":%t`, action == "drain")})
		}
	}
	return all
}

// scheduleButtons are the buttons of a schedule.
func (w *consoleWorld) scheduleButtons(t *testing.T) (all []button) {
	t.Helper()
	w.send(t, "POST", "/admin/v1/schedules", `{"name":"nightly","cron":"0 3 * * *",
		"contract":"taskflow","request":{"name":"n","queue":"scheduled"}}`, 201)
	const path = "/admin/v1/schedules/nightly"
	for _, b := range []struct{ name, path, want string }{
		{"run", "/admin/v1/jobs?queue=scheduled", `"queue":"scheduled"`},
		{"pause", path, `"paused":true`}, {"resume", path, `"paused":false`}, {"delete", path, ""},
	} {
		all = append(all, button{page: "/console/schedules/nightly", path: b.path, want: b.want,
			form: `form[action$="/` + b.name + `"]`, action: "schedule." + b.name,
			target: "schedule:nightly"})
	}
	return all
}

// pressBulk starts a slow bulk operation by its form, and presses its buttons.
func (w *consoleWorld) pressBulk(t *testing.T) {
	t.Helper()
	for range 150 { // a second each, so that it is not done before it is canceled
		w.taskFlow(t, "slow")
	}
	w.pressButton(t, &button{page: "/console/bulk/new?action=delete&queue=slow&rate=1",
		form: "form.panel", path: "/admin/v1/bulk", want: `"state":"running"`,
		action: "bulk.start"})
	id := w.firstOf(t, "/admin/v1/bulk", "bulk_id")
	for _, b := range [][2]string{{"pause", "paused"}, {"resume", "running"},
		{"cancel", "canceled"}} {
		w.pressButton(t, &button{page: "/console/bulk/" + id, form: `form[action$="/` + b[0] + `"]`,
			path: "/admin/v1/bulk/" + id, want: `"state":"` + b[1] + `"`, action: "bulk." + b[0],
			target: "bulk:" + id})
	}
}
