package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/browser"
)

// fillGraph submits jobs 1 to 5, in which a path of four and a shortcut lead from the first to the
// last, with hostile names; job 6 depends on none. Job 1 is done, and job 4, of a branch, failed.
func (w *consoleWorld) fillGraph(t *testing.T) {
	t.Helper()
	name := quote(t, "n"+hostile)
	one := func(ref, dependencies string) string {
		return fmt.Sprintf(`{"ref":"%s","name":%s,"queue":"etl","depends_on":[%s]}`, ref, name,
			dependencies)
	}
	w.send(t, "POST", "/api/v1/graphs", `{"jobs":[`+strings.Join([]string{one("extract", ""),
		one("clean", `"extract"`), one("load", `"clean"`), one("audit", `"extract"`),
		one("report", `"load","extract"`)}, ",")+`]}`, 201)
	w.send(t, "POST", "/api/v1/jobs", `{"name":"alone","queue":"other"}`, 201)
	w.claimGraph(t, 1, "complete", `{"result":{}}`)
	w.claimGraph(t, 2, "fail", `{"error":"no","retryable":false}`)
}

// claimGraph claims the n jobs of the graph that are ready and ends the run of the last.
func (w *consoleWorld) claimGraph(t *testing.T, n int, verb, body string) {
	t.Helper()
	var claimed struct {
		Jobs []struct {
			RunID string `json:"run_id"`
		}
	}
	answer := w.send(t, "POST", "/worker/v1/claims",
		`{"contract":"taskflow","queues":["etl"],"max":9,"worker":"w"}`, 200)
	if err := json.Unmarshal([]byte(answer), &claimed); err != nil || len(claimed.Jobs) != n {
		t.Fatalf("claimed %s: %v", answer, err)
	}
	w.send(t, "POST", "/worker/v1/runs/"+claimed.Jobs[n-1].RunID+"/"+verb, body, 200)
}

// TestConsoleGraph: a link of the job leads to its graph: layers from left to right, a mark and a
// word for each state, the critical path, hostile names of which nothing runs, and the same as a
// table; a job alone has none; in light and dark, and at 360 pixels.
func TestConsoleGraph(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, w *consoleWorld) {
		w.fillGraph(t)
		w.Go(t, "/console/jobs/5")
		w.Follow(t, `main a[href$="/graph"]`)
		w.checkDrawing(t)
		w.checkZoom(t)
		w.checkTable(t)
		w.checkLive(t)
		for _, path := range []string{"/console/jobs/5/graph", "/console/jobs/6/graph"} {
			w.visit(t, "", path)
		}
		if text := w.Text(t, ".empty"); !strings.Contains(text, "depends on no other job") {
			t.Errorf("a job alone has %q", text)
		}
	})
}

// checkDrawing checks the drawing of the graph, of which job 5 is the current one.
func (w *consoleWorld) checkDrawing(t *testing.T) {
	t.Helper()
	got := browser.Eval[[]string](t, w.Tab, `Array.from(document.querySelectorAll(".dag a"), a => [
		a.getAttribute("href"), a.querySelector(".state").getAttribute("class"),
		a.querySelector(".word").textContent, a.querySelectorAll(".state > :not(text, .stripe)").length,
		a.querySelector(".box").getAttribute("class"), a.hasAttribute("aria-current")].join(" "))`)
	want := []string{"/console/jobs/1 state good COMPLETED 1 box critical false",
		"/console/jobs/2 state leased RUNNING 1 box critical false",
		"/console/jobs/3 state waiting PENDING 1 box critical false",
		"/console/jobs/4 state bad FAILED 1 box false",
		"/console/jobs/5 state waiting PENDING 1 box critical true"}
	if !slices.Equal(got, want) {
		t.Errorf("the drawing has\n%s\nwant\n%s", strings.Join(got, "\n"),
			strings.Join(want, "\n"))
	}
	x := browser.Eval[[]int](t, w.Tab,
		`Array.from(document.querySelectorAll(".dag .box"), r => r.getBoundingClientRect().x | 0)`)
	if x[0] >= x[1] || x[1] >= x[2] || x[2] >= x[4] || x[1] != x[3] {
		t.Errorf("jobs stand at %v", x)
	}
	if text := browser.Eval[string](t, w.Tab,
		`document.querySelector(".dag a text").textContent`); !strings.HasPrefix(text, "n<script>") {
		t.Errorf("a job is named %q", text)
	}
}

