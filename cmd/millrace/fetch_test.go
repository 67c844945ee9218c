package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/millrace/millrace/client"
)

// scriptOrigin is `origin`: what is to be downloaded, at $ORIGIN. /slow answers when the script
// ends, /once fails at first, what ends in /gone always.
func scriptOrigin(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: origin")
	}
	var failed atomic.Bool
	held := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/gone"):
			http.NotFound(w, r)
		case path == "/once" && failed.CompareAndSwap(false, true):
			w.WriteHeader(http.StatusServiceUnavailable)
		case path == "/slow":
			<-held
		default:
			_, _ = io.WriteString(w, "this is "+path)
		}
	}))
	ts.Defer(func() { close(held); s.Close() })
	ts.Setenv("ORIGIN", s.URL)
}

func TestFetchScreen(t *testing.T) {
	t.Parallel()
	made := func(title string, status client.FetchBoxStatus, done, failed, total int) *fetchedJob {
		return &fetchedJob{Manifest: title,
			FetchBoxJob: client.FetchBoxJob{Status: status, Completed: done, Failed: failed,
				Total: total}}
	}
	jobs := []*fetchedJob{made("a.json", client.FetchCompleted, 4, 0, 4),
		made("b.json", client.FetchInProgress, 1, 1, 4), made("c", client.FetchQueued, 0, 0, 0)}
	for _, c := range []struct {
		columns, lines int
		want           []string
	}{
		{80, 24, []string{
			"a.json [████████████████████████] completed, 4 of 4",
			"b.json [██████xxxxxx············] in_progress, 1 of 4, 1 failed",
			"c      [························] queued, 0 of 0"}},
		{80, 4, []string{ // those that are open first
			"b.json [██████xxxxxx············] in_progress, 1 of 4, 1 failed",
			"c      [························] queued, 0 of 0",
			"and 1 more"}},
		{20, 3, []string{"b.json [██████xxxx…", "and 2 more"}},
	} {
		if got := renderBars(jobs, c.columns, c.lines); !slices.Equal(got, c.want) {
			t.Errorf("%d×%d: got\n%s\nwant\n%s", c.columns, c.lines, strings.Join(got, "\n"),
				strings.Join(c.want, "\n"))
		}
	}
}

// Bars are drawn over the last ones, and what is said stays above them.
func TestFetchBars(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	b := &fetchBars{out: &out, size: func() (int, int, error) {
		return 0, 0, fmt.Errorf("no terminal")
	}}
	jobs := []*fetchedJob{{Manifest: "a",
		FetchBoxJob: client.FetchBoxJob{Status: client.FetchQueued, Total: 1}}}
	first := renderBars(jobs, 80, 24)[0] + "\n"
	b.show(jobs)
	b.show(jobs)
	b.printf("away")
	b.show(jobs)
	b.end()
	const over = "\x1b[1A\r\x1b[J"
	if want := first + over + first + over + "away\n" + first + over; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestManifestOf(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 200)
	got, err := manifestOf([]string{"http://x/a/logo.png?v=1", "http://x", "http://y/a/logo.png",
		"http://x/../..", "http://x/" + long})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"manifest_version":"v1","metadata":{},"resources":[` +
		`{"id":"001-logo.png","url":"http://x/a/logo.png?v=1"},{"id":"002","url":"http://x"},{"id":"003-logo.png","url":"http://y/a/logo.png"},` +
		`{"id":"004","url":"http://x/../.."},{"id":"005-` + long[:2*124] + `","url":"http://x/` +
		long + `"}]}`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestReadMoment(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{"": "0001-01-01T00:00:00Z",
		"36h": "2026-03-01T00:00:00Z", "2026-03-01": "2026-03-01T00:00:00Z",
		"2026-03-01T10:00:00+02:00": "2026-03-01T08:00:00Z", "yesterday": "error", "-": "error"} {
		at, err := parseTimeOrAge(now, "--since", text)
		got := at.UTC().Format(time.RFC3339Nano)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}
