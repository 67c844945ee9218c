package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
)

// Process is what the operating system gives a command: its arguments, environment, standard files
// and clocks.
type Process struct {
	Args    []string
	Environ []string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Now     func() time.Time
	Elapsed func() time.Duration // since the process started; monotonic
	// SettingsServer returns the address of the server that the settings of this folder describe,
	// as the file millrace.toml has them; "" where nothing sets it. Nil is none.
	SettingsServer func(Process) string
}

// Env returns the value of an environment variable, empty when it is not set.
func (p Process) Env(name string) string {
	value := ""
	for _, pair := range p.Environ {
		if key, text, _ := strings.Cut(pair, "="); key == name {
			value = text // the last one counts, as for a command that is started with it
		}
	}
	return value
}

// IsTerminal reports whether a standard file is a terminal.
func IsTerminal(file any) bool {
	f, ok := file.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// StopSignals are the signals that ask a command to stop. SIGHUP is one of them, unless the command
// was started with nohup to outlive its terminal.
func StopSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// UntilSignal returns a context that ends with the first of StopSignals. A second one then ends
// the process at once, as it would any other.
func UntilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, StopSignals()...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// UntilOutputCloses returns a context that ends when standard output has no reader any more. The
// command can then clean up; the signal of a broken pipe would end the process at once.
func (p Process) UntilOutputCloses(ctx context.Context) (Process, context.Context) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := context.WithCancel(ctx)
	p.Stdout = &watchedOutput{p.Stdout, stop}
	return p, ctx
}

// watchedOutput calls failed when a write fails.
type watchedOutput struct {
	io.Writer

	failed func()
}

// Write writes to the output, and calls failed if that is not possible any more.
func (o *watchedOutput) Write(text []byte) (int, error) {
	n, err := o.Writer.Write(text)
	if err != nil {
		o.failed()
	}
	return n, err
}

// UntilStdinEnds returns a context that ends when standard input does. A child process notices in
// this way that its parent has ended, however that happened.
func (p Process) UntilStdinEnds(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, p.Stdin)
		stop()
	}()
	return ctx, stop
}
