package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// TestForeignServer: a command that is sent to another web server says so in one line, with the
// status, and does not print the page.
func TestForeignServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mustWriteFile(t, dir, "picture.jpg", largeJPEG())
	mustWriteFile(t, dir, "graph.json", []byte(`{"jobs":[{"ref":"a","queue":"q"}]}`))
	mustWriteFile(t, dir, "job.jsonl", []byte(`{"queue":"q","id":"1","timeout":1,"payload":1}`))
	for _, status := range []int{http.StatusOK, http.StatusNotFound, http.StatusNotImplemented} {
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(status)
			_, _ = w.Write([]byte("<!DOCTYPE html>\n<html><body>another\nserver</body></html>\n"))
		}))
		t.Cleanup(other.Close)
		for name, args := range map[string][]string{
			"enqueue":      {"enqueue", filepath.Join(dir, "job.jsonl")},
			"graph submit": {"graph", "submit", filepath.Join(dir, "graph.json")},
			"images put":   {"images", "put", filepath.Join(dir, "picture.jpg")},
			"fetch":        {"fetch", "--url", "http://origin.test/a"},
			"export":       {"export"},
			"work":         {"work", "q", "--quiet", "--", "cat"},
			"work images":  {"work", "--contract", "images", "process_file", "--quiet", "--", "cat"},
		} {
			t.Run(name+" "+http.StatusText(status), func(t *testing.T) {
				t.Parallel()
				c := exec.Command(mustMillrace(t), args...)
				c.Env = []string{"PATH=" + os.Getenv("PATH"), "MILLRACE_SERVER=" + other.URL}
				out, err := c.CombinedOutput()
				var exit *exec.ExitError
				text := string(out)
				if !errors.As(err, &exit) || exit.ExitCode() != cli.ExitServer ||
					!strings.Contains(text, "this is not a Millrace server") ||
					!strings.Contains(text, http.StatusText(status)) ||
					strings.Contains(text, "<") || strings.Contains(text, "another") {
					t.Errorf("%v: %s", err, text)
				}
			})
		}
	}
}
