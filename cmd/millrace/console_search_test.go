package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/browser"
)

// What a page says of its search.
const (
	searchText  = `document.querySelector("[data-search] p")?.innerText.trim()`
	searchState = `document.querySelector("[data-search-state]")?.textContent`
	searchDoes  = `document.querySelector("[data-search] button")`
)

// searchedJobs is how many jobs are searched, and needleEvery one of how many has the word needle.
const (
	searchedJobs = 4000
	needleEvery  = 400
)

// fillHay stores jobs of Relay. The payload of each needleEvery-th, which begins with the first,
// has the word needle, and that of the first the word oldest too.
func (w *consoleWorld) fillHay(t *testing.T) {
	t.Helper()
	jobs := make([]string, searchedJobs)
	for i := range jobs {
		said := "hay"
		if i%needleEvery == 0 {
			said = "Needle"
		}
		if i == 0 {
			said += " oldest"
		}
		jobs[i] = fmt.Sprintf(`{"id":"%d","queue":"q","timeout":60,"payload":{"said":"%s %s"}}`, i,
			said, strings.Repeat("straw ", 300))
	}
	for part := range slices.Chunk(jobs, 500) {
		w.send(t, "POST", "/v2/queues/jobs", "["+strings.Join(part, ",")+"]", 202)
	}
}

// search opens a list, and stops the search of the page if that is wanted.
func (w *consoleWorld) search(t *testing.T, path string, stop bool) {
	t.Helper()
	w.Go(t, path)
	if stop {
		browser.Eval[int](t, w.Tab, searchDoes+".click(), 0")
		w.WaitFor(t, searchState+`.endsWith("It was stopped.") && `+searchDoes+
			`.textContent === "Go on"`)
	}
}

// awaitSearch waits until a search has come to its end, and returns the numbers that it found.
func (w *consoleWorld) awaitSearch(t *testing.T) []string {
	t.Helper()
	w.WaitFor(t, `!document.querySelector("[data-search]") || `+searchState+
		`.endsWith("All was searched.")`)
	if browser.Eval[bool](t, w.Tab, searchDoes+"?.checkVisibility() || "+
		`document.querySelector("a[rel=next]") !== null`) {
		t.Error("a search that has ended can be stopped or gone on with")
	}
	return w.rows(t)
}

// numbersOf returns the numbers of the jobs that the API lists for a query, page by page.
func (w *consoleWorld) numbersOf(t *testing.T, query string) (numbers []string) {
	t.Helper()
	for cursor := ""; ; {
		var page struct {
			Items []struct{ Number int64 }
			Next  string `json:"next_cursor"`
		}
		answer := w.send(t, "GET", "/admin/v1/jobs?"+query+cursor, "", http.StatusOK)
		if err := json.Unmarshal([]byte(answer), &page); err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			numbers = append(numbers, fmt.Sprint(item.Number))
		}
		if page.Next == "" {
			return numbers
		}
		cursor = "&cursor=" + url.QueryEscape(page.Next)
	}
}

// TestConsoleSearch: CO-003: a page searches texts for a short time and then goes on by itself: it
// finds one among thousands of jobs, asks for one page at a time, adds each row once, and says how
// far it has come.
func TestConsoleSearch(t *testing.T) {
	t.Parallel()
	onConsole(t, func(t *testing.T, w *consoleWorld) {
		w.fillHay(t)
		first := w.send(t, "GET", "/console/jobs?text=needle+oldest", "", http.StatusOK)
		if strings.Contains(first, "<tr data-row") || !strings.Contains(first,
			"The next page goes on.") {
			t.Fatalf("the first page has found all of %d jobs at once", searchedJobs)
		}
		w.search(t, "/console/jobs?text=needle+oldest", false)
		w.countFlying(t)
		if got := w.awaitSearch(t); !slices.Equal(got, []string{"1"}) {
			t.Errorf("AD-012 found %v", got)
		}
		if n := browser.Eval[int](t, w.Tab, "window.flown"); n != 1 {
			t.Errorf("the page had up to %d requests at a time", n)
		}
		for _, order := range []string{"newest", "oldest"} {
			query := "text=needle&order=" + order
			want := w.numbersOf(t, query)
			w.search(t, "/console/jobs?"+query, false)
			if got := w.awaitSearch(t); !slices.Equal(got, want) ||
				len(got) != searchedJobs/needleEvery {
				t.Errorf("AD-012 %s first found %v, want %v", order, got, want)
			}
		}
		if text := browser.Eval[string](t, w.Tab, searchText); text != "10 found. All was searched." {
			t.Errorf("the page says %q", text)
		}
		status := `document.querySelector("[data-search] [role=status]").textContent.trim()`
		if text := browser.Eval[string](t, w.Tab, status); text != "10 found. All was searched." {
			t.Errorf("CO-007 those who do not see the page have %q", text)
		}
	}, "--set", "contracts=relay")
}

