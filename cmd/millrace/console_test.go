package main

import (
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
			w.Screenshot(t, "light"+strings.ReplaceAll(link, "/", "-"))
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
