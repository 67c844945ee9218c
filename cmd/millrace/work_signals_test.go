package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/child"
	"github.com/millrace/millrace/internal/testkit"
)

// idleWorker is a worker of an empty queue, and what it says.
func idleWorker(t *testing.T, server string) (*exec.Cmd, *testkit.LogBuffer) {
	t.Helper()
	output := &testkit.LogBuffer{}
	c := exec.Command(mustMillrace(t), "work", "idle", "--server", server, "--", "cat")
	c.Env, c.Stderr = []string{"PATH=" + os.Getenv("PATH")}, output
	child.SetProcessGroup(c)
	child.KillWithParent(c)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	pollUntil(t.Fatalf, "the worker to wait", func() bool {
		return strings.Contains(output.String(), "waiting for jobs")
	})
	return c, output
}

// TestWorkIdleSignals: where no command runs, nothing is cut off however often somebody asks the
// worker to stop, and however.
func TestWorkIdleSignals(t *testing.T) {
	t.Parallel()
	s := launchNode(t, "data", "--set", "contracts=relay", "--set", "log.level=warn")
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		c, output := idleWorker(t, s.url)
		hang := time.AfterFunc(testTimeout, func() { _ = c.Process.Kill() })
		_ = c.Process.Signal(signal)
		pollUntil(t.Fatalf, "the worker to stop", func() bool {
			return strings.Contains(output.String(), "stopping: no new jobs")
		})
		_ = c.Process.Signal(signal)
		_ = c.Wait()
		hang.Stop()
		text := output.String()
		if c.ProcessState.ExitCode() != cli.ExitOK || strings.Contains(text, "command") {
			t.Errorf("%v: ended with %v: %s", signal, c.ProcessState, text)
		}
	}
}

// TestServeStoppedAtStart: a server that is asked to stop before it listens ends with 0, says
// nothing of the store, and hinders no start.
func TestServeStoppedAtStart(t *testing.T) {
	t.Parallel()
	binary := mustMillrace(t)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		dir, output := filepath.Join(t.TempDir(), "data"), &testkit.LogBuffer{}
		c := exec.Command(binary, "serve", "--config", os.DevNull, "--set", "data_dir="+dir,
			"--set", "listen=127.0.0.1:0")
		c.Stderr = output
		child.SetProcessGroup(c)
		child.KillWithParent(c)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		hang := time.AfterFunc(testTimeout, func() { _ = c.Process.Kill() })
		pollUntil(t.Fatalf, "the start to begin", func() bool {
			_, err := os.Stat(filepath.Join(dir, "millrace.db"))
			return err == nil
		})
		_ = c.Process.Signal(signal)
		_ = c.Wait()
		hang.Stop()
		isQuiet := !strings.Contains(output.String(), "cannot be")
		if c.ProcessState.ExitCode() != cli.ExitOK || !isQuiet {
			t.Errorf("%v: ended with %v: %s", signal, c.ProcessState, output)
		}
		s, err := launch(binary, dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.terminate(); err != nil {
			t.Error(err)
		}
	}
}

// TestWorkOutage: an outage of the server is logged once, and its end once.
func TestWorkOutage(t *testing.T) {
	t.Parallel()
	binary, dir := mustMillrace(t), filepath.Join(t.TempDir(), "data")
	start := func(listen string) *launchedServer {
		t.Helper()
		s, err := launch(binary, dir, nil, "--set", "log.level=warn", "--set", "listen="+listen)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.kill)
		return s
	}
	s := start("127.0.0.1:0")
	c, output := idleWorker(t, s.url)
	s.kill()
	const unanswered, answered = "the server does not answer", "the server answers again"
	pollUntil(t.Fatalf, unanswered, func() bool {
		return strings.Contains(output.String(), unanswered)
	})
	start(strings.TrimPrefix(s.url, "http://"))
	if status, text := sendRequest(t, "POST", s.url+"/v2/queues/jobs",
		`[{"queue":"idle","id":"1","timeout":9,"payload":1}]`,
		"Content-Type", "application/json"); status != 202 {
		t.Fatalf("got %d %s", status, text)
	}
	pollUntil(t.Fatalf, answered, func() bool {
		return strings.Contains(output.String(), answered)
	})
	_ = c.Process.Signal(syscall.SIGTERM)
	_ = c.Wait()
	if text := output.String(); strings.Count(text, unanswered) != 1 ||
		strings.Count(text, answered) != 1 ||
		strings.Contains(text, "poll failed") {
		t.Error(text)
	}
}
