package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/millrace/millrace/internal/httpapi"
)

func TestPreferWait(t *testing.T) {
	t.Parallel()
	type lines = []string
	for _, c := range []struct {
		lines   lines
		seconds int
		given   bool
	}{
		{nil, 0, false},
		{lines{"wait=10"}, 10, true},
		{lines{"WAIT = 10 "}, 10, true},
		{lines{`wait="7"`}, 7, true},
		{lines{"wait=0"}, 0, true},
		{lines{"respond-async, wait=5;x=1, wait=9"}, 5, true},
		{lines{"respond-async", "wait=3"}, 3, true},
		{lines{"wait=-1"}, 0, false},
		{lines{"wait=1.5"}, 0, false},
		{lines{"wait"}, 0, false},
		{lines{"wait="}, 0, false},
		{lines{"wait=soon, wait=4"}, 4, true},
		{lines{"waiting=4"}, 0, false},
		{lines{`foo="a, wait=5"`}, 0, false},
		{lines{`foo="\", wait=5", wait=6`}, 6, true},
		{lines{"wait=99999999999999999999999"}, 1<<31 - 1, true},
		{lines{`"`, `wait="`, ",,;=,"}, 0, false},
	} {
		seconds, given := httpapi.PreferWait(http.Header{"Prefer": c.lines})
		if seconds != c.seconds || given != c.given {
			t.Errorf("%q: got %d %v, want %d %v", c.lines, seconds, given, c.seconds, c.given)
		}
	}
}

// FuzzPreferWait: any header is read without harm, and what counts is a number.
func FuzzPreferWait(f *testing.F) {
	for _, seed := range []string{"wait=10", `a="b\", c", wait=1`, "wait=", `"`, ";;,=\\"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if seconds, given := httpapi.PreferWait(http.Header{"Prefer": {line}}); seconds < 0 ||
			seconds > 1<<31-1 || (!given && seconds != 0) {
			t.Errorf("%q: got %d %v", line, seconds, given)
		}
	})
}
