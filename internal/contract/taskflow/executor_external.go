package taskflow

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/external"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/worker"
)

// maxResultBytes is how much of an answer is stored as the job's result (G-TF-37).
const maxResultBytes = 64 << 10

// missingDelay is how long a job waits whose command cannot be run.
const missingDelay = 10 * time.Second

// externalHandler executes jobs by a command or a service that gets their payloads (G-TF-37,
// G-TF-41). A job may be executed more than once: the answer may be lost, or its node may die. All
// calls for a job have the same Millrace-Job-Id, by which the other side can recognise a
// repetition, and each attempt has a Millrace-Run-Id of its own.
type externalHandler struct {
	external.Handler
	log *slog.Logger
}

// Handle implements worker.Handler. The end of ctx counts before the result of the call, as it may
// be its cause: the node stops, or the lease was lost and the outcome is dropped. A command that
// cannot be run is no fault of the job, which waits for an operator and loses no attempt (G-X-18).
func (h *externalHandler) Handle(ctx context.Context, t *worker.ClaimedJob) engine.Outcome {
	j := t.Job
	answer, err := h.Call(ctx, &external.Call{ID: j.ID.Key, Body: j.Payload, Trace: j.Trace,
		Names: []external.Name{
			{Name: "Job-Id", Value: j.ID.Key},
			{Name: "Run-Id", Value: j.Run.String()},
			{Name: "Attempt", Value: strconv.Itoa(attempt(j))},
			{Name: "Queue", Value: j.Queue},
			{Name: "Contract", Value: Name},
		}})
	h.logOutput(ctx, j, answer.Log, err)
	var failure *external.Failure
	switch {
	case ctx.Err() != nil: // the node stops: the zero outcome releases the job
		return engine.Outcome{}
	case errors.As(err, &failure) && failure.Missing:
		return engine.Outcome{On: job.Released, Delay: missingDelay, Reason: failure.Message}
	case failure != nil:
		return failureOutcome(j, failure.Message, failure.Type, failure.Retryable)
	case err != nil:
		return failureOutcome(j, "the handler cannot be called", typeHandler, true)
	}
	return successOutcome(j, encodeResult(answer.Body))
}

// logOutput logs what a command has written to its standard error: for operators where it failed,
// and at DEBUG otherwise. That it cannot be run is logged in any case.
func (h *externalHandler) logOutput(ctx context.Context, j *job.Job, output string, err error) {
	var failure *external.Failure
	isMissing := errors.As(err, &failure) && failure.Missing
	if output == "" && !isMissing {
		return
	}
	level, message := slog.LevelDebug, "the standard error of a command"
	attrs := []slog.Attr{slog.String(telemetry.JobID, j.ID.Key),
		slog.String(telemetry.Queue, j.Queue), slog.Int(telemetry.Attempt, attempt(j)),
		slog.String("stderr", output)}
	if err != nil {
		level = slog.LevelWarn
		attrs = append(attrs, slog.String(telemetry.ErrorMessage, err.Error()))
	}
	if isMissing {
		level, message = slog.LevelError, "the command of a queue cannot be run"
	}
	h.log.LogAttrs(ctx, level, message, attrs...)
}

// encodeResult returns an answer as a job's result. JSON is stored unchanged; anything else, and
// an answer that is too long, is stored as a JSON string, cut to maxResultBytes. Bytes that are
// not UTF-8 are replaced, as a cut may also make them; an empty answer is no result.
func encodeResult(answer []byte) []byte {
	text := strictjson.Trim(answer)
	switch {
	case len(text) == 0:
		return nil
	case len(answer) <= maxResultBytes && strictjson.IsValid(text):
		return text
	}
	return strictjson.AppendString(nil,
		strings.ToValidUTF8(string(answer[:min(len(answer), maxResultBytes)]), "\uFFFD"))
}
