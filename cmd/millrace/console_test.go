package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
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
	"\u202e{{.}} \u0007"

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
			quote(t, hostile), quote(t, hostile), i), 201)
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
			`{"error":%s,"retryable":false}`, quote(t, "no such user "+hostile)), 200)
	}
	w.send(t, "POST", "/worker/v1/runs/"+claimed.Jobs[2].RunID+"/complete", `{"result":{}}`, 200)
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

// TestConsolePages: CO-001, CO-006, CO-007, CO-008: each page renders with nothing and with hostile
// text, of which nothing runs; in light and dark, and at 360 pixels, where no page is wider than the
// window; it has one heading, and asks no other origin for anything.
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
		w.fill(t)
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
					t.Errorf("CO-007 %s is %d pixels wide in a window of %d", path, n, view.width)
				}
			}
		}
	})
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
		t.Errorf("CO-008 %s: the title is %q", path, title)
	}
	w.Screenshot(t, view+strings.NewReplacer("/", "-", "?", "-", "&", "-", "=", "-").Replace(path))
}
