package work

import (
	"errors"
	"log/slog"
	"os/exec"
	"strings"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/telemetry"
)

// The log of `millrace work` is written by the SDK's worker, which knows handlers and runs. Users
// of this command know commands and jobs, so its messages are rewritten on their way.

// replaceAttr rewrites the log of the SDK's worker for users of this command: handlers are
// commands, a job that was started or completed is logged as information, and a command that failed
// is logged with its exit code and what happens to the job.
func replaceAttr(_ []string, a slog.Attr) slog.Attr {
	switch value := a.Value.Any().(type) {
	case slog.Level:
		if a.Key == slog.LevelKey && value == slog.LevelDebug {
			return slog.Any(a.Key, slog.LevelInfo)
		}
	case string:
		if a.Key != slog.MessageKey {
			return a
		}
		if strings.HasPrefix(value, "handler failed") {
			return slog.String(a.Key, "the command failed")
		}
		return slog.String(a.Key, strings.TrimSuffix(value, "; the run ends with its lease"))
	case *failedCommand:
		if a.Key != telemetry.ErrorMessage {
			return slog.String(a.Key, value.Error())
		}
		return slog.Attr{Value: slog.GroupValue(value.attrs()...)}
	}
	return a
}

// failedCommand is the error of a command with what happens to its job, for the log.
type failedCommand struct {
	err error
	job string // such as "goes back to its queue"
}

// Error returns the text of the command's error, without what happens to the job.
func (e *failedCommand) Error() string { return e.err.Error() }

// Unwrap returns the command's error.
func (e *failedCommand) Unwrap() error { return e.err }

// attrs returns the attributes that the log has for the failure.
func (e *failedCommand) attrs() []slog.Attr {
	attrs := []slog.Attr{slog.String("job", e.job)}
	var exit *exec.ExitError
	var withLine *commandError
	if !errors.As(e.err, &exit) || exit.ExitCode() < 0 {
		return append(attrs, slog.String("reason", e.err.Error()))
	}
	attrs = append(attrs, slog.Int("exit_code", exit.ExitCode()))
	if errors.As(e.err, &withLine) {
		attrs = append(attrs, slog.String("reason", withLine.reason))
	}
	return attrs
}

// logged wraps the error of an attempt for the log. The worker still finds the error itself.
func (r *commandRunner) logged(err error) error { return &failedCommand{err, r.outcome(err)} }

// outcome says what happens to a job whose command failed.
func (r *commandRunner) outcome(err error) string {
	var failure *client.JobError
	isRelay := r.contract == contractRelay
	switch {
	case errors.Is(err, errCannotRun), r.killCtx.Err() != nil && !isRelay:
		return "goes back to its queue"
	case isRelay:
		return "is claimed again after its timeout"
	case errors.As(err, &failure) && failure.Final:
		return "fails for good"
	}
	return "is retried, or fails if this was its last attempt"
}
