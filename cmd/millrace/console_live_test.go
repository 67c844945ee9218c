package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/browser"
)

// ready submits a job of TaskFlow.
func (w *consoleWorld) ready(t *testing.T, queue string) {
	t.Helper()
	w.send(t, "POST", "/admin/v1/jobs", fmt.Sprintf(
		`{"contract":"taskflow","request":{"name":"n","queue":"%s"}}`, queue), 201)
}

// countReads counts from now on how often the script has read the page.
func (w *consoleWorld) countReads(t *testing.T) {
	t.Helper()
	browser.Eval[int](t, w.Tab, `(() => { const read = window.fetch; window.reads = 0;
		window.fetch = (...of) => read(...of).then(answer => { window.reads++; return answer; });
		return 0 })()`)
}

// hide tells the script that the page is hidden, or that it is seen.
func (w *consoleWorld) hide(t *testing.T, hidden bool) {
	t.Helper()
	browser.Eval[int](t, w.Tab, fmt.Sprintf(`(() => { Object.defineProperty(document, "hidden",
		{ configurable: true, get: () => %t });
		document.dispatchEvent(new Event("visibilitychange")); return 0 })()`, hidden))
}

// TestConsoleLive: CO-001: a page shows what others do without a reload, by one stream of events;
// while it is paused or hidden it is not read, and then shows what has happened meanwhile; the end
// of the session ends it too.
func TestConsoleLive(t *testing.T) {
	t.Parallel()
	onConsole(t, func(t *testing.T, w *consoleWorld) {
		const shown = `document.querySelector("dd.big").textContent`
		w.ready(t, "mail")
		testkit.WaitUntil(t, "the stream of the page before", func() bool {
			return w.Requests("/admin/v1/events") > 0
		})
		before := w.Requests("/admin/v1/events")
		w.Go(t, "/console/queues/taskflow/mail")
		w.ready(t, "mail")
		w.WaitFor(t, shown+` === "2"`)
		w.wantStreams(t, before+1)
		for _, pause := range []struct {
			name  string
			begin func()
			end   func()
		}{
			{"paused", func() { w.Click(t, "[data-live-pause]") },
				func() { w.Click(t, "[data-live-pause]") }},
			{"hidden", func() { w.hide(t, true) }, func() { w.hide(t, false) }},
		} {
			pause.begin()
			was := browser.Eval[string](t, w.Tab, shown)
			w.countReads(t)
			w.ready(t, "mail")
			if got := browser.Eval[string](t, w.Tab, shown); got != was {
				t.Errorf("while %s it shows %s, before %s", pause.name, got, was)
			}
			if n := browser.Eval[int](t, w.Tab, "window.reads"); n != 0 {
				t.Errorf("while %s it was read %d times", pause.name, n)
			}
			streams := w.Requests("/admin/v1/events")
			pause.end()
			w.WaitFor(t, shown+" > "+was)
			w.wantStreams(t, streams+1)
		}
		w.Go(t, "/console/queues")
		browser.Eval[int](t, w.Tab, `fetch("/console/logout", { method: "POST" }), 0`)
		w.WaitFor(t, `document.querySelector("h1")?.textContent === "Log in"`)
	})
}

// wantStreams waits until the pages have opened so many streams, and fails the test if there are
// more.
func (w *consoleWorld) wantStreams(t *testing.T, want int) {
	t.Helper()
	testkit.WaitUntil(t, "the stream of the page", func() bool {
		return w.Requests("/admin/v1/events") >= want
	})
	if n := w.Requests("/admin/v1/events"); n > want {
		t.Errorf("the pages have opened %d streams, want %d", n, want)
	}
}

// TestConsoleStill: CO-003: in each list that fills by itself, what is under the pointer stays as
// it is, however much the server tells, until the pointer leaves it.
func TestConsoleStill(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, w *consoleWorld) {
		w.failIn(t, "failed_before")
		for _, list := range []struct {
			path, text string // what appears there
			change     func()
		}{
			{"queues", "a_queue_before_all", func() { w.ready(t, "a_queue_before_all") }},
			{"jobs", "a_queue_of_new_jobs", func() { w.ready(t, "a_queue_of_new_jobs") }},
			{"workers", "a_worker_before_all", func() {
				w.ready(t, "worked_on")
				w.claim(t, "worked_on", 1, "a_worker_before_all")
			}},
			{"dead-letters", "failed_later", func() { w.failIn(t, "failed_later") }},
			{"dead-letters/list", "failed_last", func() { w.failIn(t, "failed_last") }},
		} {
			w.wantStill(t, "/console/"+list.path, list.text, list.change)
		}
	})
}

