package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/browser"
)

// TestConsoleJob: CO-004: the page of a job says its state and why, shows its bodies formatted and
// folded, its error whole, what it depends on as links, and the actions that its state allows.
func TestConsoleJob(t *testing.T) {
	t.Parallel()
	onConsole(t, func(t *testing.T, w *consoleWorld) {
		w.send(t, "POST", "/api/v1/graphs", `{"jobs":[
			{"ref":"a","name":"first","queue":"etl","payload":{"to":{"n":1}}},
			{"ref":"b","name":"second","queue":"etl","depends_on":["a"]}]}`, 201)
		w.Go(t, "/console/jobs/2")
		w.wantTexts(t, ".why", "waits for others", "that it depends on", "Job 1")
		if got := w.actions(t); !slices.Equal(got, []string{"delete"}) {
			t.Errorf("CO-004 a job that waits allows %v", got)
		}
		w.Follow(t, `[data-live=timeline] th a[href="/console/jobs/1"]`)
		w.wantTexts(t, ".why", "READY")
		payload := browser.Eval[string](t, w.Tab,
			`document.querySelector("details.body[open] code").textContent`)
		if !strings.Contains(payload, "{\n") || !strings.Contains(payload, `"n": 1`) {
			t.Errorf("CO-004 the payload is not formatted: %q", payload)
		}
		w.Click(t, "details.body summary")
		w.WaitFor(t, `!document.querySelector("details.body").open`)
		failure := "first line\n" + strings.Repeat("of many ", 300) + "\nlast line"
		w.send(t, "POST", "/worker/v1/runs/"+w.claim(t, "etl", 1, "w")[0]+"/fail", fmt.Sprintf(
			`{"error":%s,"retryable":false}`, quote(t, failure)), 200)
		w.WaitFor(t, `document.querySelector(".why").textContent.includes("FAILED")`)
		if got := w.Text(t, ".failure pre"); got != failure {
			t.Errorf("CO-004 the error is not whole: %q", got)
		}
		if got := w.actions(t); !slices.Contains(got, "rerun") {
			t.Errorf("CO-004 a job that has failed allows %v", got)
		}
		w.wantTexts(t, "[data-live=timeline]", "attempt", "failed")
	})
}

// actions returns the names of the actions that the page of a job offers.
func (w *consoleWorld) actions(t *testing.T) []string {
	t.Helper()
	return browser.Eval[[]string](t, w.Tab, `Array.from(
		document.querySelectorAll("[data-live=actions] form"), f => f.action.split("/").pop())`)
}

// wantTexts fails unless a part of the page has all of some texts.
func (w *consoleWorld) wantTexts(t *testing.T, part string, texts ...string) {
	t.Helper()
	got := browser.Eval[string](t, w.Tab, fmt.Sprintf("document.querySelector(%q).textContent", part))
	for _, want := range texts {
		if !strings.Contains(got, want) {
			t.Errorf("CO-004 %s has no %q: %.1000s", part, want, got)
		}
	}
}
