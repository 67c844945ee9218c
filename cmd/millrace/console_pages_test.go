package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/console"
	"github.com/millrace/millrace/internal/testkit/browser"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// consolePages are the addresses of each page of the console, by the pattern of its route. A name
// in braces stands for what filling has made; without it the address is left out.
var consolePages = map[string][]string{
	"/console":  {"/console", "/console?range=24h", "/console?range=7d"},
	"/console/": {"/console/"},
	"/console/audit": {"/console/audit", "/console/audit?action=queue.set",
		"/console/audit?target=queue:nothing/none",
		"/console/audit?actor=operator&to=2100-01-01T00:00:00Z"},
	"/console/bulk":                       {"/console/bulk"},
	"/console/bulk/new":                   {"/console/bulk/new?action=delete&queue=mail"},
	"/console/bulk/{id}":                  {"/console/bulk/{bulk}"},
	"/console/clients":                    {"/console/clients"},
	"/console/clients/{id}":               {"/console/clients/{client}"},
	"/console/dead-letters":               {"/console/dead-letters"},
	"/console/dead-letters/list":          {"/console/dead-letters/list"},
	"/console/files":                      {"/console/files"},
	"/console/files/{id}":                 {"/console/files/{file}"},
	"/console/files/{id}/variants/{size}": nil, // a picture
	"/console/health":                     {"/console/health"},
	"/console/inbox":                      {"/console/inbox", "/console/inbox?state=submitted&contract=none"},
	"/console/jobs": {"/console/jobs", "/console/jobs?phase=dead", "/console/jobs?id=none",
		"/console/jobs?contract=taskflow&state=READY&order=oldest&min_attempts=1"},
	"/console/jobs/{number}": {"/console/jobs/{failed}", "/console/jobs/{done}",
		"/console/jobs/{running}", "/console/jobs/{ready}", "/console/jobs/{relay}"},
	"/console/jobs/{number}/graph": {"/console/jobs/{graph}/graph", "/console/jobs/{ready}/graph"},
	"/console/login":               {"/console/login", "/console/login?code=spent"},
	"/console/manifests":           {"/console/manifests", "/console/manifests?state=queued"},
	"/console/manifests/{number}": {"/console/manifests/{manifest}",
		"/console/manifests/{manifest}?state=done"},
	"/console/queues": {"/console/queues", "/console/queues?order=failures",
		"/console/queues?view=board", "/console/queues?view=board&text=none-of-them"},
	"/console/queues/{contract}/{queue}": {"/console/queues/taskflow/mail",
		"/console/queues/relay/none", "/console/queues/relay/{hostile}"},
	"/console/queues/{contract}/{queue}/clear": {"/console/queues/taskflow/mail/clear",
		"/console/queues/relay/{hostile}/clear"},
	"/console/schedules":             {"/console/schedules"},
	"/console/schedules/{name}":      {"/console/schedules/{schedule}"},
	"/console/schedules/{name}/edit": {"/console/schedules/{schedule}/edit"},
	"/console/schedules/~new":        {"/console/schedules/~new"},
	"/console/settings": {"/console/settings", "/console/settings?text=lease",
		"/console/settings?text=none-of-them"},
	"/console/webhooks": {"/console/webhooks", "/console/webhooks?state=disabled"},
	"/console/webhooks/{id}": {"/console/webhooks/{webhook}",
		"/console/webhooks/{operatorhook}"},
	"/console/webhooks/{id}/edit": {"/console/webhooks/{operatorhook}/edit"},
	"/console/workers":            {"/console/workers"},
}

// TestConsolePagesAreListed: consolePages has every page of the console and no other, so no page is
// left out of what the tests look at.
func TestConsolePagesAreListed(t *testing.T) {
	t.Parallel()
	var got []string
	for _, p := range console.New(nil).Pages() {
		if p.Method == http.MethodGet && path.Ext(p.Pattern) == "" {
			got = append(got, p.Pattern)
		}
	}
	slices.Sort(got)
	if want := slices.Sorted(maps.Keys(consolePages)); !slices.Equal(got, want) {
		t.Errorf("the console has the pages\n%q, and the tests look at\n%q", got, want)
	}
}

