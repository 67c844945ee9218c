package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/browser"
)

// attentions are the texts of what needs attention, with the page that each leads to.
const attentions = `Array.from(document.querySelectorAll("[data-live=attention] li"), li =>
	li.querySelector("a").getAttribute("href") + " " + li.textContent.replace(/\s+/g, " "))`

// TestConsoleOverview: CO-002: the overview shows charts over an hour, a day and a week, the ten
// queues that are worst by age and by failures, and what needs attention, each with a link: a queue
// that is paused with ready jobs, one for which nobody asks, a disabled webhook, a schedule whose
// jobs are refused and then missed.
func TestConsoleOverview(t *testing.T) {
	t.Parallel()
	onConsole(t, func(t *testing.T, w *consoleWorld) {
		w.wantCalm(t)
		hook := w.fillForgeRun(t)
		w.send(t, "POST", "/admin/v1/webhooks/"+hook+"/disable", "", 200)
		w.refuseTicks(t)
		w.ready(t, "nobody")
		w.ready(t, "nobody") // more than others have
		w.ready(t, "stopped")
		w.send(t, "PATCH", "/admin/v1/queues/taskflow/stopped", `{"paused":true}`, 200)
		for i := range 12 {
			w.failIn(t, fmt.Sprint("failing_", i))
			w.ready(t, fmt.Sprint("failing_", i))
		}
		for _, want := range []string{
			"/console/queues/taskflow/stopped attention queue taskflow/stopped is paused",
			// The others are alone too once nobody has asked for them for a while.
			"/console/queues(/taskflow/nobody|.order=age) attention .* (polls queue|worker:) " +
				"taskflow/nobody,",
			"/console/webhooks/" + hook + " attention a webhook is disabled",
			"/console/schedules/refused attention schedule refused cannot submit",
			"/console/schedules/refused attention schedule refused has missed",
		} {
			path := ""
			pollUntil(t.Fatalf, want, func() bool {
				w.Go(t, "/console")
				all := browser.Eval[[]string](t, w.Tab, attentions)
				at := slices.IndexFunc(all, regexp.MustCompile("^"+want).MatchString)
				if at >= 0 {
					path, _, _ = strings.Cut(all[at], " ")
				}
				return at >= 0
			})
			browser.Eval[int](t, w.Tab, `document.querySelectorAll("[data-live=attention] details")
				.forEach(more => more.open = true), 0`)
			w.Follow(t, `[data-live=attention] a[href="`+path+`"]`)
			if h := w.heading(t); h == "" || h == "Not found" {
				t.Errorf("CO-002 %s leads to %q", want, h)
			}
		}
		testkit.WaitUntil(t, "ten queues by failures", func() bool {
			w.Go(t, "/console")
			return browser.Eval[int](t, w.Tab,
				`document.querySelectorAll("[data-live=failing] [data-row]").length`) == 10
		})
		if n := browser.Eval[int](t, w.Tab,
			`document.querySelectorAll("[data-live=oldest] [data-row]").length`); n != 10 {
			t.Errorf("CO-002 %d queues by age", n)
		}
	}, "--set", "forgerun.duration_scale=0.01")
}

// wantCalm fails unless the overview of a new server has its charts over each time, and says that
// nothing needs attention.
func (w *consoleWorld) wantCalm(t *testing.T) {
	t.Helper()
	for _, length := range []string{"1h", "24h", "7d"} {
		w.Go(t, "/console")
		w.Follow(t, `.tabs a[href="/console?range=`+length+`"]`)
		got := browser.Eval[[]string](t, w.Tab, `Array.from(document.querySelectorAll(
			"figcaption"), f => f.firstChild.textContent.trim())`)
		want := []string{"Jobs a minute", "Failures a minute", "Wait until the start", "Run",
			"Ready jobs", "Requests a minute"}
		if !slices.Equal(got, want) {
			t.Errorf("CO-002 over %s there are the charts %q", length, got)
		}
	}
	testkit.WaitUntil(t, "a new server that needs no attention", func() bool {
		w.Go(t, "/console") // its workers may begin later than its pages
		return strings.Contains(w.Text(t, "[data-live=attention]"), "Nothing")
	})
}

// refuseTicks makes a schedule whose jobs are refused, as they depend on one that is gone.
func (w *consoleWorld) refuseTicks(t *testing.T) {
	t.Helper()
	var gone struct{ ID string }
	answer := w.send(t, "POST", "/api/v1/jobs", `{"name":"gone","queue":"gone"}`, 201)
	if err := json.Unmarshal([]byte(answer), &gone); err != nil {
		t.Fatal(err)
	}
	w.send(t, "POST", "/admin/v1/schedules", fmt.Sprintf(`{"name":"refused","every":"1s",
		"paused":true,"contract":"taskflow","catch_up":"none",
		"request":{"name":"n","queue":"mail","dependencies":["%s"]}}`, gone.ID), 201)
	w.send(t, "DELETE", "/api/v1/jobs/"+gone.ID, "", 204)
	w.send(t, "POST", "/admin/v1/schedules/refused/resume", "", 200)
}

// failIn submits a job and fails it for good.
func (w *consoleWorld) failIn(t *testing.T, queue string) {
	t.Helper()
	w.ready(t, queue)
	for _, run := range w.claim(t, queue, 1, "w") {
		w.send(t, "POST", "/worker/v1/runs/"+run+"/fail", `{"error":"no","retryable":false}`, 200)
	}
}
