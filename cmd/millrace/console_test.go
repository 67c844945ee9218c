package main

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/browser"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// consoleWorld is a server of the real binary, and a browser for its console.
type consoleWorld struct {
	*launchedServer
	*browser.Tab
	client *client.Client // of the operator
	store  string         // sqlite or postgres
	// database is the URL of the PostgreSQL; empty on SQLite.
	database string
}

// onConsole runs a test with a server on each database and a browser that has logged in by a
// one-time link.
func onConsole(t *testing.T, test func(t *testing.T, w *consoleWorld), args ...string) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { onConsoleOf(t, "", test, args...) })
	t.Run("postgres", func(t *testing.T) { onConsoleOf(t, pgtest.URL(t), test, args...) })
}

// onSQLite is onConsole with SQLite alone, and onPostgres with PostgreSQL alone. What no database
// can tell apart is tested with one of them: half of the tests with the one, half with the other.
func onSQLite(t *testing.T, test func(t *testing.T, w *consoleWorld), args ...string) {
	t.Helper()
	onConsoleOf(t, "", test, args...)
}

func onPostgres(t *testing.T, test func(t *testing.T, w *consoleWorld), args ...string) {
	t.Helper()
	onConsoleOf(t, pgtest.URL(t), test, args...)
}

// onConsoleOf is onConsole with the PostgreSQL of a URL, or with SQLite where that is empty. The
// last of several settings of a key is in force.
func onConsoleOf(t *testing.T, database string, test func(t *testing.T, w *consoleWorld),
	args ...string) {
	t.Helper()
	name, settings := "sqlite", []string{"--set", "operator.token=secret", "--set", "log.level=warn"}
	if database != "" {
		name, settings = "postgres", append(settings, "--set", "store="+database)
	}
	s := launchIn(t, filepath.Join(t.TempDir(), "data"), append(settings, args...)...)
	c, err := client.New(client.Config{BaseURL: s.url, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	w := &consoleWorld{launchedServer: s, Tab: browser.Open(t, s.url), client: c, store: name,
		database: database}
	w.login(t)
	test(t, w)
	w.Check(t)
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
			`Array.from(document.querySelectorAll("nav a[href^='/console']"),
				a => a.getAttribute("href"))`)
		if len(links) < 4 {
			t.Fatalf("the navigation has %v", links)
		}
		for _, link := range links {
			w.Go(t, link)
			if h := w.heading(t); h == "" || h == "Log in" || h == "Not found" {
				t.Errorf("%s is %q", link, h)
			}
		}
		w.Follow(t, ".viewer button")
		for _, path := range append(links, "/console/nothing") {
			w.Go(t, path)
			if h := w.heading(t); h != "Log in" {
				t.Errorf("AD-001 %s without a session is %q", path, h)
			}
		}
	}, "--set", "contracts=relay")
}

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

// TestConsoleWork: AD-006: an operator finds a dead letter by the keyboard, replays it and pauses
// its queue; live parts show what others do without a reload; the audit has it all.
func TestConsoleWork(t *testing.T) {
	t.Parallel()
	onConsole(t, func(t *testing.T, w *consoleWorld) { workOnConsole(t, w) })
}

// TestConsoleBehindPgBouncer is the same on a PostgreSQL behind a PgBouncer in transaction mode,
// where all pages have a heading too.
func TestConsoleBehindPgBouncer(t *testing.T) {
	t.Parallel()
	server := outside.NewPostgres(t)
	role := server.Schemas(1)[0]
	pooled := outside.NewPgBouncer(t, server, "pool_mode=transaction").URL(role, "postgres")
	onConsoleOf(t, server.URL(role, "postgres"), func(t *testing.T, w *consoleWorld) {
		for _, path := range w.pages(workOnConsole(t, w)) {
			w.Go(t, path)
			if h := w.heading(t); h == "" {
				t.Errorf("%s has no heading", path)
			}
		}
	}, "--set", "store="+pooled)
}

// workOnConsole does the work of TestConsoleWork, and returns what fill has made.
func workOnConsole(t *testing.T, w *consoleWorld) map[string]string {
	t.Helper()
	made := w.fill(t)
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
	return made
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
	w.Click(t, `details.body:has([data-copy="body-Payload"]) summary`) // it is long
	w.Click(t, `[data-copy="body-Payload"]`)
	w.WaitFor(t, `(document.body.dataset.copied || "").includes("w".repeat(65000))`)
	w.Go(t, "/console/jobs/3")
	w.wantTexts(t, "details.body", "The beginning of it", "bytes in all)")
	whole := browser.Eval[string](t, w.Tab,
		`document.querySelector("details.body a[download]").getAttribute("href")`)
	if answer := w.send(t, "GET", whole, "", http.StatusOK); !strings.Contains(answer,
		strings.Repeat("w", 70_000)) {
		t.Errorf("CO-004 %s has %d bytes", whole, len(answer))
	}
}

// TestConsoleWithoutScripts: pages work without JavaScript: login, filter, a change, a bulk
// operation that shows what it would do before it is confirmed, and the logout.
func TestConsoleWithoutScripts(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, w *consoleWorld) {
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
		if text := w.Text(t, ".note"); !strings.Contains(text, "8 jobs match") {
			t.Errorf("the dry run says %s", text)
		}
		w.Follow(t, "form.panel button")
		if h := w.Text(t, "h1"); h != "Delete: queue mail" {
			t.Errorf("the operation is %q", h)
		}
		testkit.WaitUntil(t, "the end of the operation", func() bool {
			w.Go(t, "/console/queues/taskflow/mail")
			return strings.HasPrefix(strings.TrimSpace(w.Text(t, "dd.big")), "0")
		})
		w.Follow(t, ".viewer button")
		if h := w.Text(t, "h1"); h != "Log in" {
			t.Errorf("after the logout there is %q", h)
		}
	})
}

// TestConsoleReads: AD-005: a session of the read token sees the pages and no button that changes
// anything.
func TestConsoleReads(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, w *consoleWorld) {
		made := w.fill(t)
		w.Follow(t, ".viewer button")
		w.Type(t, "input[name=token]", "reader")
		w.Follow(t, "main form button")
		for _, path := range w.pages(made) {
			if strings.HasPrefix(path, "/console/login") {
				continue
			}
			w.Go(t, path)
			n := browser.Eval[int](t, w.Tab, `document.querySelectorAll("main form[method=post]").length`)
			if n != 0 {
				t.Errorf("AD-005 %s has %d forms that change something", path, n)
			}
		}
	}, "--set", "operator.read_token=reader")
}
