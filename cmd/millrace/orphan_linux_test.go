package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A command does not outlive the worker that runs it, whether that is killed itself or gives up on
// one that is deaf to being asked. Each begins by telling its process group.
func TestWorkLeavesNoCommand(t *testing.T) {
	t.Parallel()
	binary := mustMillrace(t)
	server, err := launch(binary, filepath.Join(t.TempDir(), "data"), nil, "--set",
		"contracts=relay", "--set", "log.level=warn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.kill)
	for _, c := range []struct {
		queue, command string
		flags          []string
		signal         syscall.Signal
	}{
		{"killed", "echo $$; exec sleep 600", nil, syscall.SIGKILL},
		{"deaf", "trap '' TERM; echo $$; while :; do sleep 0.05; done",
			[]string{"--drain", "0", "--kill-after", "0"}, syscall.SIGTERM},
		{"deaf-child", "trap exit TERM; (trap '' TERM; echo $$; while :; do sleep 0.05; done) & wait",
			[]string{"--drain", "0", "--kill-after", "50ms"}, syscall.SIGTERM},
	} {
		t.Run(c.queue, func(t *testing.T) {
			body := fmt.Sprintf(`[{"queue":%q,"id":"j","timeout":600,"payload":0}]`, c.queue)
			resp, err := http.Post(server.url+"/v2/queues/jobs", "application/json",
				strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			args := append([]string{"work", "--server", server.url}, c.flags...)
			work := exec.Command(binary, append(args, c.queue, "--", "sh", "-c", c.command)...)
			wantKilledWith(t, work, func() {
				if err := work.Process.Signal(c.signal); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// wantKilledWith starts a worker and, once its command runs, ends it: nothing may go on then.
// Whatever of the command runs holds the worker's standard output.
func wantKilledWith(t *testing.T, work *exec.Cmd, end func()) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	work.Stdout, work.Stderr, work.WaitDelay = in, t.Output(), time.Second
	err = work.Start()
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = work.Process.Kill()
		_ = work.Wait()
	}()
	if err := out.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	output := bufio.NewScanner(out)
	if !output.Scan() {
		t.Fatalf("the command did not begin: %v", output.Err())
	}
	group, err := strconv.Atoi(output.Text())
	if err != nil {
		t.Fatal(err)
	}
	end()
	if output.Scan() || output.Err() != nil {
		t.Errorf("the command goes on: %v", output.Err())
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
}