// pages returns the addresses of all pages with what was made for them.
func (w *consoleWorld) pages(made map[string]string) (all []string) {
	var pairs []string
	for name, value := range made {
		pairs = append(pairs, "{"+name+"}", url.PathEscape(value))
	}
	for _, pattern := range slices.Sorted(maps.Keys(consolePages)) {
		for _, address := range consolePages[pattern] {
			address = strings.NewReplacer(pairs...).Replace(address)
			if !strings.Contains(address, "{") {
				all = append(all, address)
			}
		}
	}
	return all
}

// consoleViews are how each page is looked at.
var consoleViews = []struct {
	name  string
	width int64
	dark  bool
}{{"light", 1280, false}, {"dark", 1280, true}, {"narrow", 360, false}}

// TestConsolePages: CO-006, CO-007, CO-008: every page renders with nothing and with hostile text
// in all that somebody else may set, of which nothing runs; in light and dark, and at 360 pixels,
// where no page is wider than the window; axe-core finds nothing serious, also in what is folded;
// each page has one heading and asks no other origin for anything. Times have the absolute one in
// the source and for those who point at them, numbers stand at the right, and each chart has its
// numbers in a table.
func TestConsolePages(t *testing.T) {
	t.Parallel()
	onConsole(t, func(t *testing.T, w *consoleWorld) {
		for _, path := range w.pages(nil) {
			t.Run("empty"+path, func(t *testing.T) { w.visit(t, "empty-", path) })
		}
		w.wantContracts(t)
		made := w.fill(t)
		for _, path := range w.pages(made) {
			t.Run(path, func(t *testing.T) { w.visit(t, "", path) })
		}
		w.visitAnswers(t, made["webhook"])
	}, "--set", "forgerun.duration_scale=0.01")
}

// visitAnswers looks at the pages that have no address of their own: the answer to the test of a
// webhook, and that to an address that leads nowhere.
func (w *consoleWorld) visitAnswers(t *testing.T, webhook string) {
	t.Helper()
	w.Go(t, "/console/webhooks/"+webhook)
	w.Follow(t, `main form[action$="/test"] button`)
	w.view(t, "", "-console-webhooks-tested")
	w.Go(t, "/console/nothing")
	if h := w.heading(t); h != "Not found" {
		t.Errorf("an address that leads nowhere is %q", h)
	}
	w.view(t, "", "-console-nothing")
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
			w.Go(t, page+"?contract="+name)
			if h := w.heading(t); h == "" {
				t.Errorf("%s has no page for the contract %s", page, name)
			}
		}
	}
}

// visit opens a page and looks at it.
func (w *consoleWorld) visit(t *testing.T, prefix, path string) {
	t.Helper()
	w.Go(t, path)
	if h, status := w.heading(t), browser.Eval[int](t, w.Tab,
		`performance.getEntriesByType("navigation")[0].responseStatus`); h == "" || status != 200 {
		t.Errorf("%s is %q with the status %d", path, h, status)
	}
	for _, wrong := range browser.Eval[[]string](t, w.Tab, `Array.from(document.querySelectorAll(
		".empty")).filter(one => !one.querySelector("code")).map(one => one.textContent)`) {
		t.Errorf("CO-008 %s says nothing of what to do next: %s", path, wrong)
	}
	w.view(t, prefix, pictureName(path))
}

// pictureName is the part of a picture's name that tells its page; of long paths it has both ends.
func pictureName(path string) string {
	name := strings.NewReplacer("/", "-", "?", "-", "&", "-", "=", "-").Replace(path)
	if len(name) > 60 {
		return name[:40] + name[len(name)-20:]
	}
	return name
}

// unfold opens all that the page has folded.
const unfold = `document.querySelectorAll("details").forEach(one => one.open = true), 0`

