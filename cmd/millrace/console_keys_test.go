package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/browser"
)

// focusedRow is the number of the row that has the focus, -1 for none.
const focusedRow = `Array.from(document.querySelectorAll("[data-row]"))
	.findIndex(row => row.contains(document.activeElement))`

// TestConsoleKeys: CO-007: the keys do what their list says: / focuses the filter, j and k move
// between rows, Enter opens one, x marks it, ? lists them; in a field they are letters. All
// controls are reached by Tab, each with a visible focus.
func TestConsoleKeys(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, w *consoleWorld) { // no key reaches the store
		made := w.fill(t)
		for _, path := range w.pages(made) {
			w.Go(t, path)
			browser.Eval[bool](t, w.Tab, "paused = true") // a newer page would have other controls
			w.wantKeys(t, path)
			w.wantTabs(t, path)
		}
		w.Go(t, "/console/queues")
		w.press(t, "j", focusedRow+" === 0")
		want := browser.Eval[string](t, w.Tab,
			`document.querySelector("[data-row] a").getAttribute("href")`)
		w.press(t, "\r", "location.pathname + location.search === "+quote(t, want))
	}, "--set", "forgerun.duration_scale=0.01")
}

// TestConsoleByKeysAlone: CO-007: somebody without a pointer finds a queue by its name, opens it,
// pauses it and lets it go on.
func TestConsoleByKeysAlone(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, w *consoleWorld) {
		w.fill(t)
		w.Go(t, "/console/queues")
		w.press(t, "/", `document.activeElement.matches("[data-filter]")`)
		browser.Eval[string](t, w.Tab, `document.activeElement.value = ""`) // the key itself
		w.Press(t, "mail")
		w.pressOn(t, "\r", `location.search.includes("text=mail")`)
		w.press(t, "j", focusedRow+" === 0")
		w.pressOn(t, "\r", `location.pathname === "/console/queues/taskflow/mail"`)
		const pause, resume = `form[action$="/pause"] button`, `form[action$="/resume"] button`
		w.tabTo(t, pause)
		w.pressOn(t, "\r", `document.querySelector('`+resume+`') !== null`)
		w.wantPaused(t, true)
		w.tabTo(t, resume)
		w.pressOn(t, "\r", `document.querySelector('`+pause+`') !== null`)
		w.wantPaused(t, false)
	}, "--set", "forgerun.duration_scale=0.01")
}

// pressOn presses a key that opens another page and waits until that one is there with its script.
func (w *consoleWorld) pressOn(t *testing.T, key, arrived string) {
	t.Helper()
	browser.Eval[bool](t, w.Tab, "window.isBefore = true")
	w.press(t, key, `!window.isBefore && document.readyState === "complete" && `+arrived)
}

// tabTo presses Tab until a control has the focus.
func (w *consoleWorld) tabTo(t *testing.T, selector string) {
	t.Helper()
	for range maxTabs {
		w.Press(t, "\t")
		if browser.Eval[bool](t, w.Tab, "document.activeElement.matches("+quote(t, selector)+")") {
			return
		}
	}
	t.Fatalf("CO-007 %d tabs do not reach %s", maxTabs, selector)
}

// wantPaused fails unless the queue mail of TaskFlow is paused, or is not.
func (w *consoleWorld) wantPaused(t *testing.T, want bool) {
	t.Helper()
	text := w.send(t, "GET", "/admin/v1/queues?contract=taskflow&text=mail", "", http.StatusOK)
	if isPaused := strings.Contains(text, `"paused":true`); isPaused != want {
		t.Errorf("CO-007 the queues are %s", text)
	}
}

// press presses a key and waits for what it does.
func (w *consoleWorld) press(t *testing.T, key, done string) {
	t.Helper()
	w.Press(t, key)
	w.WaitFor(t, done)
}

// wantKeys fails unless the keys work on the page.
func (w *consoleWorld) wantKeys(t *testing.T, path string) {
	t.Helper()
	if browser.Eval[bool](t, w.Tab, `document.querySelector("[data-filter]") !== null`) {
		w.press(t, "/", `document.activeElement.matches("[data-filter]")`)
		if browser.Eval[bool](t, w.Tab, `document.activeElement.matches("input")`) {
			browser.Eval[string](t, w.Tab, `document.activeElement.value = ""`)
			w.press(t, "j", `document.activeElement.value === "j"`)
		}
		browser.Eval[int](t, w.Tab, "document.activeElement.blur(), 0")
	}
	rows := browser.Eval[int](t, w.Tab, `Array.from(document.querySelectorAll("[data-row]"))
		.filter(row => row.checkVisibility()).length`)
	if rows > 1 {
		w.press(t, "j", focusedRow+" >= 0")
		first := browser.Eval[int](t, w.Tab, focusedRow)
		w.press(t, "j", focusedRow+" > "+strconv.Itoa(first))
		w.press(t, "k", focusedRow+" === "+strconv.Itoa(first))
	}
	const box = `document.activeElement.querySelector("input[type=checkbox]")`
	if rows > 1 && browser.Eval[bool](t, w.Tab, box+" !== null") {
		w.press(t, "x", box+".checked")
		w.press(t, "x", "!"+box+".checked")
	}
	if strings.Contains(path, "/login") {
		return // it stands alone
	}
	w.press(t, "?", `document.getElementById("keys").open`)
	w.press(t, "\x1b", `!document.getElementById("keys").open`)
}

// maxTabs bounds the controls of a page that are walked through.
const maxTabs = 120

// wantTabs fails unless Tab reaches all controls of the page, or the first maxTabs of them, each of
// which shows that it has the focus.
func (w *consoleWorld) wantTabs(t *testing.T, path string) {
	t.Helper()
	want := browser.Eval[int](t, w.Tab, `(() => { document.activeElement.blur();
		getSelection().removeAllRanges();
		window.controls = Array.from(document.querySelectorAll("a[href], button, select, textarea," +
			"input:not([type=hidden]), summary, [tabindex='0']")).filter(c =>
			c.checkVisibility({ visibilityProperty: true }) && !c.disabled &&
			!c.closest("svg.dag"));
		window.reached = new Set(), window.unseen = [];
		document.addEventListener("focusin", ({ target }) => {
			const style = getComputedStyle(target);
			window.reached.add(target);
			if (!(style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2) &&
				!target.closest("svg.dag")) window.unseen.push(target.outerHTML.slice(0, 200)) });
		window.controls[0].focus();
		return window.controls.length })()`)
	w.Press(t, strings.Repeat("\t", min(want, maxTabs)-1))
	if unseen := browser.Eval[[]string](t, w.Tab, "window.unseen"); len(unseen) > 0 {
		t.Errorf("CO-007 %s: controls do not show the focus: %q", path, unseen)
	}
	if browser.Eval[bool](t, w.Tab, `document.querySelector("svg.dag") !== null`) {
		return
	}
	if missed := browser.Eval[[]string](t, w.Tab, fmt.Sprintf(`window.controls.slice(0, %d)
		.filter(c => !window.reached.has(c)).map(c => c.outerHTML.slice(0, 200))`,
		maxTabs)); len(missed) > 0 {
		t.Errorf("CO-007 %s: Tab does not reach %q", path, missed)
	}
}