// countFlying counts from now on how many requests of the script there are at a time, at most.
func (w *consoleWorld) countFlying(t *testing.T) {
	t.Helper()
	browser.Eval[int](t, w.Tab, `(() => { const read = window.fetch; window.flown = 0; let flying = 0;
		window.fetch = (...of) => { window.flown = Math.max(window.flown, ++flying);
			return read(...of).finally(() => flying--); };
		return 0 })()`)
}

// TestConsoleSearchStops: CO-003: a search stops when that is wanted or when the page is hidden, is
// not gone on with by itself, says how far it has come, and goes on from there when that is wanted.
// What stops is looked at.
func TestConsoleSearchStops(t *testing.T) {
	t.Parallel()
	onSQLite(t, stopSearches, "--set", "contracts=relay")
}

func stopSearches(t *testing.T, w *consoleWorld) {
	w.fillHay(t)
	w.search(t, "/console/jobs?text=needle+oldest", true)
	text := browser.Eval[string](t, w.Tab, searchText)
	if !strings.HasPrefix(text, "The search went as far as what was created ") {
		t.Errorf("a search that was stopped says %q", text)
	}
	w.view(t, "", "-console-jobs-search")
	w.View(t, 1280, false)
	w.countReads(t)
	w.hide(t, true)
	w.hide(t, false)
	w.wantNoReads(t)
	w.Click(t, "[data-search] button")
	w.WaitFor(t, "window.reads > 0")
	w.hide(t, true)
	w.WaitFor(t, searchState+`.endsWith("It was stopped.")`)
	w.hide(t, false)
	w.countReads(t)
	w.wantNoReads(t)
	w.Click(t, "[data-search] button")
	if got := w.awaitSearch(t); !slices.Equal(got, []string{"1"}) {
		t.Errorf("AD-012 after it was stopped it found %v", got)
	}
}

// wantNoReads fails if the script reads something within the time of several pages.
func (w *consoleWorld) wantNoReads(t *testing.T) {
	t.Helper()
	browser.Eval[int](t, w.Tab, "window.since = performance.now(), 0")
	w.WaitFor(t, "performance.now() > window.since + 600")
	if n := browser.Eval[int](t, w.Tab, "window.reads"); n != 0 {
		t.Errorf("a search that was stopped has read %d pages", n)
	}
}

// TestConsoleSearchFillsPages: CO-003: a search ends with as many rows as a page has, from where a
// link goes on; the rows that were added are walked through, marked and acted on like others.
func TestConsoleSearchFillsPages(t *testing.T) {
	t.Parallel()
	onPostgres(t, fillPages, "--set", "contracts=relay")
}

func fillPages(t *testing.T, w *consoleWorld) {
	w.fillHay(t)
	want := w.numbersOf(t, "text=needle")
	var got []string
	w.search(t, "/console/jobs?text=needle&limit=3", false)
	for range 3 {
		w.WaitFor(t, `document.querySelectorAll("tbody tr").length === 3 &&
			(!document.querySelector("[data-search]") || `+searchState+
			`.endsWith("3 found. The page is full, and the next one goes on."))`)
		got = append(got, w.rows(t)...)
		w.Follow(t, "a[rel=next]")
	}
	if got = append(got, w.awaitSearch(t)...); !slices.Equal(got, want) {
		t.Errorf("AD-012 the pages have %v, want %v", got, want)
	}
	w.search(t, "/console/jobs?text=needle", false)
	w.awaitSearch(t)
	last := len(want) - 1
	w.WaitFor(t, focusedRow+" < 0")
	for at := range want {
		w.press(t, "j", fmt.Sprintf(focusedRow+" === %d", at))
	}
	w.press(t, "x", `document.querySelectorAll("[name=mark]:checked").length === 1`)
	w.Click(t, fmt.Sprintf(`input[name=mark][value="%s"]`, want[last-1]))
	w.choose(t, ".act", "delete")
	if rows := w.rows(t); !slices.Equal(rows, []string{want[last], want[last-1]}) {
		t.Errorf("CO-003 the marked rows are %v", rows)
	}
}

