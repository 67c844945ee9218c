package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/browser"
)

// rows returns the numbers of the jobs that the list shows.
func (w *consoleWorld) rows(t *testing.T) []string {
	t.Helper()
	return browser.Eval[[]string](t, w.Tab,
		`Array.from(document.querySelectorAll("tbody tr"), r => r.querySelector("th a").textContent)`)
}

// query returns the query of the page's address without empty parameters.
func (w *consoleWorld) query(t *testing.T) string {
	t.Helper()
	q, err := url.ParseQuery(browser.Eval[string](t, w.Tab, "location.search.slice(1)"))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range q {
		if values[0] == "" {
			q.Del(name)
		}
	}
	return q.Encode()
}

// set gives a field of a form a value.
func (w *consoleWorld) set(t *testing.T, name, value string) {
	t.Helper()
	if !browser.Eval[bool](t, w.Tab, fmt.Sprintf(`(() => { const field = document.querySelector(
		'main [name="%s"]:not([type=hidden])'); field.value = %s; return field.value === %s })()`, name,
		quote(t, value), quote(t, value))) {
		t.Fatalf("the field %s does not take %q", name, value)
	}
}

// awaitOperation waits until the bulk operation of the page is done, and wants so many done.
func (w *consoleWorld) awaitOperation(t *testing.T, done string) {
	t.Helper()
	w.WaitFor(t, `location.pathname.startsWith("/console/bulk/") &&
		document.querySelector("[data-live=operation] .state").textContent.trim() === "done"`)
	if got := w.Text(t, "[data-live=operation] dd.big"); strings.TrimSpace(got) != done {
		t.Errorf("the operation has done %s, want %s", got, done)
	}
}

// TestConsoleJobs: CO-003: the filters of a list of jobs are its address; wrong ones are told in
// their field; jobs are counted by phase and state; they are marked and, after what would be done
// was shown, deleted, or all that match; what is marked stays while the list is live, and a pause
// holds it.
func TestConsoleJobs(t *testing.T) {
	t.Parallel()
	onConsole(t, func(t *testing.T, w *consoleWorld) {
		w.fill(t)
		w.Go(t, "/console")
		w.Follow(t, `nav a[href="/console/jobs"]`)
		if h := w.heading(t); h != "Jobs" {
			t.Fatalf("the list is %q", h)
		}
		w.set(t, "contract", "taskflow")
		w.set(t, "queue", "mail")
		w.set(t, "order", "oldest")
		w.Follow(t, ".filters button")
		if got := w.query(t); got != "contract=taskflow&order=oldest&queue=mail" {
			t.Errorf("AD-010 the address has %s", got)
		}
		if got := w.rows(t); len(got) != 12 || got[0] != "1" || got[11] != "12" {
			t.Errorf("AD-010 the list has %v", got)
		}
		w.Follow(t, `.tabs a[href*="phase=ready"]`)
		if got := w.query(t); got != "contract=taskflow&order=oldest&phase=ready&queue=mail" {
			t.Errorf("AD-010 the address has %s", got)
		}
		ready := w.rows(t)
		if len(ready) != 8 {
			t.Fatalf("AD-010 ready are %v", ready)
		}
		w.wantCounts(t)
		ready = w.rows(t)
		w.actOnMarked(t, ready[:2])
		w.Go(t, "/console/jobs?contract=taskflow&order=oldest&phase=ready&queue=mail")
		if got := w.rows(t); !slices.Equal(got, ready[2:]) {
			t.Errorf("after two were deleted there are %v of %v", got, ready)
		}
		w.Click(t, ".matching summary")
		w.choose(t, ".matching", "delete")
		if text := w.Text(t, ".note"); !strings.Contains(text, "9 jobs match") {
			t.Errorf("AD-020 the dry run of all says %s", text)
		}
		w.Follow(t, "form.panel button.main")
		w.awaitOperation(t, "9")
		w.wantWrongFilters(t)
		w.wantPages(t)
		w.send(t, "GET", "/console/jobs?nothing=1", "", http.StatusBadRequest)
	})
}

