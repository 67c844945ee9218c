package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// screen is a program on a terminal of 80 by 24.
type screen struct {
	*testing.T
	near, far *os.File
	cmd       *exec.Cmd
	ended     chan struct{}

	mu     sync.Mutex
	output strings.Builder // since it was cleared
	all    strings.Builder
}

// startOnScreen starts the program on a terminal.
func startOnScreen(t *testing.T, args ...string) *screen {
	t.Helper()
	s := &screen{T: t, ended: make(chan struct{})}
	s.near, s.far = openTerminal(t)
	s.resize(80, 24)
	s.cmd = boundedCommand(t, mustMillrace(t), args...)
	s.cmd.Env = append(os.Environ(), "TERM=xterm-256color", "HOME="+t.TempDir())
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.far, s.far, s.far
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(s.ended); _ = s.cmd.Wait() }()
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); <-s.ended })
	go func() {
		chunk := make([]byte, 1<<16)
		for {
			n, err := s.near.Read(chunk)
			s.mu.Lock()
			s.output.Write(chunk[:n])
			s.all.Write(chunk[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

// resize changes the size of the terminal.
func (s *screen) resize(width, height uint16) {
	s.Helper()
	if err := unix.IoctlSetWinsize(int(s.far.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Col: width, Row: height}); err != nil {
		s.Fatal(err)
	}
}

// controls are the sequences that move, erase and colour.
var controls = regexp.MustCompile(`\x1b(\[[0-9;?>=$]*[a-zA-Z@]|[()][0-9A-B]|[>=78M])`)

// await waits until the program has drawn a text since the screen was cleared.
func (s *screen) await(text string) {
	s.Helper()
	pollUntil(func(format string, args ...any) {
		s.Fatalf(format+"; the screen got %q", append(args, s.text())...)
	}, text+" on the screen", func() bool { return strings.Contains(s.text(), text) })
}

// text returns what was drawn since the screen was cleared.
func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return controls.ReplaceAllString(s.output.String(), "")
}

// press presses keys. What was drawn before them is forgotten.
func (s *screen) press(keys string) {
	s.Helper()
	s.mu.Lock()
	s.output.Reset()
	s.mu.Unlock()
	if _, err := io.WriteString(s.near, keys); err != nil {
		s.Fatal(err)
	}
}

// TestTop (CL-003): on a terminal of 80 by 24 `millrace top` shows a server live, pauses a queue,
// opens a job, goes on after a restart of the server, and never erases the screen to redraw it.
func TestTop(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(testing.TB) string{
		"sqlite":   func(testing.TB) string { return "sqlite" },
		"postgres": func(tb testing.TB) string { return pgtest.URL(tb) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testTop(t, store(t))
		})
	}
}

func testTop(t *testing.T, store string) {
	dir := filepath.Join(t.TempDir(), "data")
	args := []string{"--set", "store=" + store, "--set", "listen=" + freeAddress(t), "--set",
		"log.level=warn"}
	server := launchIn(t, dir, args...)
	token, err := os.ReadFile(filepath.Join(dir, "operator.token"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{BaseURL: server.url,
		Token: strings.TrimSpace(string(token))})
	if err != nil {
		t.Fatal(err)
	}
	operator := c.Admin()
	submit := func(queue string) int64 {
		t.Helper()
		j, err := operator.SubmitJob(t.Context(), client.AdminSubmission{Contract: "taskflow",
			Request: []byte(`{"name":"a","queue":"` + queue + `"}`)})
		if err != nil {
			t.Fatal(err)
		}
		return j.Number
	}
	submit("first")
	s := startOnScreen(t, "top", "--server", server.url, "--token",
		strings.TrimSpace(string(token)), "--interval", "200ms")
	s.await("taskflow/first")
	submit("second")
	s.await("taskflow/second")
	for _, want := range []string{"paused", "resumed"} {
		s.press("p")
		s.await(want + " taskflow/first")
		for q, err := range operator.Queues(t.Context(), client.AdminQueueFilter{NameContains: "first"}) {
			if err != nil || q.Paused != (want == "paused") {
				t.Errorf("after %s the queue is %+v, %v", want, q, err)
			}
		}
	}
	s.press("d")
	s.press("g1\r")
	s.await("No worker has")
	server.kill()
	s.await("no answer, trying again")
	server = launchIn(t, dir, args...)
	s.press("\x1b")
	submit("third")
	s.await("third")
	s.mu.Lock()
	drawn := s.all.String()
	s.mu.Unlock()
	if n := strings.Count(drawn, "\x1b[2J"); n > 1 {
		t.Errorf("the screen is erased %d times", n)
	}
	s.press("q")
	<-s.ended
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it ends with %d", code)
	}
	if err := server.terminate(); err != nil {
		t.Error(err)
	}
}

// TestWatchNames (CL-002): a list that repeats on a narrow terminal has the line about the columns
// that it leaves out on its page, where the next repetition does not erase it.
func TestWatchNames(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	server := launchIn(t, dir, "--set", "listen="+freeAddress(t), "--set", "log.level=warn")
	s := startOnScreen(t, "workers", "list", "--watch=100ms", "--server", server.url,
		"--set", "data_dir="+dir)
	pollUntil(t.Fatalf, "a second page with its line", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Count(s.all.String(), "; --columns shows them\x1b[K\r\n") > 1
	})
}

// Without a terminal, with a wrong token or an interval of nothing, top says so.
func TestTopIsRefused(t *testing.T) {
	t.Parallel()
	server := launchNode(t, "data")
	out, err := boundedCommand(t, mustMillrace(t), "top", "--server", server.url).CombinedOutput()
	if code := exitCode(err); code != 2 || !strings.Contains(string(out), "terminal") {
		t.Errorf("CL-003 without a terminal it ends with %d: %s", code, out)
	}
	for _, tt := range []struct {
		args []string
		code int
		text string
	}{{[]string{"--token", "wrong"}, 5, "token"}, {[]string{"--interval", "0s"}, 2, "interval"}} {
		s := startOnScreen(t, append([]string{"top", "--server", server.url}, tt.args...)...)
		<-s.ended
		s.await(tt.text)
		if code := s.cmd.ProcessState.ExitCode(); code != tt.code {
			t.Errorf("%v ends with %d", tt.args, code)
		}
	}
}

// exitCode returns the code of a command that was run.
func exitCode(err error) int {
	if exit, is := err.(*exec.ExitError); is {
		return exit.ExitCode()
	}
	return 0
}