// TestConsoleSearchPlain: CO-001: without JavaScript a link leads on from each page of a search, to
// what is searched for.
func TestConsoleSearchPlain(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, w *consoleWorld) {
		w.fillHay(t)
		w.WithoutScripts(t)
		w.login(t)
		w.Go(t, "/console/jobs?text=needle+oldest")
		for range searchedJobs / 50 {
			if len(w.rows(t)) > 0 {
				break
			}
			if text := w.Text(t, "[data-search]"); !strings.HasPrefix(text, "The search went as far") ||
				!strings.HasSuffix(text, "The next page goes on.") {
				t.Fatalf("a page that has found nothing says %q", text)
			}
			w.Follow(t, "a[rel=next]")
		}
		if got := w.rows(t); !slices.Equal(got, []string{"1"}) {
			t.Errorf("AD-012 found %v", got)
		}
	}, "--set", "contracts=relay")
}

// TestConsoleSearchReads: AD-005: a token that only reads gets no marks in the rows that a search
// adds.
func TestConsoleSearchReads(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, w *consoleWorld) {
		w.fillHay(t)
		w.Follow(t, ".viewer button")
		w.Type(t, "input[name=token]", "reader")
		w.Follow(t, "main form button")
		w.search(t, "/console/jobs?text=needle", false)
		if got := w.awaitSearch(t); len(got) != searchedJobs/needleEvery {
			t.Errorf("AD-012 found %v", got)
		}
		if n := browser.Eval[int](t, w.Tab,
			`document.querySelectorAll("[type=checkbox], .act").length`); n != 0 {
			t.Errorf("AD-005 the rows have %d marks", n)
		}
	}, "--set", "contracts=relay", "--set", "operator.read_token=reader")
}

// TestConsoleSearchOfBulk: AD-020: what an operation would do with what has a text is said of the
// jobs that were looked at in a short time; the operation looks at all.
func TestConsoleSearchOfBulk(t *testing.T) {
	t.Parallel()
	onConsole(t, func(t *testing.T, w *consoleWorld) {
		w.fillHay(t)
		w.Go(t, "/console/bulk/new?action=delete&text=needle")
		text := w.Text(t, ".note")
		found := regexp.MustCompile(`^Of the ([\d\x{202f}]+) jobs that were looked at, from the oldest to ` +
			`what was created (now|.+ ago), [1-9] jobs? match(es)?\. The operation looks at all, ` +
			`and does this to each that matches\. `).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("AD-020 the dry run says %q", text)
		}
		if h := w.heading(t); h != "Delete all jobs that match?" {
			t.Errorf("AD-020 the page is %q", h)
		}
		w.view(t, "", "-console-bulk-search")
		w.View(t, 1280, false)
		w.Follow(t, "form.panel button.main")
		w.awaitOperation(t, fmt.Sprint(searchedJobs/needleEvery))
	}, "--set", "contracts=relay")
}

// TestConsoleSearchOfDeadLetters: AD-050: dead letters are searched for an error as jobs are.
func TestConsoleSearchOfDeadLetters(t *testing.T) {
	t.Parallel()
	onConsole(t, func(t *testing.T, w *consoleWorld) {
		const deadLetters = 400
		for range deadLetters {
			w.ready(t, "mail")
		}
		for i := 0; i < deadLetters; {
			for _, run := range w.claim(t, "mail", 5, "w") {
				i++
				failure := "no such user" + strings.Repeat(" here", 12_000)
				if i == deadLetters {
					failure = "Needle"
				}
				w.send(t, "POST", "/worker/v1/runs/"+run+"/fail",
					fmt.Sprintf(`{"error":%q,"retryable":false}`, failure), 200)
			}
		}
		w.search(t, "/console/dead-letters/list?error=needle", true)
		w.view(t, "", "-console-dead-letters-search")
		w.View(t, 1280, false)
		w.Click(t, "[data-search] button")
		if got := w.awaitSearch(t); len(got) != 1 {
			t.Errorf("AD-050 found %v", got)
		}
		w.Follow(t, `[data-found=act] a`)
		w.Follow(t, "form.panel button.main")
		w.awaitOperation(t, "1")
	}, "--set", "contracts=taskflow")
}
