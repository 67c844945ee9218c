package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// pipedCommand is a command whose standard input stays open.
type pipedCommand struct {
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	out, err bytes.Buffer
}

func startPiped(t *testing.T, args ...string) *pipedCommand {
	t.Helper()
	c := &pipedCommand{cmd: exec.Command(mustMillrace(t), args...)}
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.err
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	return c
}

func (c *pipedCommand) write(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(c.stdin, text); err != nil {
		t.Fatal(err)
	}
}

// wantExit waits for the command to end by itself, with its standard input still open.
func (c *pipedCommand) wantExit(t *testing.T, code int) {
	t.Helper()
	hang := time.AfterFunc(testTimeout, func() { _ = c.cmd.Process.Kill() })
	defer hang.Stop()
	_ = c.cmd.Wait() // which closes the standard input afterwards
	if c.cmd.ProcessState.ExitCode() != code {
		t.Errorf("it ended with %v, want exit code %d\n%s%s", c.cmd.ProcessState, code, &c.out,
			&c.err)
	}
}

// A line of an input that stays open is sent without waiting for a full batch, and the first signal
// ends the command while it waits for the next line.
func TestEnqueueOfAnOpenPipe(t *testing.T) {
	t.Parallel()
	s := launchNode(t, "data", "--set", "contracts=relay")
	c, err := client.New(client.Config{BaseURL: s.url})
	if err != nil {
		t.Fatal(err)
	}
	for name, signal := range map[string]os.Signal{"INT": os.Interrupt, "TERM": syscall.SIGTERM,
		"HUP": syscall.SIGHUP} {
		e := startPiped(t, "enqueue", "--server", s.url, "--queue", name, "--timeout", "30s",
			"--id-from", "id", "-")
		// The second line is sent when the first has its answer.
		for _, id := range []string{"first", "second"} {
			e.write(t, `{"id":"`+id+`"}`+"\n")
			pollUntil(t.Fatalf, "the line to be sent", func() bool {
				there, err := c.Relay().Exists(t.Context(), name, id)
				return err == nil && there
			})
		}
		if err := e.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		e.wantExit(t, cli.ExitInterrupted)
		if !strings.Contains(e.err.String(), "interrupted; go on with --from-line ") ||
			!strings.Contains(e.err.String(), " was accepted") || e.out.Len() > 0 {
			t.Errorf("%s: it says %s%s", name, &e.out, &e.err)
		}
	}
}

// A graph that is whole is submitted although its input stays open; a signal ends the wait for the
// rest of one that is not.
func TestGraphOfAnOpenPipe(t *testing.T) {
	t.Parallel()
	s := launchNode(t, "data", "--set", "contracts=taskflow")
	whole := startPiped(t, "graph", "submit", "--server", s.url, "-")
	whole.write(t, `{"jobs":[{"ref":"a",`)
	whole.write(t, `"queue":"q"}]}`+"\n")
	whole.wantExit(t, cli.ExitOK)
	if !strings.HasPrefix(whole.out.String(), "a  ") {
		t.Errorf("it says %s%s", &whole.out, &whole.err)
	}
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		half := startPiped(t, "graph", "submit", "--server", s.url, "-")
		// more than a pipe holds: it is being read
		half.write(t, `{"jobs":[{"ref":"a",`+strings.Repeat(" ", 128<<10))
		if err := half.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		half.wantExit(t, cli.ExitInterrupted)
	}
}

// SIGHUP stops a server as SIGTERM does, unless it was started to outlive its terminal.
func TestHangUp(t *testing.T) {
	t.Parallel()
	s := launchNode(t, "data", "--set", "contracts=relay")
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	hang := time.AfterFunc(testTimeout, func() { _ = s.cmd.Process.Kill() })
	defer hang.Stop()
	if <-s.ended; s.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("the server ended with %v", s.cmd.ProcessState)
	}

	nohup := filepath.Join(t.TempDir(), "nohup")
	if err := os.WriteFile(nohup, []byte("#!/bin/sh\ntrap '' HUP\nexec "+mustMillrace(t)+
		" \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := launch(nohup, filepath.Join(t.TempDir(), "data"), nil, "--set", "contracts=relay")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(s.url + "/health/ready")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := s.terminate(); err != nil {
		t.Error(err)
	}
	if strings.Count(s.stderr.String(), "stopped") != 1 {
		t.Errorf("it says %s", s.stderr)
	}
}