// view checks what holds for all pages, in each view, of the page as it is and with all of it
// unfolded, and takes pictures. In the dark axe-core has to look at colours alone. How a page looks
// does not depend on the database, so the views are of SQLite, but for the inbox, which PostgreSQL
// alone has.
func (w *consoleWorld) view(t *testing.T, prefix, name string) {
	t.Helper()
	browser.Eval[bool](t, w.Tab, "paused = true") // what is looked at stays
	if title := browser.Eval[string](t, w.Tab, "document.title"); !strings.HasSuffix(title,
		" · Millrace") {
		t.Errorf("%s: the title is %q", name, title)
	}
	w.View(t, 1280, false)
	w.wantFigures(t, name)
	if (w.database != "") && !strings.HasPrefix(name, "-console-inbox") {
		return
	}
	for _, view := range consoleViews {
		w.View(t, view.width, view.dark)
		w.wantNarrow(t, view.name+", "+name)
		if w.database == "" {
			w.Screenshot(t, prefix+view.name+name)
		}
	}
	browser.Eval[int](t, w.Tab, unfold)
	w.wantNarrow(t, "narrow, unfolded, "+name)
	w.checkAccess(t, name)
}

// wantFigures fails unless the figures of a page are as they must be.
func (w *consoleWorld) wantFigures(t *testing.T, name string) {
	t.Helper()
	for _, wrong := range browser.Eval[[]string](t, w.Tab, wrongFigures) {
		t.Errorf("CO-006 %s: %s", name, wrong)
	}
}

// checkAccess has axe-core look at the page.
func (w *consoleWorld) checkAccess(t *testing.T, name string) {
	t.Helper()
	w.LoadAxe(t, outside.Axe(t))
	for _, view := range consoleViews[:2] {
		w.View(t, view.width, view.dark)
		var rules []string
		if view.dark {
			rules = []string{"color-contrast"}
		}
		for _, found := range w.Violations(t, rules...) {
			t.Errorf("CO-007 %s, %s: %s", name, view.name, found)
		}
	}
}

// wantNarrow fails if the page is wider than its window, or if a button of a list is out of sight.
func (w *consoleWorld) wantNarrow(t *testing.T, what string) {
	t.Helper()
	for _, wrong := range browser.Eval[[]string](t, w.Tab, tooWide) {
		t.Errorf("CO-006 %s: %s", what, wrong)
	}
}

// tooWide finds what stands outside of the window: the page, and buttons of lists.
const tooWide = `(() => {
	const wrong = [], width = document.documentElement.scrollWidth;
	if (width > innerWidth) wrong.push(width + " pixels wide in a window of " + innerWidth);
	for (const one of document.querySelectorAll(".cards :is(button, .button, summary)")) {
		const box = one.getBoundingClientRect();
		if (one.checkVisibility() && (box.right > innerWidth || box.left < 0))
			wrong.push("out of sight: " + one.outerHTML.slice(0, 200));
	}
	return wrong;
})()`

// wrongFigures finds times without the absolute one, numbers that do not stand at the right, and
// charts without a table.
const wrongFigures = `(() => {
	const wrong = [];
	for (const time of document.querySelectorAll("time")) {
		if (!/^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(time.dateTime) || !/UTC$/.test(time.title) ||
			!/^(now|in .+|.+ ago)$/.test(time.textContent)) wrong.push(time.outerHTML);
	}
	for (const cell of document.querySelectorAll("td")) {
		const isNumber = /^[\d\u202f.,]+( (µs|ms|s|%|B|[KMG]iB))?$/.test(cell.textContent.trim());
		if (isNumber && !cell.matches(".mono, :has(a)") &&
			getComputedStyle(cell).textAlign !== "right") wrong.push(cell.outerHTML);
	}
	for (const chart of document.querySelectorAll("svg.chart, svg.timeline")) {
		const figure = chart.closest("figure");
		if (!chart.getAttribute("aria-label") || !figure || !figure.querySelector("tbody tr"))
			wrong.push(chart.outerHTML.slice(0, 200));
	}
	return wrong;
})()`

// TestConsoleQueries: CO-008: a page whose address has hostile text in a query answers with that
// text escaped, or refuses it; none answers with an error of the server.
func TestConsoleQueries(t *testing.T) {
	t.Parallel()
	s := launchNode(t, "data", "--set", "operator.token=secret")
	pages := 0
	for _, p := range console.New(nil).Pages() {
		if p.Method != http.MethodGet || p.Public {
			continue
		}
		address := strings.NewReplacer("{contract}", "relay", "{queue}", url.PathEscape(hostile),
			"{number}", "1", "{id}", url.PathEscape(hostile), "{name}",
			url.PathEscape(hostile)).Replace(p.Pattern)
		for _, name := range append(p.Query, "unknown") {
			status, body := sendTo(t, http.DefaultClient, http.MethodGet, s.url+address+"?"+
				url.Values{name: {hostileBody[:2000]}}.Encode(), "", "Authorization", "Bearer secret")
			pages++
			if status >= 500 || strings.Contains(body, "<script>document") ||
				strings.Contains(body, "<img src=x") {
				t.Errorf("%s with a hostile %s answers %d %.300s", address, name, status, body)
			}
		}
	}
	if pages < 40 {
		t.Errorf("only %d addresses were asked for", pages)
	}
}