// wantStill fails unless the rows of a page stay as they are while the pointer is on them, after a
// change that makes a text appear when it leaves them.
func (w *consoleWorld) wantStill(t *testing.T, path, text string, change func()) {
	t.Helper()
	w.Point(t, 5, 5)
	w.Go(t, path)
	const rows = `document.querySelector("[data-row]").closest("[data-live]")`
	place := browser.Eval[[]float64](t, w.Tab, `(() => {
		const box = document.querySelector("[data-row]").getBoundingClientRect();
		return [box.x + 20, box.y + 10] })()`)
	w.Point(t, place[0], place[1])
	w.WaitFor(t, rows+`.matches(":hover")`)
	browser.Eval[int](t, w.Tab, "window.held = "+rows+".querySelector('[data-row]'), 0")
	change()
	appears := fmt.Sprintf(`.includes(%q)`, text)
	w.WaitFor(t, "(pending.get("+rows+`) || "")`+appears)
	if browser.Eval[bool](t, w.Tab, rows+".textContent"+appears+
		" || !window.held.isConnected") {
		t.Errorf("CO-003 rows of %s have moved under the pointer", path)
	}
	w.Point(t, 5, 5)
	w.WaitFor(t, rows+".textContent"+appears)
}

// TestConsoleTimes: CO-006: the script says how long ago things were in the words of the server.
func TestConsoleTimes(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, w *consoleWorld) {
		for seconds, want := range map[string]string{"-0.4": "now", "-59.9": "59 s ago",
			"-60": "1 min ago", "-3599": "59 min ago", "-172799": "47 h ago", "-172800": "2 d ago",
			"61": "in 1 min", "90000": "in 25 h"} {
			if got := browser.Eval[string](t, w.Tab, "relative("+seconds+")"); got != want {
				t.Errorf("%s seconds from now is %q, want %q", seconds, got, want)
			}
		}
	})
}

// TestConsoleGraphSpeed: CO-005: a graph of 2,000 jobs is drawn, of few and simple elements; how
// long that takes is printed.
func TestConsoleGraphSpeed(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, w *consoleWorld) {
		var jobs []string
		for i := range 2000 {
			needs := ""
			if i > 0 {
				needs = fmt.Sprintf(`"%d"`, (i-1)/3)
			}
			if i > 40 && i%7 == 0 {
				needs += fmt.Sprintf(`,"%d"`, i-40)
			}
			jobs = append(jobs, fmt.Sprintf(
				`{"ref":"%d","name":"step %[1]d","queue":"etl","depends_on":[%s]}`, i, needs))
		}
		w.send(t, "POST", "/api/v1/graphs", `{"jobs":[`+strings.Join(jobs, ",")+`]}`, 201)
		w.Go(t, "/console/jobs/1/graph")
		testkit.WaitUntil(t, "the load of the page", func() bool {
			return browser.Eval[float64](t, w.Tab,
				`performance.getEntriesByType("navigation")[0].loadEventEnd`) > 0
		})
		took := browser.Eval[[]float64](t, w.Tab, `(() => {
			const page = performance.getEntriesByType("navigation")[0];
			const paint = performance.getEntriesByName("first-contentful-paint")[0];
			return [page.responseStart, page.responseEnd, page.domContentLoadedEventEnd,
				paint ? paint.startTime : 0] })()`)
		t.Logf("a graph of 2,000 jobs, in ms after it was asked for: first byte %.0f, last byte %.0f, "+
			"ready %.0f, painted %.0f", took[0], took[1], took[2], took[3])
		if n := browser.Eval[int](t, w.Tab,
			`document.querySelectorAll(".dag a .box").length`); n != 2000 {
			t.Errorf("CO-005 the drawing has %d jobs", n)
		}
		if n := browser.Eval[int](t, w.Tab, `document.querySelectorAll(".dag *").length`); n > 10*2000 {
			t.Errorf("CO-005 the drawing has %d elements, more than ten of each job", n)
		}
		if n := browser.Eval[int](t, w.Tab,
			`document.querySelectorAll(".dag svg, .dag [clip-path]").length`); n != 0 {
			t.Errorf("CO-005 the drawing has %d parts that browsers lay out or cut by themselves", n)
		}
	})
}
