package child_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/child"
	"github.com/millrace/millrace/internal/testkit"
)

// The test binary is its own child: with Subcommand it becomes another program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == child.Subcommand {
		os.Exit(child.Exec(os.Args[2:], os.Environ(), os.Stderr))
	}
	otherMain()
	goleak.VerifyTestMain(m)
}

// shell is a script in a directory that is its whole world.
func shell(dir, script string) *child.Process {
	return &child.Process{Args: []string{"/bin/sh", "-c", script}, Dir: dir, MaxStdout: 1 << 10,
		Env: []string{"PATH=" + os.Getenv("PATH")}, Timeout: testkit.WaitTimeout}
}

// limited has a process started with limits.
func limited(p *child.Process, l child.Limits) *child.Process {
	p.Args = slices.Concat([]string{os.Args[0], child.Subcommand}, l.Arguments(), p.Args)
	return p
}

// alive is a pipe in a directory that is closed when nothing holds it open any more. Scripts open
// it with exec 9>alive.
func alive(t *testing.T, dir string) (opened, closed chan struct{}) {
	t.Helper()
	pipe := filepath.Join(dir, "alive")
	if out, err := exec.Command("mkfifo", pipe).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	opened, closed = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(closed)
		f, err := os.Open(pipe)
		close(opened)
		if err != nil {
			return
		}
		defer f.Close()
		_, _ = f.Read(make([]byte, 1))
	}()
	return opened, closed
}

func TestRun(t *testing.T) {
	t.Setenv("MILLRACE_SECRET", "hush")
	stderr := &child.Tail{Max: 8}
	p := shell(t.TempDir(), "cat; env | grep -c MILLRACE; pwd >&2; echo the last line >&2")
	p.Stdin, p.Stderr = strings.NewReader("in "), stderr
	stdout, err := p.Run(t.Context())
	if string(stdout) != "in 0\n" || string(stderr.Text) != "st line\n" ||
		stderr.LastLine() != "st line" || err != nil {
		t.Errorf("got %q and %q, %v", stdout, stderr.Text, err)
	}
	var exit *exec.ExitError
	_, err = shell(t.TempDir(), "exit 7").Run(t.Context())
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("got %v", err)
	}
	var start *child.StartError
	_, err = (&child.Process{Args: []string{"/nowhere"}, Timeout: time.Hour}).Run(t.Context())
	if !errors.As(err, &start) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// Whatever ends a program, nothing of its group is left, and the program is not waited for.
func TestRunLeavesNothing(t *testing.T) {
	t.Parallel()
	const ignores = "trap '' TERM; exec 9>alive; (trap '' TERM; while :; do sleep 1000; done) & "
	gone := errors.New("the run is lost")
	for name, tt := range map[string]struct {
		script string
		change func(*child.Process)
		cancel bool
		want   error
	}{
		"it ends and leaves a child":         {ignores + "exit 0", nil, false, nil},
		"its time ends, and it ignores TERM": {ignores + "wait; wait", timeout, false, child.ErrTimeout},
		"its output is too long":             {ignores + "exec yes", nil, false, child.ErrOutput},
		"its context ends":                   {ignores + "wait; wait", nil, true, gone},
		"its context ends, killed at once": {ignores + "wait; wait", func(p *child.Process) {
			p.StopDelay = 0
		}, true, gone},
		"it outlives its leader on TERM": {"exec 9>alive; (trap '' TERM; sleep 1000) & wait", nil,
			true, gone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			opened, closed := alive(t, dir)
			p := shell(dir, tt.script)
			p.StopDelay = 50 * time.Millisecond
			if tt.change != nil {
				tt.change(p)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if tt.cancel {
				go func() { <-opened; cancel(gone) }()
			}
			if _, err := p.Run(ctx); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			testkit.Receive(t, "the end of the group", closed)
		})
	}
}

func timeout(p *child.Process) { p.Timeout = 2 * time.Second }

// A program may clean up on SIGTERM.
func TestRunStops(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := shell(dir, "trap 'echo cleaned >done; exit 0' TERM; sleep 1000 & wait")
	p.Timeout, p.StopDelay = 2*time.Second, testkit.WaitTimeout
	_, err := p.Run(t.Context())
	text, _ := os.ReadFile(filepath.Join(dir, "done"))
	if !errors.Is(err, child.ErrTimeout) || string(text) != "cleaned\n" {
		t.Errorf("got %v and %q", err, text)
	}
}

// A process that has left the group keeps nobody waiting: its own files are closed.
func TestRunOfADaemon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := shell(dir, "setsid sh -c 'echo $$ >pid; exec sleep 1000' & until [ -s pid ]; do sleep 0.01; done; echo ok")
	p.StopDelay = 50 * time.Millisecond
	stdout, err := p.Run(t.Context())
	if string(stdout) != "ok\n" || err != nil {
		t.Errorf("got %q, %v", stdout, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error("the daemon does not go on, as docs/handlers.md says it does: ", err)
	}
}

func TestExec(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/nowhere\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args []string
		code int
	}{
		"no program":           {[]string{}, 126},
		"a flag of another":    {[]string{"-x"}, 126},
		"a program of no path": {[]string{"--", "no-such-program"}, 127},
		"no interpreter":       {[]string{"--", script}, 127},
		"not executable":       {[]string{"--", "/etc/passwd"}, 126},
		"a directory":          {[]string{"--", "/"}, 126},
	} {
		c := exec.Command(os.Args[0], append([]string{child.Subcommand}, tt.args...)...)
		out, _ := c.CombinedOutput()
		if code := c.ProcessState.ExitCode(); code != tt.code ||
			!strings.HasPrefix(string(out), "millrace: the command cannot be run: ") {
			t.Errorf("%s: got %d with %s, want %d", name, code, out, tt.code)
		}
	}
}

func TestEnviron(t *testing.T) {
	t.Parallel()
	got := child.Environ([]string{"PATH=/bin", "MILLRACE__OPERATOR__TOKEN=hush", "LC_ALL=C",
		"AWS_SECRET_ACCESS_KEY=hush", "HOME=/root", "PATHS=x", "LANG=C.UTF-8"})
	want := []string{"PATH=/bin", "LC_ALL=C", "HOME=/root", "LANG=C.UTF-8"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestHead(t *testing.T) {
	t.Parallel()
	h := child.Head{Max: 3}
	for _, text := range []string{"", "ab", "cd", "ef"} {
		if n, err := h.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
	}
	if !bytes.Equal(h.Text, []byte("abc")) || h.Size != 6 {
		t.Errorf("got %q of %d", h.Text, h.Size)
	}
}
