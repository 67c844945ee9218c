package external_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/child"
	"github.com/millrace/millrace/internal/external"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/testkit"
)

// The test binary is its own child, through which commands are started.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == child.Subcommand {
		os.Exit(child.Exec(os.Args[2:], os.Environ(), os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// world is where commands run.
type world struct {
	factory external.Factory
	dir     string // of the commands
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	return &world{external.Factory{Child: []string{os.Args[0], child.Subcommand},
		Environ: child.Environ(os.Environ()), Dir: dir}, filepath.Join(dir, "q")}
}

// python returns a command that is a program in Python; change may be nil.
func (w *world) python(t *testing.T, program string,
	change func(*external.Settings)) external.Handler {
	t.Helper()
	s := external.Defaults()
	s.Command, s.Timeout = []string{testkit.Python(t), "-c", program}, testkit.WaitTimeout
	if change != nil {
		change(&s)
	}
	h, err := w.factory.New("q", external.Exec, &s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func theCall(body string) *external.Call {
	return &external.Call{ID: "j", Body: []byte(body),
		Names: []external.Name{{Name: "Job-Id", Value: "j"}, {Name: "Attempt", Value: "1"}}}
}

// nothingLeft fails if a call has left something in the directory of the commands.
func (w *world) nothingLeft(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(w.dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%d directories are left, %v", len(left), err)
	}
}

// G-TF-41 A command gets the call on its standard input, and what its surroundings are.
func TestSurroundings(t *testing.T) {
	t.Setenv("MILLRACE__OPERATOR__TOKEN", "hush")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hush")
	w := newWorld(t)
	h := w.python(t, `
import json, os, sys, tempfile
open("a file", "w").close()
print(json.dumps({"in": json.load(sys.stdin), "dir": os.getcwd(), "temp": tempfile.gettempdir(),
    "environ": {n: v for n, v in os.environ.items() if n not in ("PATH", "HOME")},
    "files": os.listdir("."), "group": os.getpgrp() == os.getpid()}))
print("a line", file=sys.stderr)
`, func(s *external.Settings) {
		s.Environment = map[string]setting.Secret{"KEY": setting.NewSecret("mine")}
	})
	answer, err := h.Call(t.Context(), theCall(`{"n":[1]}`))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		In        json.RawMessage
		Dir, Temp string
		Environ   map[string]string
		Files     []string
		Group     bool
	}
	if err := json.Unmarshal(answer.Body, &got); err != nil {
		t.Fatal(err)
	}
	e := got.Environ
	if string(got.In) != `{"n": [1]}` || got.Dir != got.Temp || len(got.Files) != 1 || !got.Group ||
		filepath.Dir(got.Dir) != w.dir || e["KEY"] != "mine" || e["MILLRACE_JOB_ID"] != "j" ||
		e["MILLRACE_ATTEMPT"] != "1" || answer.Log != "a line\n" {
		t.Errorf("got %s and %q", answer.Body, answer.Log)
	}
	if strings.Contains(string(answer.Body), "hush") {
		t.Errorf("a secret is in %s", answer.Body)
	}
	w.nothingLeft(t)

	there := t.TempDir()
	h = w.python(t, "import os; print(os.getcwd())", func(s *external.Settings) {
		s.Directory = there
	})
	answer, err = h.Call(t.Context(), theCall(""))
	if strings.TrimSpace(string(answer.Body)) != there || err != nil {
		t.Errorf("got %q, %v", answer.Body, err)
	}
}

// G-TF-41 What each end of a command means.
func TestFailures(t *testing.T) {
	t.Parallel()
	retryable := func(kind, message string) *external.Failure {
		return &external.Failure{Type: kind, Message: message, Retryable: true}
	}
	brief := func(s *external.Settings) { s.Timeout = 3 * time.Second }
	for name, tt := range map[string]struct {
		program string
		change  func(*external.Settings)
		want    *external.Failure
	}{
		"1": {"raise ValueError('no such file')", nil,
			retryable("exit", "ValueError: no such file (exit status 1)")},
		"64": {"import sys; sys.exit(64)", nil,
			&external.Failure{Type: "exit", Message: "exit status 64"}},
		"78": {"import sys; print('bad input', file=sys.stderr); sys.exit(78)", nil,
			&external.Failure{Type: "exit", Message: "bad input (exit status 78)"}},
		"79": {"import sys; sys.exit(79)", nil, retryable("exit", "exit status 79")},
		"127": {"import sys; sys.exit(127)", nil, &external.Failure{Type: "exit",
			Message: "exit status 127", Retryable: true, Missing: true}},
		"a signal": {"import os, signal; os.kill(os.getpid(), signal.SIGKILL)", nil,
			retryable("exit", "signal: killed")},
		"no UTF-8": {`import os; os.write(2, b"a\xff\0b\n"); os._exit(1)`, nil,
			retryable("exit", "a\uFFFD\uFFFDb (exit status 1)")},
		"a long line": {`import os; os.write(2, b"x" * 5000); os._exit(1)`, nil,
			retryable("exit", strings.Repeat("x", 1024)+" (exit status 1)")},
		"time": {"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: signal.pause()",
			brief, retryable("timeout", "the command took longer than 3s")},
		"output": {"import os\nwhile True: os.write(1, b'y' * 65536)",
			func(s *external.Settings) { s.MaxOutput = 1 << 20 },
			retryable("output", "the command wrote more than 1MiB")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			answer, err := w.python(t, tt.program, tt.change).Call(t.Context(), theCall("1"))
			var got *external.Failure
			if !errors.As(err, &got) || *got != *tt.want || len(answer.Body) > 0 {
				t.Errorf("got %+v (%v), want %+v", got, err, tt.want)
			}
			w.nothingLeft(t)
		})
	}
}

// A call that is canceled ends its process, and one that waits for a slot has none.
func TestCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.factory.MaxProcesses = 1
	started := filepath.Join(t.TempDir(), "started")
	h := w.python(t, `
import signal, sys
open(sys.argv[1], "w").close()
while True: signal.pause()
`, func(s *external.Settings) { s.Command = append(s.Command, started) })
	gone := errors.New("the run is lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 2)
	call := func() {
		_, err := h.Call(ctx, theCall("1"))
		ended <- err
	}
	go call()
	testkit.WaitUntil(t, "the process", func() bool {
		_, err := os.Stat(started)
		return err == nil
	})
	go call()
	cancel(gone)
	for range 2 {
		if err := <-ended; !errors.Is(err, gone) {
			t.Errorf("got %v", err)
		}
	}
	w.nothingLeft(t)
}

// What a command lacks at the start of a node is an error of the start, and what a crash has left
// is removed then.
func TestNew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, change := range map[string]func(*external.Settings){
		"no program":      func(s *external.Settings) { s.Command = []string{"no-such-program"} },
		"no such file":    func(s *external.Settings) { s.Command = []string{"./x"} },
		"no command":      func(s *external.Settings) { s.Command = nil },
		"no time limit":   func(s *external.Settings) { s.Timeout = 0 },
		"no output limit": func(s *external.Settings) { s.MaxOutput = 0 },
	} {
		s := external.Defaults()
		s.Command = []string{"cat"}
		change(&s)
		if _, err := w.factory.New("q", external.Exec, &s); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	if err := os.MkdirAll(filepath.Join(w.dir, "run-1", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\ncat >&2; exit 3\n"
	if err := os.WriteFile(filepath.Join(dir, "run"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s := external.Defaults()
	s.Command, s.Directory = []string{"./run"}, dir
	h, err := w.factory.New("q", external.Exec, &s)
	if err != nil {
		t.Fatal(err)
	}
	w.nothingLeft(t)
	if err := os.Remove(filepath.Join(dir, "run")); err != nil {
		t.Fatal(err)
	}
	var missing *external.Failure
	if _, err := h.Call(t.Context(), theCall("1")); !errors.As(err, &missing) || !missing.Missing {
		t.Errorf("a program that is not there any more: %v", err)
	}
}