// wantCounts fails unless the tabs count the jobs, and the list changes while it is live, but not
// while somebody has marked a row, points at it or has paused it.
func (w *consoleWorld) wantCounts(t *testing.T) {
	t.Helper()
	const tabs = `Array.from(document.querySelectorAll(".tabs a"),
		a => a.textContent.trim().replace(/\s+/g, " ")).filter(text => !text.endsWith(" 0")).join()`
	const want = "all 12,ready 8,running 1,done 1,dead 2,COMPLETED 1,FAILED 2,READY 8,RUNNING 1"
	if got := browser.Eval[string](t, w.Tab, tabs); got != want {
		t.Errorf("AD-018 the tabs are %s, want %s", got, want)
	}
	w.Point(t, 5, 5)
	w.ready(t, "mail")
	w.WaitFor(t, `document.querySelectorAll("tbody tr").length === 9`)
	for _, hold := range []struct{ name, begin, end string }{
		{"marked", `document.querySelector("[name=mark]").click()`,
			`document.querySelector("[name=mark]").click()`},
		{"paused", `document.querySelector("[data-live-pause]").click()`,
			`document.querySelector("[data-live-pause]").click()`},
	} {
		rows := len(w.rows(t))
		browser.Eval[string](t, w.Tab, hold.begin+`; ""`)
		w.ready(t, "mail")
		if hold.name == "marked" {
			w.WaitFor(t, "pending.size > 0")
		}
		if n := len(w.rows(t)); n != rows {
			t.Errorf("%s: the list has %d rows, had %d", hold.name, n, rows)
		}
		browser.Eval[string](t, w.Tab, hold.end+`; ""`)
		w.WaitFor(t, fmt.Sprintf(`document.querySelectorAll("tbody tr").length === %d`, rows+1))
	}
	w.Go(t, "/console/jobs?contract=taskflow&order=oldest&phase=ready&queue=mail")
}

// choose chooses an action in a part of the page and follows its button.
func (w *consoleWorld) choose(t *testing.T, part, action string) {
	t.Helper()
	browser.Eval[int](t, w.Tab, fmt.Sprintf(
		`document.querySelector("%s [name=action]").value = %q, 0`, part, action))
	w.Follow(t, part+" button")
}

// actOnMarked deletes two jobs of the list, one marked by the keyboard.
func (w *consoleWorld) actOnMarked(t *testing.T, numbers []string) {
	t.Helper()
	const isShown = `document.querySelector(".act").checkVisibility()`
	if browser.Eval[bool](t, w.Tab, isShown) {
		t.Error("CO-003 nothing is marked, and the list offers to act on that")
	}
	const marked = `document.querySelectorAll("[name=mark]:checked").length === `
	w.Click(t, "[data-mark-all]")
	w.WaitFor(t, isShown+" && "+marked+`document.querySelectorAll("[name=mark]").length`)
	w.Click(t, "[data-mark-all]")
	w.WaitFor(t, marked+"0")
	w.Go(t, "/console/bulk/new?action=delete&of=marked")
	if text := w.Text(t, "main"); !strings.Contains(text, "no job is marked") {
		t.Errorf("nothing was marked: %s", text)
	}
	w.Go(t, "/console/jobs?contract=taskflow&order=oldest&phase=ready&queue=mail")
	testkit.WaitUntil(t, "the first row to have the focus", func() bool {
		w.Press(t, "k")
		return browser.Eval[bool](t, w.Tab, `document.activeElement.matches("[data-row]")`)
	})
	w.Press(t, "x")
	w.Click(t, fmt.Sprintf(`input[name=mark][value="%s"]`, numbers[1]))
	w.choose(t, ".act", "delete")
	if text := w.Text(t, ".note"); !strings.Contains(text, "2 jobs match: 2 ready.") ||
		!strings.Contains(text, "Nothing has been changed") {
		t.Errorf("AD-020 the dry run says %s", text)
	}
	if got := w.rows(t); !slices.Equal(got, numbers) {
		t.Errorf("AD-020 the sample has %v, want %v", got, numbers)
	}
	for _, number := range numbers {
		w.send(t, "GET", "/admin/v1/jobs/"+number, "", http.StatusOK)
	}
	w.Follow(t, "form.panel button.main")
	w.awaitOperation(t, "2")
}

