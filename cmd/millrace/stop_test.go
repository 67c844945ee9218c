package main

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// G-X-13: a process that is asked to stop wakes its long polls, which answer 204 (G-RL-30), and
// exits with 0.
func TestStopUnderLongPoll(t *testing.T) {
	t.Parallel()
	binary := mustWatched(t)
	s, err := launch(binary, filepath.Join(t.TempDir(), "data"), nil, "--set", "shutdown_grace=20s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	statuses := make(chan int, 1)
	go func() {
		req, _ := http.NewRequest(http.MethodGet, s.url+"/v2/queues/q/jobs", nil)
		req.Header.Set("Prefer", "wait=30")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			statuses <- 0
			return
		}
		resp.Body.Close()
		statuses <- resp.StatusCode
	}()
	// The poll has looked for jobs once it shows in the statements, and waits from before that.
	pollUntil(t.Fatalf, "the poll to look for jobs", func() bool {
		resp, err := http.Get(s.url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(text), `statement="ready_numbers"`)
	})
	if err := s.terminate(); err != nil {
		t.Error(err)
	}
	if got := <-statuses; got != http.StatusNoContent {
		t.Errorf("the poll was answered %d, want 204", got)
	}
}
