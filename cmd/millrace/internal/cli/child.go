package cli

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/child"
)

// Child is a process of this same binary. It ends when its standard input does, so that it never
// outlives its parent, however the parent ends.
type Child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	// lines reads the standard output of the process.
	lines *bufio.Scanner
	// Done is closed when the process has ended.
	Done chan struct{}
	// err is how the process ended. It is set before Done is closed.
	err error
}

// StartChild starts a subcommand in a process group of its own, so that Ctrl-C reaches the parent
// alone. Its standard error is stderr.
func StartChild(p Process, stderr io.Writer, args ...string) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Env = childEnviron(p.Environ)
	cmd.Stderr = stderr
	child.SetProcessGroup(cmd)
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
	return &Child{cmd: cmd, stdin: stdin, lines: bufio.NewScanner(stdout),
		Done: make(chan struct{})}, nil
}

// childEnviron leaves the settings out: the server of a demo or a bench has the defaults.
func childEnviron(environ []string) []string {
	var filtered []string
	for _, pair := range environ {
		if !strings.HasPrefix(pair, "MILLRACE_") {
			filtered = append(filtered, pair)
		}
	}
	return filtered
}

// Read calls fn with every line of standard output, until the process has ended. It must be called
// once.
func (c *Child) Read(fn func(line string)) {
	go func() {
		defer close(c.Done)
		for c.lines.Scan() {
			fn(c.lines.Text())
		}
		c.err = c.cmd.Wait()
	}()
}

// Kill ends the process as a crash would.
func (c *Child) Kill() { _ = c.cmd.Process.Kill() }

// Stop asks the process to end, and kills it when it does not.
func (c *Child) Stop(timeout time.Duration) {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	_ = c.stdin.Close()
	select {
	case <-c.Done:
	case <-time.After(timeout):
		c.Kill()
		<-c.Done
	}
}

// ListeningOn comes before the address in the line that serve prints first. A command that starts
// a server reads the address there.
const ListeningOn = " listening on "

// ServerChild is a server with a data directory of its own.
type ServerChild struct {
	*Child
	URL string
}

// StartServer starts a server of embedded defaults whose data is in dir, on a port of its own, and
// waits until it listens.
func StartServer(ctx context.Context, p Process, dir string, settings ...string) (*ServerChild,
	error) {
	args := []string{"serve", "--config", os.DevNull, "--until-stdin-ends", "--set",
		"data_dir=" + dir, "--set", "listen=127.0.0.1:0", "--set", "log.level=warn"}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	c, err := StartChild(p, p.Stderr, args...)
	if err != nil {
		return nil, err
	}
	listening := make(chan string, 1)
	c.Read(func(line string) {
		if _, url, ok := strings.Cut(line, ListeningOn); ok {
			listening <- strings.Fields(url)[0]
		}
	})
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	select {
	case url := <-listening:
		return &ServerChild{c, url}, nil
	case <-c.Done:
		return nil, FailedError("the server ended at once: %v", c.err)
	case <-limit.C:
		err = FailedError("the server did not start within 30 s")
	case <-ctx.Done():
		err = ErrInterrupted
	}
	c.Kill()
	<-c.Done
	return nil, err
}
