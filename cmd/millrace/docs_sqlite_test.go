package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSQLiteOfTheDocs: the command of docs/sqlite.md does what the page has it for: a file without
// free pages, on which a server starts with its jobs.
func TestSQLiteOfTheDocs(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("sqlite3"); err != nil {
		if os.Getenv("MILLRACE_TEST_REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	commands := codeBlocks(t, "sqlite.md", "sh")
	if len(commands) != 1 {
		t.Fatalf("the page has the commands %q, want VACUUM", commands)
	}
	dir := t.TempDir()
	data := filepath.Join(dir, "millrace-data")
	run := func(command string) {
		t.Helper()
		c := boundedCommand(t, "sh", "-ec", command)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	stop := func(s *launchedServer) {
		t.Helper()
		if err := s.terminate(); err != nil {
			t.Fatal(err)
		}
	}
	check := outageChecks(0)[0]
	s := launchIn(t, data, "--no-workers")
	awaitReady(t, s.url)
	if status, body := check.send(t, s.url); status >= 300 {
		t.Fatalf("%s answers %d %s", check.name, status, body)
	}
	jobs := queuedJobs(t, s.url)
	stop(s)
	run(commands[0])
	s = launchIn(t, data, "--no-workers")
	awaitReady(t, s.url)
	if now := queuedJobs(t, s.url); now != jobs || now == "" {
		t.Errorf("after VACUUM there are %q, want %q", now, jobs)
	}
	stop(s)
}

// queuedJobs returns the metrics that count the jobs of Relay's queues.
func queuedJobs(t *testing.T, url string) string {
	t.Helper()
	_, body := requestCheck{method: "GET", path: "/metrics/relay"}.send(t, url)
	var all strings.Builder
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "relay_queue_jobs") {
			all.WriteString(line)
		}
	}
	return all.String()
}
