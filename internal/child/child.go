package child

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Process is a program to run.
type Process struct {
	Args      []string // the program and its arguments
	Dir       string
	Env       []string // NAME=VALUE; it has no other variables
	Stdin     io.Reader
	Stderr    io.Writer
	MaxStdout int           // bytes that it may write to its standard output
	Timeout   time.Duration // from its start to its end
	// StopDelay is the time between SIGTERM and SIGKILL where the program has to end before it has
	// finished; 0 is SIGKILL at once.
	StopDelay time.Duration
}

// Why Run has ended a program.
var (
	ErrTimeout = errors.New("child: the program took longer than its time limit")
	ErrOutput  = errors.New("child: the standard output is larger than its limit")
)

// StartError is the error of a program that could not be started.
type StartError struct{ Err error }

// Error implements error.
func (e *StartError) Error() string { return "starting a program: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// pipeDelay is how long Run waits for the standard files of a program that has ended, where a
// process outside its group keeps them open.
const pipeDelay = time.Second

// Run runs the program to its end and returns what it has written to its standard output, of
// MaxStdout bytes at most. No process of its group is left when Run returns. Of several errors the
// first counts: the cause of ctx if that has ended, ErrTimeout or ErrOutput, a StartError, and an
// exec.ExitError.
func (p *Process) Run(ctx context.Context) (stdout []byte, err error) {
	limited, cancel := context.WithTimeoutCause(ctx, p.Timeout, ErrTimeout)
	defer cancel()
	running, stop := context.WithCancelCause(limited)
	defer stop(nil)
	out := &limitedOutput{Head{Max: p.MaxStdout}, func() { stop(ErrOutput) }}
	cmd := exec.CommandContext(running, p.Args[0], p.Args[1:]...)
	cmd.Dir, cmd.Env = p.Dir, append([]string{}, p.Env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Stdin, out, p.Stderr
	cmd.WaitDelay = cmp.Or(p.StopDelay, pipeDelay)
	cmd.Cancel = func() error {
		if p.StopDelay == 0 {
			return SignalGroup(cmd.Process, os.Kill)
		}
		return SignalGroup(cmd.Process, syscall.SIGTERM)
	}
	SetProcessGroup(cmd)
	KillWithParent(cmd)
	// The kernel kills the program when the thread that started it ends, so the thread must live
	// as long as the program.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	if err != nil {
		err = &StartError{err}
	} else {
		err = wait(cmd)
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case running.Err() != nil:
		return out.Text, context.Cause(running)
	case errors.Is(err, exec.ErrWaitDelay):
		return out.Text, nil // it has ended with 0, and something outside its group has its files
	}
	return out.Text, err
}

// Head keeps the first bytes that are written to it and counts all. It never fails, so that the
// program does not see a broken pipe.
type Head struct {
	Max  int
	Text []byte
	Size int64 // of all that was written
}

// Write implements io.Writer.
func (h *Head) Write(b []byte) (int, error) {
	h.Text = append(h.Text, b[:min(len(b), h.Max-len(h.Text))]...)
	h.Size += int64(len(b))
	return len(b), nil
}

// limitedOutput is a Head that calls exceeded when there is more than it keeps.
type limitedOutput struct {
	Head
	exceeded func()
}

// Write implements io.Writer.
func (l *limitedOutput) Write(b []byte) (int, error) {
	n, err := l.Head.Write(b)
	if l.Size > int64(l.Max) {
		l.exceeded()
	}
	return n, err
}

// Tail keeps the last bytes that are written to it. It never fails.
type Tail struct {
	Max  int
	Text []byte
}

// Write implements io.Writer.
func (t *Tail) Write(b []byte) (int, error) {
	t.Text = append(t.Text, b...)
	if over := len(t.Text) - t.Max; over > 0 {
		t.Text = slices.Delete(t.Text, 0, over)
	}
	return len(b), nil
}

// LastLine returns the last line that is not empty, in valid UTF-8.
func (t *Tail) LastLine() string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.Text), "\uFFFD"))
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}