// manyOf is how many of each there are for the pages that show much.
const manyOf = 600

// TestConsoleMuch: CO-008: with more than a page of everything each page shows a page of it and
// leads on to the next, and is not wider than a window of 360 pixels.
func TestConsoleMuch(t *testing.T) {
	t.Parallel()
	onConsole(t, func(t *testing.T, w *consoleWorld) {
		made := w.fill(t)
		w.fillMuch(t)
		for _, path := range w.pages(made) {
			w.View(t, 1280, false)
			w.Go(t, path)
			browser.Eval[bool](t, w.Tab, "paused = true")
			if rows := browser.Eval[int](t, w.Tab,
				`document.querySelectorAll("[data-row]").length`); rows > 500 {
				t.Errorf("%s shows %d rows at once", path, rows)
			}
			if path == "/console" {
				w.wantGrouped(t)
			}
			if w.store == "postgres" { // how it looks does not depend on the database
				continue
			}
			for _, view := range []string{"light", "narrow"} {
				w.wantNarrow(t, view+", "+path)
				w.Screenshot(t, "much-"+view+pictureName(path))
				w.View(t, 360, false)
			}
		}
		w.View(t, 1280, false)
		for _, path := range []string{"queues", "dead-letters/list", "schedules", "audit", "bulk"} {
			w.Go(t, "/console/"+path)
			first := w.Text(t, "tbody")
			w.Follow(t, `a[rel="next"]`)
			if second := w.Text(t, "tbody"); second == first {
				t.Errorf("the next page of %s is the same", path)
			}
		}
	}, "--set", "forgerun.duration_scale=0.01")
}

// wantGrouped fails unless the overview has all queues without workers at once.
func (w *consoleWorld) wantGrouped(t *testing.T) {
	t.Helper()
	all := browser.Eval[[]string](t, w.Tab, attentions)
	grouped := regexp.MustCompile(`^/console/queues\?order=age attention 60\d queues with 6\d\d ` +
		`ready jobs have no worker: \S+, \S+, \S+, … `)
	if !slices.ContainsFunc(all, grouped.MatchString) || len(all) > maxSingles {
		t.Errorf("CO-002 of %d queues without workers the overview says %q", manyOf, all)
	}
}

// maxSingles is how many entries about what else needs attention there may be on the overview.
const maxSingles = 8

// fillMuch makes more than a page of what pages list.
func (w *consoleWorld) fillMuch(t *testing.T) {
	t.Helper()
	var jobs []string
	for i := range manyOf {
		jobs = append(jobs, fmt.Sprintf(
			`{"id":"%d","queue":"queue-%d","timeout":60,"max_retries":0,"payload":{}}`, i, i))
	}
	for part := range slices.Chunk(jobs, 300) {
		w.send(t, "POST", "/v2/queues/jobs", "["+strings.Join(part, ",")+"]", 202)
	}
	for i := range 120 {
		w.send(t, "POST", "/admin/v1/schedules", fmt.Sprintf(`{"name":"much-%d","every":"1h",
			"contract":"taskflow","request":{"name":"n","queue":"mail"}}`, i), 201)
		w.send(t, "POST", "/admin/v1/jobs", fmt.Sprintf(`{"contract":"taskflow",
			"request":{"name":"much","queue":"much","payload":{"n":%d}}}`, i), 201)
	}
	for range 60 {
		w.send(t, "POST", "/admin/v1/bulk", `{"action":"delete","filter":{"queue":"none"}}`, 202)
	}
	for i := range 24 {
		for _, run := range w.claim(t, "much", 5, "many") {
			w.send(t, "POST", "/worker/v1/runs/"+run+"/fail",
				fmt.Sprintf(`{"error":"no %d","retryable":false}`, i), 200)
		}
	}
}