// wantWrongFilters fails unless wrong filters are told in the bar, which keeps what was typed.
func (w *consoleWorld) wantWrongFilters(t *testing.T) {
	t.Helper()
	const path = "/console/jobs?min_age=soon&state=SLEEPY&queue=mail&max_age=-1s"
	w.send(t, "GET", path, "", http.StatusBadRequest)
	w.Go(t, path)
	got := browser.Eval[[]string](t, w.Tab, `Array.from(document.querySelectorAll(".filters .field-error"),
		wrong => wrong.closest("label").querySelector("input").name + " " +
			wrong.textContent.split(";")[0])`)
	want := []string{"state state: no contract has the state SLEEPY",
		"min_age must be a duration such as 90m",
		"max_age must be a duration such as 90m"}
	if !slices.Equal(got, want) {
		t.Errorf("the bar says %q, want %q", got, want)
	}
	kept := browser.Eval[[]string](t, w.Tab, `["min_age", "state", "queue"].map(
		name => document.querySelector(".filters [name=" + name + "]").value)`)
	if !slices.Equal(kept, []string{"soon", "SLEEPY", "mail"}) {
		t.Errorf("the bar keeps %q", kept)
	}
	if !browser.Eval[bool](t, w.Tab, `document.querySelector(".filters details").open`) {
		t.Error("the wrong filters are folded")
	}
	w.Go(t, path+"&id="+url.QueryEscape(hostile))
	w.view(t, "", "-console-jobs-wrong")
	w.View(t, 1280, false)
}

// wantPages fails unless the pages of the list follow each other and have each job once.
func (w *consoleWorld) wantPages(t *testing.T) {
	t.Helper()
	w.Go(t, "/console/jobs")
	all := w.rows(t)
	w.Go(t, "/console/jobs?limit=2")
	var got []string
	for range all {
		got = append(got, w.rows(t)...)
		if !browser.Eval[bool](t, w.Tab, `document.querySelector("a[rel=next]") !== null`) {
			break
		}
		w.Follow(t, "a[rel=next]")
	}
	if len(all) < 5 || !slices.Equal(got, all) {
		t.Errorf("AD-010 the pages have %v, want %v", got, all)
	}
}

// TestConsoleJobsHidden: AD-005, G-AD-03: a token that does not see what jobs carry cannot search
// it, and a token that only reads marks nothing.
func TestConsoleJobsHidden(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, w *consoleWorld) {
		w.fill(t)
		read := func(path string) (int, string) {
			return sendTo(t, http.DefaultClient, "GET", w.url+path, "", "Authorization",
				"Bearer reader")
		}
		if status, page := read("/console/jobs?error=user"); status != http.StatusBadRequest ||
			!strings.Contains(page, "operator.read_payloads") {
			t.Errorf("G-AD-03 a search got %d", status)
		}
		status, page := read("/console/jobs?phase=dead&contract=taskflow")
		if status != 200 || strings.Count(page, "<tr data-row=") != 2 ||
			strings.Contains(page, "no such user") || strings.Contains(page, `name="mark"`) {
			t.Errorf("AD-005 the read token got %d %s", status, page)
		}
		if page := w.send(t, "GET", "/console/jobs?error=No+Such+User", "", 200); strings.Count(page,
			"<tr data-row=") != 2 {
			t.Error("AD-012 the operator does not find the error")
		}
	}, "--set", "operator.read_token=reader", "--set", "operator.read_payloads=false")
}

// TestConsoleTrace: CO-004: a job whose request had a trace links it, and others do not.
func TestConsoleTrace(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, w *consoleWorld) {
		const id = "0af7651916cd43dd8448eb211c80319c"
		const body = `{"name":"a","queue":"q"}`
		status, answer := sendTo(t, http.DefaultClient, "POST", w.url+"/api/v1/jobs", body,
			"Content-Type", "application/json", "Traceparent", "00-"+id+"-b7ad6b7169203331-01")
		if status != http.StatusCreated {
			t.Fatalf("got %d %s", status, answer)
		}
		w.send(t, "POST", "/api/v1/jobs", body, http.StatusCreated)
		const links = `Array.from(document.querySelectorAll("main a[rel~=external]"), a => a.href)`
		for path, want := range map[string][]string{"/console/jobs/1": {
			"https://traces.example.org/trace/" + id + "?from=millrace"}, "/console/jobs/2": {}} {
			w.Go(t, path)
			if got := browser.Eval[[]string](t, w.Tab, links); !slices.Equal(got, want) {
				t.Errorf("%s links %q, want %q", path, got, want)
			}
		}
	}, "--set", "telemetry.trace_url=https://traces.example.org/trace/{trace_id}?from=millrace")
}

