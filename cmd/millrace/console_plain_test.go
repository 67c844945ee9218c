package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/millrace/millrace/internal/console"
	"github.com/millrace/millrace/internal/testkit/browser"
)

// plainFaults finds what a page lacks where nothing runs its script: content beside the heading, or
// something other than copying, zooming and the state of live parts that is hidden until then; and
// forms without a button.
const plainFaults = `(() => {
	const main = document.querySelector("main"), wrong = [];
	if (main.innerText.trim().length < document.querySelector("h1").innerText.length + 10)
		wrong.push("no content: " + main.innerText);
	for (const one of main.querySelectorAll("[hidden]"))
		if (!one.matches("[data-copy], [data-zooms], [data-live-state]")) wrong.push(one.outerHTML);
	for (const form of document.querySelectorAll("form"))
		if (form.querySelector("input:not([type=hidden]), select, textarea") &&
			!form.querySelector("button:not([type=button])")) wrong.push(form.outerHTML);
	return wrong.map(text => text.slice(0, 200));
})()`

// TestConsolePlain: CO-001: without JavaScript every page has its heading and its content, and its
// forms lead to routes; those that filter answer. TestConsoleButtons presses the others.
func TestConsolePlain(t *testing.T) {
	t.Parallel()
	routes := http.NewServeMux()
	for _, p := range console.New(nil).Pages() {
		if p.Method == http.MethodPost {
			routes.Handle(p.Method+" "+p.Pattern, http.NotFoundHandler())
		}
	}
	onPostgres(t, func(t *testing.T, w *consoleWorld) {
		made := w.fill(t)
		w.WithoutScripts(t)
		w.login(t)
		seen := map[string]bool{}
		for _, path := range w.pages(made) {
			w.Go(t, path)
			if h := w.heading(t); h == "" {
				t.Errorf("CO-001 %s has no heading", path)
			}
			for _, wrong := range browser.Eval[[]string](t, w.Tab, plainFaults) {
				t.Errorf("CO-001 %s: %s", path, wrong)
			}
			forms := browser.Eval[[][]string](t, w.Tab, `Array.from(
				document.querySelectorAll("form:has(button)"), form => {
					const action = form.getAttribute("action");
					return [form.method, new URL(action, location.href).pathname, action,
						String(form.querySelector("button:not([type=button])")?.checkVisibility())] })`)
			for _, form := range forms {
				if form[0] == "post" {
					w.wantRoute(t, routes, path, form[1])
				} else if form[0] == "get" && form[3] == "true" && !seen[form[2]] {
					seen[form[2]] = true
					w.Follow(t, fmt.Sprintf(`form[action=%q] button:not([type=button])`, form[2]))
					w.heading(t)
					w.Go(t, path)
				}
			}
		}
		if len(seen) < 8 {
			t.Errorf("only %d forms filter", len(seen))
		}
	}, "--set", "forgerun.duration_scale=0.01")
}

// wantRoute fails unless a form of a page leads to one of the routes.
func (w *consoleWorld) wantRoute(t *testing.T, routes *http.ServeMux, page, action string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, w.url+action, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, pattern := routes.Handler(r); pattern == "" {
		t.Errorf("CO-001 a form of %s leads to %s, which is no route", page, action)
	}
}
