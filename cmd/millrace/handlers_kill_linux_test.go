package main

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/testkit"
)

// stubborn is a command that ignores SIGTERM and ends when there is a file "go". Each of its
// processes is a line in the file "pids".
const stubborn = `
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1] + "/pids", "a") as f:
    print(os.getpid(), file=f)
while not os.path.exists(sys.argv[1] + "/go"):
    time.sleep(0.02)
print(os.environ["MILLRACE_ATTEMPT"])
`

// G-TF-41 A command ends with its server, however that ends, and its job is executed again: after
// a stop with all its attempts, after a kill with one less.
func TestHandlerEndsWithItsServer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end      func(*testing.T, *launchedServer)
		attempts int
	}{
		"killed": {func(_ *testing.T, s *launchedServer) { s.kill() }, 1},
		"stopped": {func(t *testing.T, s *launchedServer) {
			if err := s.terminate(); err != nil {
				t.Error(err)
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			mustWriteFile(t, dir, "stubborn.py", []byte(stubborn))
			mustWriteFile(t, dir, "millrace.toml", []byte(`contracts = ["taskflow"]
shutdown_grace = "1s"
[taskflow]
lease = "2s"
[taskflow.queues.slow]
handler = "exec"
command = ["`+testkit.Python(t)+`", "`+dir+`/stubborn.py", "`+dir+`"]
timeout = "10m"
`))
			start := func() (*launchedServer, *client.TaskFlow) {
				s := launchIn(t, filepath.Join(dir, "data"), "--config",
					filepath.Join(dir, "millrace.toml"))
				c, err := client.New(client.Config{BaseURL: s.url})
				if err != nil {
					t.Fatal(err)
				}
				return s, c.TaskFlow()
			}
			s, api := start()
			j, err := api.Submit(t.Context(), client.TaskFlowSpec{Name: "n", Queue: "slow",
				Retry: client.TaskFlowRetryPolicy{MaxAttempts: 2, BaseDelay: time.Second,
					Strategy: client.TaskFlowBackoffFixed}})
			if err != nil {
				t.Fatal(err)
			}
			pid := awaitProcess(t, dir)
			tt.end(t, s)
			pollUntil(t.Fatalf, "the end of the command", func() bool {
				return syscall.Kill(pid, 0) == syscall.ESRCH
			})
			mustWriteFile(t, dir, "go", nil)
			_, api = start()
			pollUntil(t.Fatalf, "the end of the job", func() bool {
				j, err = api.Get(t.Context(), j.ID)
				return err == nil && j.Status == client.TaskFlowStatusCompleted
			})
			if j.FailedAttempts != tt.attempts || string(j.Result) != strconv.Itoa(tt.attempts+1) {
				t.Errorf("the job is %+v", j)
			}
			left, err := filepath.Glob(filepath.Join(dir, "data/commands/taskflow/slow/*"))
			if err != nil || len(left) > 0 {
				t.Errorf("%v are left, %v", left, err)
			}
		})
	}
}

// awaitProcess waits for the process of a command and returns its id.
func awaitProcess(t *testing.T, dir string) (pid int) {
	t.Helper()
	pollUntil(t.Fatalf, "the command", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "pids"))
		line := string(text)
		if len(line) == 0 || line[len(line)-1] != '\n' {
			return false
		}
		var err error
		pid, err = strconv.Atoi(line[:len(line)-1])
		return err == nil
	})
	return pid
}