// TestConsoleManifest: a manifest with its resources, from the list over its page to the job of a
// resource and back, with what was stored and what went wrong; hostile texts run nowhere.
func TestConsoleManifest(t *testing.T) {
	t.Parallel()
	source := newOrigin(t, func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/1") {
			http.Error(rw, "not here", http.StatusNotFound)
			return
		}
		rw.Header().Set("Content-Type", "text/x-"+strings.Repeat("long", 50))
		fmt.Fprint(rw, bodyOf(r.URL.Path))
	})
	onPostgres(t, func(t *testing.T, w *consoleWorld) {
		entries := make([]map[string]string, 3)
		for i := range entries {
			entries[i] = map[string]string{"id": fmt.Sprint("r", i, hostile[:60]),
				"url": fmt.Sprint(source.URL, "/", i)}
		}
		manifest, err := json.Marshal(map[string]any{"manifest_version": "v1",
			"metadata": map[string]string{}, "resources": entries})
		if err != nil {
			t.Fatal(err)
		}
		w.send(t, "POST", "/admin/v1/jobs", fmt.Sprintf(`{"contract":"fetchbox","owner":%s,
			"job_type":"default","request":%s}`, quote(t, "t<b>"), manifest), http.StatusCreated)
		testkit.WaitUntil(t, "the end of the manifest", func() bool {
			w.Go(t, "/console/manifests")
			return browser.Eval[bool](t, w.Tab, `document.querySelector("tbody tr") !== null &&
				document.querySelector("tbody tr").textContent.includes("failed") &&
				document.querySelector("progress").value === 2`)
		})
		if text := w.Text(t, "tbody tr"); !strings.Contains(text, "2 of 3") ||
			!strings.Contains(text, "t<b>") {
			t.Errorf("the list has %s", text)
		}
		w.Follow(t, "tbody th a")
		w.wantManifest(t, source.URL)
		w.Follow(t, "tbody th a")
		w.Follow(t, `main a[href^="/console/manifests/"]`)
		w.wantManifest(t, source.URL)
		w.set(t, "state", "dead")
		w.Follow(t, "form.bar button")
		if got := w.rows(t); len(got) != 1 {
			t.Errorf("dead are %v", got)
		}
		w.send(t, "GET", "/console/manifests/2", "", http.StatusNotFound) // a resource
		w.send(t, "GET", "/console/manifests?state=none", "", http.StatusBadRequest)
		w.visitAll(t, "/console/manifests", "/console/manifests/1")
	})
}

// wantManifest checks the page of the manifest of TestConsoleManifest.
func (w *consoleWorld) wantManifest(t *testing.T, source string) {
	t.Helper()
	if h := w.heading(t); !strings.HasPrefix(h, "Manifest ") {
		t.Fatalf("the page is %q", h)
	}
	got := browser.Eval[[]string](t, w.Tab, `Array.from(document.querySelectorAll("tbody tr"), r => [
		r.cells[1].innerText.split("\n")[1], r.cells[2].innerText, r.cells[4].innerText,
		r.cells[5].innerText !== ""].join("|"))`)
	want := []string{source + "/0|done|18 B|true", source + "/1|dead|–|false",
		source + "/2|done|18 B|true"}
	if !slices.Equal(got, want) {
		t.Errorf("the resources are %q, want %q", got, want)
	}
	if text := w.Text(t, "tbody"); !strings.Contains(text, "r1<script>") ||
		!strings.Contains(text, "404") {
		t.Errorf("the resources are %s", text)
	}
}

// visitAll looks at pages.
func (w *consoleWorld) visitAll(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		w.visit(t, "", path)
	}
	w.View(t, 1280, false)
}

