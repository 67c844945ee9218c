package main

import (
	"errors"
	"log/slog"
	"os/exec"
	"strings"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/telemetry"
)

// aboutCommands puts what the worker of the SDK says of handlers into the words of this
// command. A job that was started or completed is a detail there, and here what is watched.
func aboutCommands(_ []string, a slog.Attr) slog.Attr {
	switch said := a.Value.Any().(type) {
	case slog.Level:
		if a.Key == slog.LevelKey && said == slog.LevelDebug {
			return slog.Any(a.Key, slog.LevelInfo)
		}
	case string:
		if a.Key != slog.MessageKey {
			return a
		}
		if strings.HasPrefix(said, "handler failed") {
			return slog.String(a.Key, "the command failed")
		}
		return slog.String(a.Key, strings.TrimSuffix(said, "; the run ends with its lease"))
	case *commandEnd:
		if a.Key != telemetry.ErrorMessage {
			return slog.String(a.Key, said.Error())
		}
		return slog.Attr{Value: slog.GroupValue(said.attrs()...)}
	}
	return a
}

// commandEnd is how a command failed, and what becomes of its job.
type commandEnd struct {
	err error
	job string
}

func (e *commandEnd) Error() string { return e.err.Error() }
func (e *commandEnd) Unwrap() error { return e.err }

// attrs are what the log says of it.
func (e *commandEnd) attrs() []slog.Attr {
	attrs := []slog.Attr{slog.String("job", e.job)}
	var exit *exec.ExitError
	var told *commandError
	if !errors.As(e.err, &exit) || exit.ExitCode() < 0 {
		return append(attrs, slog.String("reason", e.err.Error()))
	}
	attrs = append(attrs, slog.Int("exit_code", exit.ExitCode()))
	if errors.As(e.err, &told) {
		attrs = append(attrs, slog.String("reason", told.reason))
	}
	return attrs
}

// logged wraps the error of an attempt for the log, which also says what happens to the job next.
// The contract still sees the error itself.
func (r *commandRunner) logged(err error) error { return &commandEnd{err, r.fate(err)} }

// fate says what happens to a job whose command failed.
func (r *commandRunner) fate(err error) string {
	var output *client.JobError
	isRelay := r.contract == contractRelay
	switch {
	case errors.Is(err, errCannotRun), r.killCtx.Err() != nil && !isRelay:
		return "goes back to its queue"
	case isRelay:
		return "comes back after its timeout"
	case errors.As(err, &output) && output.Final:
		return "fails for good"
	}
	return "is tried again, or fails where its tries are used up"
}
