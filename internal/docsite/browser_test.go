package docsite

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/browser"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// maxScript bounds the script, in bytes.
const maxScript = 5_000

// The script is small, and its types are right.
func TestScript(t *testing.T) {
	t.Parallel()
	if len(scriptText) > maxScript {
		t.Errorf("the script has %d bytes, more than %d", len(scriptText), maxScript)
	}
	outside.CheckTypes(t, "script.js")
}

// views are how each page is looked at.
var views = []struct {
	name  string
	width int64
	dark  bool
}{{"light", 1280, false}, {"dark", 1280, true}, {"narrow", 360, false}}

// open opens a tab on the site.
func open(t *testing.T) *browser.Tab {
	t.Helper()
	server := httptest.NewServer(world())
	t.Cleanup(server.Close)
	return browser.Open(t, server.URL)
}

// Pages of all kinds have one heading, are no wider than a narrow window, keep nobody from reading
// them in light and dark, and load nothing from elsewhere.
func TestPagesInABrowser(t *testing.T) {
	t.Parallel()
	tab, axe := open(t), outside.Axe(t)
	for _, path := range []string{"/docs/concepts", "/docs/start", "/docs/reference/settings",
		"/docs/api/relay", "/docs/search?q=lease", "/docs/search?q=xyzzy", "/docs", "/docs/none",
		"/docs/source/client/pgtx", "/docs/operating"} {
		tab.Go(t, path)
		if n := browser.Eval[int](t, tab, `document.querySelectorAll("h1").length`); n != 1 {
			t.Errorf("%s has %d first headings", path, n)
		}
		for _, view := range views {
			tab.View(t, view.width, view.dark)
			wide := browser.Eval[[]int](t, tab, "[document.documentElement.scrollWidth, innerWidth]")
			if wide[0] > wide[1] {
				t.Errorf("%s is %d pixels wide in a window of %d", path, wide[0], wide[1])
			}
			tab.ScreenshotWindow(t, view.name+strings.ReplaceAll(path, "/", "_"))
		}
		tab.LoadAxe(t, axe)
		for _, view := range views[:2] {
			tab.View(t, view.width, view.dark)
			var rules []string
			if view.dark {
				rules = []string{"color-contrast"}
			}
			for _, found := range tab.Violations(t, rules...) {
				t.Errorf("%s, %s: %s", path, view.name, found)
			}
		}
	}
	tab.Check(t)
}

// Without JavaScript one gets everywhere: the navigation of a narrow window opens, a search finds.
func TestWithoutScripts(t *testing.T) {
	t.Parallel()
	tab := open(t)
	tab.WithoutScripts(t)
	tab.View(t, 360, false)
	tab.Go(t, "/docs")
	tab.Click(t, "label.menu")
	tab.Follow(t, `.side nav a[href="/docs/relay"]`)
	if text := tab.Text(t, "h1"); text != "Relay" {
		t.Errorf("the heading is %q", text)
	}
	tab.Type(t, ".find input", "dead letters\r")
	if text := tab.Text(t, ".results li a"); !strings.Contains(strings.ToLower(text), "dead letters") {
		t.Errorf("the first result is %q", text)
	}
	tab.Check(t)
}

// The key / goes to the search, and a button copies code.
func TestKeys(t *testing.T) {
	t.Parallel()
	tab := open(t)
	tab.Go(t, "/docs/relay")
	tab.Press(t, "/")
	if at := browser.Eval[string](t, tab, "document.activeElement.name"); at != "q" {
		t.Errorf("the focus is in %q", at)
	}
	if n := browser.Eval[int](t, tab, `document.querySelectorAll(".code button").length`); n < 3 {
		t.Errorf("%d blocks can be copied", n)
	}
	tab.Check(t)
}
