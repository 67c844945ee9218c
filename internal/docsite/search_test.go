package docsite

import (
	"net/url"
	"strings"
	"testing"
)

// What users look for is found first.
func TestSearch(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"relay":                       "/docs/relay",
		"Schedules":                   "/docs/schedules",
		"a webhook is disabled":       "/docs/operating#a-webhook-is-disabled",
		"`taskflow.lease`":            "/docs/reference/settings#taskflow",
		"DOWNLOAD_CHECKSUM_MISMATCH":  "/docs/reference/errors#failed-downloads",
		"backup restore":              "/docs/backup#restore",
		"complete several jobs relay": "/docs/api/relay#completeRuns",
		"graphs":                      "/docs/taskflow#graphs",
	} {
		found := world().search().find(query)
		if len(found) == 0 || found[0].URL != want {
			t.Errorf("%q finds %d sections, want %s first: %.3v", query, len(found), want, found)
		}
	}
}

// The page shows what was asked for, escaped, and says when there is nothing.
func TestSearchPage(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"heartbeat lease":  "<mark>heartbeat</mark>",
		"<script>x":        "Nothing has all of these words",
		"":                 "Words that a section has",
		"\xff\x00":         "Words that a section has",
		"e":                "There may be more",
		"ſ Ⱥ İ":            "Nothing has all of these words",
		"ö":                "Nothing has all of these words",
		`"wait" + 1 or 1=`: "Nothing has all of these words",
	} {
		w := get(t, searchPath+"?q="+url.QueryEscape(query))
		page := w.Body.String()
		if w.Code != 200 || !strings.Contains(page, want) || strings.Contains(page, "<script>x") {
			t.Errorf("%q answers %d without %s: %s", query, w.Code, want, page)
		}
	}
	long := get(t, searchPath+"?q="+strings.Repeat("%C3%A9", 1000))
	if long.Code != 200 || strings.Count(long.Body.String(), "é") > 2*maxQuery {
		t.Errorf("a long query answers %d with %d bytes", long.Code, long.Body.Len())
	}
}

// An excerpt stands around the first word, and has no half of a letter.
func TestExcerpt(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("é ", 100) + "a lease ends" + strings.Repeat(" ö", 300)
	var shown strings.Builder
	for _, f := range excerpt(text, []string{"lease", "ends"}) {
		if f.IsMark {
			shown.WriteString("[" + f.Text + "]")
		} else {
			shown.WriteString(f.Text)
		}
	}
	got := shown.String()
	if !strings.Contains(got, "é a [lease] [ends] ö") || strings.Contains(got, "\ufffd") ||
		!strings.HasPrefix(got, "… ") || !strings.HasSuffix(got, " …") {
		t.Errorf("got %q", got)
	}
}
