package enqueue

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// enqueueLines runs the command on lines of payloads and returns what it wrote and its error.
func enqueueLines(t *testing.T, server http.Handler, in string, args ...string) (out,
	errs string, err error) {
	t.Helper()
	s := httptest.NewServer(server)
	defer s.Close()
	var stdout, stderr bytes.Buffer
	started := time.Now()
	c := Command(cli.Process{Stdin: strings.NewReader(in), Stdout: &stdout, Stderr: &stderr,
		Now: time.Now, Elapsed: func() time.Duration { return time.Since(started) }})
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(append([]string{"--server", s.URL, "--queue", "q", "--timeout", "9s",
		"--connections", "1", "--batch", "1"}, args...))
	err = c.ExecuteContext(context.WithoutCancel(t.Context()))
	return stdout.String(), stderr.String(), err
}

// While the server is unavailable batches are tried again, more often than the SDK would, and the
// input is not lost.
func TestEnqueue_goesOnAfterAnOutage(t *testing.T) {
	t.Parallel()
	for _, status := range []int{429, 502, 503, 504} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			out, errs, err := enqueueLines(t, http.HandlerFunc(func(w http.ResponseWriter,
				_ *http.Request) {
				if n := requests.Add(1); n > 1 && n < 5 {
					w.WriteHeader(status)
					return
				}
				w.WriteHeader(http.StatusAccepted)
			}), "1\n2\n3\n", "-")
			if err != nil || !strings.HasPrefix(out, "3 jobs accepted") || requests.Load() != 6 {
				t.Errorf("%d requests, %v: %s", requests.Load(), err, out)
			}
			if want := "the server is unavailable; trying again for 1m0s"; !strings.Contains(errs,
				want) {
				t.Errorf("standard error lacks %q:\n%s", want, errs)
			}
		})
	}
}

// Only what a repetition can help has the hint to repeat it.
func TestEnqueue_hints(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct {
		code int
		hint string
	}{
		http.StatusTooManyRequests:     {cli.ExitServer, "; go on with --from-line 2: "},
		http.StatusServiceUnavailable:  {cli.ExitServer, "; go on with --from-line 2: "},
		http.StatusUnauthorized:        {cli.ExitUnauthorized, ""},
		http.StatusConflict:            {cli.ExitFailed, ""},
		http.StatusNotFound:            {cli.ExitFailed, ""},
		http.StatusInternalServerError: {cli.ExitFailed, ""},
	} {
		var requests atomic.Int64
		accepted := int64(1)
		if want.hint == "" {
			accepted = 0
		}
		out, _, err := enqueueLines(t, http.HandlerFunc(func(w http.ResponseWriter,
			_ *http.Request) {
			if requests.Add(1) <= accepted {
				w.WriteHeader(http.StatusAccepted)
				return
			}
			w.WriteHeader(status)
		}), "1\n2\n", "--retry-for", "0", "-")
		if err == nil || cli.ExitCode(err) != want.code || out != "" ||
			requests.Load() != accepted+1 {
			t.Fatalf("%d: %d requests, exit code %d: %v", status, requests.Load(),
				cli.ExitCode(err), err)
		}
		if want.hint == "" && (strings.Contains(err.Error(), "again") ||
			strings.Contains(err.Error(), "--from-line")) {
			t.Errorf("%d has a hint: %v", status, err)
		}
		if !strings.Contains(err.Error(), want.hint) {
			t.Errorf("%d lacks %q: %v", status, want.hint, err)
		}
	}
}

// A server without TLS is not tried again under https.
func TestEnqueue_wrongScheme(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	started := time.Now()
	_, errs, err := enqueueLines(t, http.NotFoundHandler(), "1\n", "--server",
		strings.Replace(s.URL, "http", "https", 1), "-")
	if cli.ExitCode(err) != cli.ExitServer || strings.Contains(err.Error(), "again") ||
		!strings.Contains(err.Error(), "with http://") || errs != "" {
		t.Errorf("after %s: %v\n%s", time.Since(started), err, errs)
	}
}