// checkZoom checks that buttons and wheel zoom, and that dragging moves the drawing, opens no link
// and leaves a click to open one.
func (w *consoleWorld) checkZoom(t *testing.T) {
	t.Helper()
	width := func() float64 {
		return browser.Eval[float64](t, w.Tab,
			`document.querySelector(".dag").getBoundingClientRect().width`)
	}
	natural := width()
	w.Click(t, `[data-zoom="1.25"]`)
	if got := width(); got < 1.2*natural || got > 1.3*natural {
		t.Errorf("larger: %f wide, before %f", got, natural)
	}
	left := browser.Eval[float64](t, w.Tab, `document.querySelector("[data-graph]").scrollLeft`)
	moved := browser.Eval[float64](t, w.Tab, `(() => {
		const frame = document.querySelector("[data-graph]"), job = frame.querySelector("a .box");
		const send = (kind, more) => job.dispatchEvent(new PointerEvent(kind, { bubbles: true,
			cancelable: true, pointerType: "mouse", pointerId: 1, ...more }));
		frame.setPointerCapture = () => {};
		send("pointerdown", { buttons: 1 });
		send("pointermove", { buttons: 1, movementX: 40 });
		send("pointerup", {});
		job.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
		return frame.scrollLeft;
	})()`)
	if left-moved != 40 {
		t.Errorf("dragged by 40 from %f to %f", left, moved)
	}
	browser.Eval[bool](t, w.Tab, `document.querySelector("[data-graph]").dispatchEvent(
		new WheelEvent("wheel", { ctrlKey: true, deltaY: 400, cancelable: true }))`)
	if got := width(); got > natural {
		t.Errorf("the wheel: %f wide, before %f", got, 1.25*natural)
	}
	w.Click(t, `[data-zoom="fit"]`)
	w.WaitFor(t, `document.querySelector("[data-graph]").scrollWidth <=
		document.querySelector("[data-graph]").clientWidth + 1`)
	if h := w.heading(t); h != "Graph of job 5" {
		t.Errorf("dragging led to %q", h)
	}
}

// checkTable checks that the table has what the drawing has.
func (w *consoleWorld) checkTable(t *testing.T) {
	t.Helper()
	got := browser.Eval[[]string](t, w.Tab, `Array.from(document.querySelectorAll("tbody tr"), r => [
		r.cells[0], r.cells[1].querySelector("a"), r.cells[2], r.cells[3], r.cells[4]].map(
		c => c.textContent.trim()).join("|"))`)
	want := []string{"1|1|COMPLETED|yes|none", "2|2|RUNNING|yes|1", "2|4|FAILED|no|1",
		"3|3|PENDING|yes|2", "4|5|PENDING|yes|1 3"}
	if !slices.Equal(got, want) {
		t.Errorf("the table has %q, want %q", got, want)
	}
}

// checkLive checks that the drawing shows what others do, and stays zoomed.
func (w *consoleWorld) checkLive(t *testing.T) {
	t.Helper()
	const zoom = `document.querySelector("[data-graph]").style.getPropertyValue("--zoom")`
	before := browser.Eval[string](t, w.Tab, zoom)
	w.send(t, "POST", "/admin/v1/jobs/2/release", "", 200)
	w.WaitFor(t, `document.querySelector("#job-2 .word").textContent === "READY"`)
	if after := browser.Eval[string](t, w.Tab, zoom); before == "" || before != after {
		t.Errorf("the zoom was %q and is %q", before, after)
	}
}

// TestConsoleLargeGraph: AD-005: of a graph of more than 2,000 jobs the page shows the nearest and
// says so; those who do not see definitions see no names; without the script the drawing scrolls
// and has no buttons; a job that does not exist has no graph.
func TestConsoleLargeGraph(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, w *consoleWorld) {
		jobs := []string{`{"ref":"0","name":"secret-name","queue":"etl"}`}
		for i := 1; i <= 2000; i++ {
			jobs = append(jobs, fmt.Sprintf(
				`{"ref":"%d","name":"secret-name","queue":"etl","depends_on":["%d"]}`, i, i-1))
		}
		w.send(t, "POST", "/api/v1/graphs", `{"jobs":[`+strings.Join(jobs, ",")+`]}`, 201)
		const path = "/console/jobs/1/graph"
		page := w.send(t, "GET", path, "", 200)
		if n := strings.Count(page, "<tr data-row>"); n != 2000 ||
			strings.Count(page, `<a id="job-`) != 2000 ||
			!strings.Contains(page, "here are the 2\u202f000 nearest to job 1.") {
			t.Errorf("of 2,001 jobs the table has %d", n)
		}
		_, blind := sendTo(t, http.DefaultClient, "GET", w.url+path, "", "Authorization",
			"Bearer reader")
		if !strings.Contains(page, "secret-name") || strings.Contains(blind, "secret-name") ||
			strings.Count(blind, "<tr data-row>") != 2000 {
			t.Error("AD-005 names are seen by the wrong token")
		}
		w.send(t, "GET", "/console/jobs/9999/graph", "", 404)
		w.WithoutScripts(t)
		w.login(t)
		w.Go(t, path)
		if !browser.Eval[bool](t, w.Tab, `(() => {
			const frame = document.querySelector("[data-graph]");
			return frame.scrollWidth > frame.clientWidth && frame.tabIndex === 0 &&
				document.querySelector("[data-zooms]").hidden; })()`) {
			t.Error("without the script the drawing does not scroll")
		}
	}, "--set", "operator.read_token=reader", "--set", "operator.read_payloads=false")
}
