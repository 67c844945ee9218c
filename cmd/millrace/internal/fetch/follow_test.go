package fetch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
)

func TestRenderBars(t *testing.T) {
	t.Parallel()
	made := func(title string, status client.FetchBoxStatus, done, failed, total int) *followedJob {
		return &followedJob{Manifest: title,
			FetchBoxJob: client.FetchBoxJob{Status: status, Completed: done, Failed: failed,
				Total: total}}
	}
	jobs := []*followedJob{made("a.json", client.FetchBoxStatusCompleted, 4, 0, 4),
		made("b.json", client.FetchBoxStatusInProgress, 1, 1, 4),
		made("c", client.FetchBoxStatusQueued, 0, 0, 0)}
	for _, c := range []struct {
		columns, lines int
		want           []string
	}{
		{80, 24, []string{
			"a.json [████████████████████████] completed, 4 of 4",
			"b.json [██████xxxxxx············] in_progress, 1 of 4, 1 failed",
			"c      [························] queued, 0 of 0"}},
		{80, 4, []string{ // jobs that have not ended come first
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

// Bars are drawn in the place of the last ones, and lines stay above them.
func TestBarReporter(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	b := &barReporter{out: &out, size: func() (int, int, error) {
		return 0, 0, fmt.Errorf("no terminal")
	}}
	jobs := []*followedJob{{Manifest: "a",
		FetchBoxJob: client.FetchBoxJob{Status: client.FetchBoxStatusQueued, Total: 1}}}
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
