package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
)

// The keys of log lines. A key means the same in every line of every package.
const (
	RequestID    = "request_id"
	ClientID     = "client_id"
	JobID        = "job_id"
	Contract     = "contract"
	Queue        = "queue"
	RunID        = "run_id"
	Worker       = "worker"
	Action       = "action"
	CurrentState = "current_state"
	NextState    = "next_state"
	Attempt      = "attempt"
	ErrorCode    = "error_code"
	ErrorMessage = "error_message"
	Method       = "method"
	Route        = "route"
	Status       = "status"
	Duration     = "duration"
	Remote       = "remote"
	Stack        = "stack"
)

// NewLogger makes the logger of the process. format is text or json; level is debug, info, warn
// or error.
func NewLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var options slog.HandlerOptions
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q is not debug, info, warn or error", level)
	}
	options.Level = l
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, &options)), nil
	case "json":
		options.ReplaceAttr = durationText
		return slog.New(slog.NewJSONHandler(w, &options)), nil
	}
	return nil, fmt.Errorf("log format %q is not text or json", format)
}

// durationText writes durations in JSON as text, since a number alone has no unit.
func durationText(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, a.Value.Duration().String())
	}
	return a
}

// LogFinalFailure logs a job that has failed and is not retried automatically. The line is the
// same in every contract.
func LogFinalFailure(log *slog.Logger, jobID, queue string, attempt int, reason string,
	more ...slog.Attr) {
	attrs := append([]slog.Attr{slog.String(JobID, jobID), slog.String(Queue, queue),
		slog.Int(Attempt, attempt), slog.String(ErrorMessage, reason)}, more...)
	log.LogAttrs(context.Background(), slog.LevelWarn, "a job failed for good", attrs...)
}
