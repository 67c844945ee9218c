package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
)

// The producer of docs/producers.md does what the page says.
func TestProducerOfTheDocs(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
			t.Fatal(err)
		}
		t.Skip("skipped: ", err)
	}
	page, err := os.ReadFile("../../docs/producers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```python\n")
	program, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("the page has no producer")
	}
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.URL.Path)) }))
	t.Cleanup(origin.Close)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	s := launchNode(t, "data", "--set", "stream.listen="+address)
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	defer cancel()
	file := filepath.Join(t.TempDir(), "produce.py")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(ctx, python, file, address, origin.URL+"/a", origin.URL+"/b").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c, err := client.New(client.Config{BaseURL: s.url})
	if err != nil {
		t.Fatal(err)
	}
	id, done := strings.TrimSpace(string(out)), client.FetchBoxJob{}
	until(t.Fatalf, "both downloads", func() bool { // a job is there when its first task was taken in
		done, err = c.FetchBox().Job(ctx, id)
		return err == nil && done.Completed == 2
	})
	if done.Type != "default" || done.Failed != 0 || !done.Status.Settled() {
		t.Errorf("the job is %+v", done)
	}
}
