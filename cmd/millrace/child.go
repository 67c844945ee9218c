package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// child is a process of this same binary. It ends when its standard input does, so none outlives
// us, however we end.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner // its standard output
	done  chan struct{}  // closed when it has ended
	err   error          // how; read it after done
}

// startChild starts a subcommand in a process group of its own, so that Ctrl-C is ours to handle.
// Its errors go to stderr.
func startChild(p process, stderr io.Writer, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Env = childEnviron(p.environ)
	cmd.Stderr = stderr
	setProcessGroup(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &child{cmd: cmd, stdin: stdin, lines: bufio.NewScanner(stdout),
		done: make(chan struct{})}, nil
}

// childEnviron leaves settings out: what a demo or a bench starts has the defaults.
func childEnviron(environ []string) []string {
	var filtered []string
	for _, pair := range environ {
		if !strings.HasPrefix(pair, "MILLRACE_") {
			filtered = append(filtered, pair)
		}
	}
	return filtered
}

// readTo gives fn every line of standard output and then waits for the process. It must be called,
// once.
func (c *child) read(fn func(line string)) {
	go func() {
		defer close(c.done)
		for c.lines.Scan() {
			fn(c.lines.Text())
		}
		c.err = c.cmd.Wait()
	}()
}

// kill ends the process as a crash would.
func (c *child) kill() { _ = c.cmd.Process.Kill() }

// stop asks the process to end, and kills it when it does not.
func (c *child) stop(timeout time.Duration) {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	_ = c.stdin.Close()
	select {
	case <-c.done:
	case <-time.After(timeout):
		c.kill()
		<-c.done
	}
}

// serverChild is a server on an empty directory.
type serverChild struct {
	*child
	url string
}

// startServer starts a server of embedded defaults whose data is in dir, on a port of its own, and
// waits until it listens.
func startServer(ctx context.Context, p process, dir string, settings ...string) (*serverChild,
	error) {
	args := []string{"serve", "--config", os.DevNull, "--until-stdin-ends", "--set",
		"data_dir=" + dir, "--set", "listen=127.0.0.1:0", "--set", "log.level=warn"}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	c, err := startChild(p, p.stderr, args...)
	if err != nil {
		return nil, err
	}
	listening := make(chan string, 1)
	c.read(func(line string) {
		if _, url, ok := strings.Cut(line, listeningOn); ok {
			listening <- strings.Fields(url)[0]
		}
	})
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	select {
	case url := <-listening:
		return &serverChild{c, url}, nil
	case <-c.done:
		return nil, failedError("the server ended at once: %v", c.err)
	case <-limit.C:
		err = failedError("the server did not start within 30 s")
	case <-ctx.Done():
		err = errInterrupted
	}
	c.kill()
	<-c.done
	return nil, err
}
