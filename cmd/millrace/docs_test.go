package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/testkit"
)

// pythonOf writes the Python program of a page of docs to a file; replace are pairs of a text of it
// and what the test has in its place.
func pythonOf(t *testing.T, page string, replace ...string) (python, file string) {
	t.Helper()
	python = testkit.Python(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```python\n")
	program, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("there is no program in ", page)
	}
	for i := 0; i < len(replace); i += 2 {
		if strings.Count(program, replace[i]) != 1 {
			t.Fatalf("the program of %s does not have %q once", page, replace[i])
		}
		program = strings.Replace(program, replace[i], replace[i+1], 1)
	}
	file = filepath.Join(t.TempDir(), "program.py")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	return python, file
}

// The producer of docs/producers.md does what the page says.
func TestProducerOfTheDocs(t *testing.T) {
	t.Parallel()
	python, file := pythonOf(t, "producers.md")
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.URL.Path))
	}))
	t.Cleanup(origin.Close)
	address := freeAddress(t)
	s := launchNode(t, "data", "--set", "stream.listen="+address)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, python, file, address, origin.URL+"/a",
		origin.URL+"/b").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c, err := client.New(client.Config{BaseURL: s.url})
	if err != nil {
		t.Fatal(err)
	}
	id, done := strings.TrimSpace(string(out)), client.FetchBoxJob{}
	// a job is there when its first task was taken in
	pollUntil(t.Fatalf, "both downloads", func() bool {
		done, err = c.FetchBox().Job(ctx, id)
		return err == nil && done.Completed == 2
	})
	if done.Type != "default" || done.Failed != 0 || !done.Status.Final() {
		t.Errorf("the job is %+v", done)
	}
}