// TestConsoleFiles: a picture is listed with its state, and its page shows what was made of it; the
// jobs of the file lead there; those who do not see what jobs carry get no picture.
func TestConsoleFiles(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, w *consoleWorld) {
		var job imageJob
		imageCall(t, w.url, "POST", "/images/v1/files", stripedJPEG(300, 200), 202, &job)
		imageCall(t, w.url, "POST", "/images/v1/files", []byte("no picture"), 202, nil)
		testkit.WaitUntil(t, "both files", func() bool {
			w.Go(t, "/console/files")
			return browser.Eval[string](t, w.Tab, `Array.from(document.querySelectorAll(
				"tbody .state"), s => s.textContent).sort().join()`) == "failed,ready"
		})
		w.WaitFor(t, `document.querySelector("img.thumb").naturalWidth > 0`)
		w.Go(t, "/console/jobs/1")
		w.Follow(t, `main a[href^="/console/files/"]`)
		if h := w.heading(t); !strings.Contains(h, job.FileID) {
			t.Errorf("the file is %q", h)
		}
		w.WaitFor(t, `Array.from(document.querySelectorAll(".pictures img"),
			i => i.naturalWidth).join() === "100,300"`)
		w.visitAll(t, "/console/files", "/console/files/"+job.FileID)
		path := "/console/files/" + job.FileID
		w.send(t, "GET", path+"/variants/7", "", http.StatusNotFound)
		w.send(t, "GET", "/console/files/none", "", http.StatusNotFound)
		for _, path := range []string{"/console/files", path, path + "/variants/100"} {
			status, page := sendTo(t, http.DefaultClient, "GET", w.url+path, "", "Authorization",
				"Bearer reader")
			isPicture := strings.HasSuffix(path, "100")
			if strings.Contains(page, "<img") || strings.Contains(page, "image/jpeg") ||
				(status == http.StatusForbidden) != isPicture {
				t.Errorf("AD-005 %s: the read token got %d %.2000s", path, status, page)
			}
		}
	}, "--set", "operator.read_token=reader", "--set", "operator.read_payloads=false", "--set",
		"images.sizes=100,400")
}

// TestConsoleDeadJobs: CO-003, AD-010: the list of dead jobs has those of Relay, which are gone but
// for their dead letters, and its tabs count them among the dead alone.
func TestConsoleDeadJobs(t *testing.T) {
	t.Parallel()
	onConsole(t, func(t *testing.T, w *consoleWorld) {
		w.fill(t)
		w.send(t, "POST", "/admin/v1/jobs", `{"contract":"relay",
			"request":{"id":"lost","queue":"lost","timeout":0,"max_retries":0,"payload":1}}`, 201)
		w.send(t, "GET", "/v2/queues/lost/jobs", "", 200)
		deadLetter := ""
		pollUntil(t.Fatalf, "the dead letter", func() bool {
			found := struct{ Items []struct{ Number int64 } }{}
			answer := w.send(t, "GET", "/admin/v1/dead-letters?contract=relay", "", 200)
			if err := json.Unmarshal([]byte(answer), &found); err != nil {
				t.Fatal(err)
			}
			if len(found.Items) > 0 {
				deadLetter = fmt.Sprint(found.Items[0].Number)
			}
			return deadLetter != ""
		})
		const tabs = `Array.from(document.querySelectorAll(".tabs a"),
			a => a.textContent.trim().replace(/\s+/g, " ")).filter(text => /^(all|dead) /.test(text)).join()`
		w.Go(t, "/console/jobs?contract=relay")
		if got := browser.Eval[string](t, w.Tab, tabs); !strings.HasSuffix(got, "dead 1") {
			t.Errorf("AD-018 the tabs are %s", got)
		}
		if got := w.rows(t); slices.Contains(got, deadLetter) {
			t.Errorf("AD-010 the list of all jobs has %v", got)
		}
		w.Follow(t, `.tabs a[href*="phase=dead"]`)
		// On a busy machine the bound of a page may end it before its first row; it is read again.
		w.WaitFor(t, `document.querySelector("tbody tr") !== null`)
		if got := w.rows(t); !slices.Equal(got, []string{deadLetter}) {
			t.Errorf("AD-010 dead are %v, want %s", got, deadLetter)
		}
		if text := w.Text(t, "tbody tr"); !strings.Contains(text, "gone") ||
			!strings.Contains(text, "no heartbeat") {
			t.Errorf("AD-011 the row says %s", text)
		}
		last := ""
		for j, err := range w.client.Admin().Jobs(t.Context(), client.AdminJobQuery{
			Filter: client.AdminFilter{Phases: []string{"dead"}}}) {
			if err != nil {
				t.Fatal(err)
			}
			last = fmt.Sprint(j.Number) // pages end by time
		}
		if last != deadLetter {
			t.Errorf("AD-010 the last of all that are dead is %s, want %s", last, deadLetter)
		}
		w.Follow(t, `tbody tr:last-child th a`)
		if got := w.heading(t); !strings.Contains(got, deadLetter) {
			t.Errorf("the page of a job that is gone is %q", got)
		}
	})
}
