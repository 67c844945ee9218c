package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/browser"
)

// consoleWorld is a server of the real binary, and a browser for its console.
type consoleWorld struct {
	*launchedServer
	*browser.Tab
	client *client.Client // of the operator
}

// onConsole runs a test with a server on each database and a browser that has logged in by a
// one-time link.
func onConsole(t *testing.T, test func(t *testing.T, w *consoleWorld), args ...string) {
	t.Helper()
	run := func(name string, store func(t *testing.T) []string) {
		t.Run(name, func(t *testing.T) {
			s := launchNode(t, "data", append(append(store(t), "--set", "operator.token=secret"),
				args...)...)
			c, err := client.New(client.Config{BaseURL: s.url, Token: "secret"})
			if err != nil {
				t.Fatal(err)
			}
			w := &consoleWorld{launchedServer: s, Tab: browser.Open(t, s.url), client: c}
			w.login(t)
			test(t, w)
			w.Check(t)
		})
	}
	run("sqlite", func(*testing.T) []string { return nil })
	run("postgres", func(t *testing.T) []string { return []string{"--set", "store=" + pgtest.URL(t)} })
}

// login logs the browser in by a one-time link.
func (w *consoleWorld) login(t *testing.T) {
	t.Helper()
	code, err := w.client.Admin().CreateLoginCode(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.Go(t, code.Path)
	w.Follow(t, "main form button")
}

// heading returns the heading of the page, which has one.
func (w *consoleWorld) heading(t *testing.T) string {
	t.Helper()
	if n := browser.Eval[int](t, w.Tab, `document.querySelectorAll("h1").length`); n != 1 {
		t.Errorf("%s has %d headings", browser.Eval[string](t, w.Tab, "location.pathname"), n)
	}
	return strings.TrimSpace(w.Text(t, "h1"))
}

// TestConsoleLogin: AD-001, AD-003: without a session each page is the login page; a one-time link
// logs in once; every page of the navigation is there; the logout ends it.
func TestConsoleLogin(t *testing.T) {
	t.Parallel()
	onConsole(t, func(t *testing.T, w *consoleWorld) {
		links := browser.Eval[[]string](t, w.Tab,
			`Array.from(document.querySelectorAll("nav a"), a => a.getAttribute("href"))`)
		if len(links) < 4 {
			t.Fatalf("the navigation has %v", links)
		}
		for _, link := range links {
			w.Go(t, link)
			if h := w.heading(t); h == "" || h == "Log in" || h == "Not found" {
				t.Errorf("%s is %q", link, h)
			}
		}
		w.Follow(t, ".who button")
		for _, path := range append(links, "/console/nothing") {
			w.Go(t, path)
			if h := w.heading(t); h != "Log in" {
				t.Errorf("AD-001 %s without a session is %q", path, h)
			}
		}
	}, "--set", "contracts=relay")
}

// hostile is a text that would run, turn or fill a page that does not escape and bound it.
const hostile = "<script>document.title='run'</script>\"'><img src=x onerror=\"document.title='run'\">" +
	"\u202e\u200f\u2067{{.}} \u0007"

// hostileBody is a hostile text with a NUL and a word as long as a payload may have it.
var hostileBody = hostile + "\x00" + strings.Repeat("w", 65000)

// send sends JSON to the server as the operator and returns the answer.
func (w *consoleWorld) send(t *testing.T, method, path, body string, want int) string {
	t.Helper()
	status, answer := sendTo(t, http.DefaultClient, method, w.url+path, body, "Authorization",
		"Bearer secret", "Content-Type", "application/json")
	if status != want {
		t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
	return answer
}

// quote returns a text as JSON.
func quote(t *testing.T, text string) string {
	t.Helper()
	raw, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// fill gives each page something to show: jobs that wait, run, are done and were given up, with a
// hostile text wherever somebody else may write one.
func (w *consoleWorld) fill(t *testing.T) {
	t.Helper()
	for i := range 12 {
		w.send(t, "POST", "/admin/v1/jobs", fmt.Sprintf(`{"contract":"taskflow",
			"request":{"name":%s,"queue":"mail","payload":{"to":%s,"n":%d}}}`,
			quote(t, hostile), quote(t, hostileBody), i), 201)
	}
	w.send(t, "POST", "/admin/v1/jobs", fmt.Sprintf(
		`{"contract":"relay","request":{"id":"1","queue":%s,"timeout":60,"payload":{}}}`, quote(t, hostile)), 201)
	var claimed struct {
		Jobs []struct {
			RunID string `json:"run_id"`
		}
	}
	answer := w.send(t, "POST", "/worker/v1/claims", fmt.Sprintf(
		`{"contract":"taskflow","queues":["mail"],"max":4,"worker":%s}`, quote(t, "w"+hostile)), 200)
	if err := json.Unmarshal([]byte(answer), &claimed); err != nil || len(claimed.Jobs) != 4 {
		t.Fatalf("claimed %s: %v", answer, err)
	}
	for _, j := range claimed.Jobs[:2] {
		w.send(t, "POST", "/worker/v1/runs/"+j.RunID+"/fail", fmt.Sprintf(
			`{"error":%s,"retryable":false}`, quote(t, "no such user "+hostileBody)), 200)
	}
	w.send(t, "POST", "/worker/v1/runs/"+claimed.Jobs[2].RunID+"/complete", fmt.Sprintf(
		`{"result":{"said":%s}}`, quote(t, hostileBody)), 200)
	w.send(t, "POST", "/admin/v1/schedules", fmt.Sprintf(`{"name":"nightly","cron":"0 3 * * *",
		"contract":"taskflow","request":{"name":%s,"queue":"mail"}}`, quote(t, hostile)), 201)
	w.send(t, "PATCH", "/admin/v1/queues/taskflow/reports", `{"paused":true}`, 200)
	w.send(t, "POST", "/admin/v1/bulk", `{"action":"delete","filter":{"queue":"none"}}`, 202)
	w.send(t, "POST", "/v1/clients", "", 201)
}

// consolePaths are pages that the navigation does not name, with queries that select something.
var consolePaths = []string{"/console/queues/taskflow/mail", "/console/queues/relay/none",
	"/console/dead-letters/list", "/console/schedules/nightly", "/console/queues?order=failures",
	"/console/bulk/new?action=delete&queue=mail", "/console/settings?text=lease&changed=",
	"/console?range=7d", "/console/audit?action=queue.set", "/console/login"}

// Each page that there is renders with nothing and with hostile text, of which nothing runs; in
// light and dark, and at 360 pixels, where no page is wider than the window; it has one heading,
// and asks no other origin for anything.
func TestConsolePages(t *testing.T) {
	t.Parallel()
	onConsole(t, func(t *testing.T, w *consoleWorld) {
		paths := append(browser.Eval[[]string](t, w.Tab,
			`Array.from(document.querySelectorAll("nav a"), a => a.getAttribute("href"))`),
			consolePaths...)
		for _, path := range paths {
			if !strings.Contains(path, "nightly") {
				w.visit(t, "empty", path)
			}
		}
		w.wantContracts(t)
		w.fill(t)
		paths = append(paths, "/console/jobs/1", "/console/jobs/4", "/console/jobs/12")
		for _, view := range []struct {
			name  string
			width int64
			dark  bool
		}{{"light", 1280, false}, {"dark", 1280, true}, {"narrow", 360, false}} {
			w.View(t, view.width, view.dark)
			for _, path := range paths {
				w.visit(t, view.name, path)
				if n := browser.Eval[int64](t, w.Tab,
					"document.documentElement.scrollWidth"); n > view.width {
					t.Errorf("%s is %d pixels wide in a window of %d", path, n, view.width)
				}
			}
		}
	})
}

// wantContracts fails unless the filters of pages name the contracts that clients know, each of
// which they take.
func (w *consoleWorld) wantContracts(t *testing.T) {
	t.Helper()
	var known struct{ Items []struct{ Contract string } }
	answer := w.send(t, "GET", "/admin/v1/contracts", "", 200)
	if err := json.Unmarshal([]byte(answer), &known); err != nil {
		t.Fatal(err)
	}
	want := []string{"all"}
	for _, item := range known.Items {
		want = append(want, item.Contract)
	}
	for _, page := range []string{"/console/queues", "/console/dead-letters"} {
		w.Go(t, page)
		got := browser.Eval[[]string](t, w.Tab,
			`Array.from(document.querySelectorAll("select[name=contract] option"), o => o.textContent)`)
		if !slices.Equal(got, want) {
			t.Errorf("%s offers the contracts %q, want %q", page, got, want)
		}
		for _, name := range want[1:] {
			w.visit(t, "contract", page+"?contract="+name)
		}
	}
}

// visit opens a page, checks what holds for all and takes a picture.
func (w *consoleWorld) visit(t *testing.T, view, path string) {
	t.Helper()
	w.Go(t, path)
	if h := w.heading(t); h == "" || strings.Contains(h, "error") || h == "Not found" {
		t.Errorf("%s is %q", path, h)
	}
	title := browser.Eval[string](t, w.Tab, "document.title")
	if !strings.HasSuffix(title, " · Millrace") {
		t.Errorf("%s: the title is %q", path, title)
	}
	w.Screenshot(t, view+strings.NewReplacer("/", "-", "?", "-", "&", "-", "=", "-").Replace(path))
}

// TestConsoleWork: AD-006: an operator finds a dead letter by the keyboard, replays it and pauses
// its queue; live parts show what others do without a reload; the audit has it all.
func TestConsoleWork(t *testing.T) {
	t.Parallel()
	onConsole(t, func(t *testing.T, w *consoleWorld) {
		w.fill(t)
		w.Go(t, "/console/queues")
		w.Press(t, "/")
		w.WaitFor(t, `document.activeElement.matches("[data-filter]")`)
		browser.Eval[string](t, w.Tab, `document.activeElement.value = ""`) // the key itself
		w.Type(t, "[data-filter]", "mai")
		w.Follow(t, "form.bar button")
		testkit.WaitUntil(t, "a row with the focus", func() bool {
			w.Press(t, "j")
			return browser.Eval[bool](t, w.Tab, `document.activeElement.matches("[data-row]")`)
		})
		w.Press(t, "?")
		w.WaitFor(t, `document.getElementById("keys").open`)
		w.Click(t, "#keys button")
		w.Go(t, "/console/queues/taskflow/mail")
		w.Follow(t, `form[action="/console/queues/taskflow/mail/pause"] button`)
		if text := w.Text(t, "main"); !strings.Contains(text, "paused") {
			t.Errorf("the queue is not paused: %s", text)
		}
		w.Go(t, "/console/dead-letters/list")
		w.Follow(t, `form[action$="/replay"] button`)
		w.WaitFor(t, `location.pathname.startsWith("/console/jobs/") &&
			document.querySelector("main").textContent.includes("paused")`)
		w.send(t, "DELETE", "/admin/v1/queues/taskflow/mail", "", 200)
		w.WaitFor(t, `!document.querySelector("[data-live=why]").textContent.includes("paused")`)
		w.Go(t, "/console/audit")
		for _, action := range []string{"queue.set", "dead_letter.replay", "session.create"} {
			if text := w.Text(t, "main"); !strings.Contains(text, action) {
				t.Errorf("AD-006 there is no %s in %s", action, text)
			}
		}
		w.wantJob(t)
	})
}

// wantJob fails unless the page of a job that was given up has its timeline drawn and as a table,
// and a body that a button copies whole.
func (w *consoleWorld) wantJob(t *testing.T) {
	t.Helper()
	w.Go(t, "/console/dead-letters/list")
	w.Follow(t, "tbody th a")
	drawn := browser.Eval[[]int](t, w.Tab, `[".wait", ".bad .attempt"].map(
		name => document.querySelectorAll("svg.timeline " + name).length)`)
	if len(drawn) != 2 || drawn[0] == 0 || drawn[1] != 1 {
		t.Errorf("the timeline has waits and failed attempts %v", drawn)
	}
	table := browser.Eval[string](t, w.Tab, `document.querySelector("figure table").textContent`)
	for _, want := range []string{"no such user", "submitted to queue"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table of the timeline has no %q: %.1000s", want, table)
		}
	}
	browser.Eval[string](t, w.Tab, `navigator.clipboard.writeText = text => {
		document.body.dataset.copied = text; return Promise.resolve() }; ""`)
	w.Click(t, `[data-copy="body-Payload"]`)
	w.WaitFor(t, `(document.body.dataset.copied || "").includes("w".repeat(65000))`)
}

// TestConsoleWithoutScripts: pages work without JavaScript: login, filter, a change, a bulk
// operation that shows what it would do before it is confirmed, and the logout.
func TestConsoleWithoutScripts(t *testing.T) {
	t.Parallel()
	onConsole(t, func(t *testing.T, w *consoleWorld) {
		w.fill(t)
		w.WithoutScripts(t)
		w.login(t)
		w.Go(t, "/console/queues")
		w.Type(t, "[data-filter]", "mail")
		w.Follow(t, "form.bar button")
		w.Follow(t, "tbody form button")
		if text := w.Text(t, "main"); !strings.Contains(text, "paused") {
			t.Errorf("the queue is not paused: %s", text)
		}
		w.Go(t, "/console/bulk/new?action=delete&queue=mail&phase=ready")
		if text := w.Text(t, ".note"); !strings.Contains(text, "8 match") {
			t.Errorf("the dry run says %s", text)
		}
		w.Follow(t, "form.panel button")
		if h := w.Text(t, "h1"); !strings.Contains(h, "Bulk delete") {
			t.Errorf("the operation is %q", h)
		}
		testkit.WaitUntil(t, "the end of the operation", func() bool {
			w.Go(t, "/console/queues/taskflow/mail")
			return strings.HasPrefix(strings.TrimSpace(w.Text(t, "dd.big")), "0")
		})
		w.Follow(t, ".who button")
		if h := w.Text(t, "h1"); h != "Log in" {
			t.Errorf("after the logout there is %q", h)
		}
	})
}

// TestConsoleReads: AD-005: a session of the read token sees the pages and no button that changes
// anything.
func TestConsoleReads(t *testing.T) {
	t.Parallel()
	onConsole(t, func(t *testing.T, w *consoleWorld) {
		w.fill(t)
		w.Follow(t, ".who button")
		w.Type(t, "input[name=token]", "reader")
		w.Follow(t, "main form button")
		for _, path := range append(consolePaths[:6], "/console", "/console/queues",
			"/console/workers", "/console/schedules", "/console/jobs/1") {
			w.Go(t, path)
			n := browser.Eval[int](t, w.Tab, `document.querySelectorAll("main form[method=post]").length`)
			if n != 0 {
				t.Errorf("AD-005 %s has %d forms that change something", path, n)
			}
		}
	}, "--set", "operator.read_token=reader")
}
