package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"

	"github.com/millrace/millrace/client"
)

const (
	maxResultBytes = 64 << 10 // of an output that is a job's result
	maxReasonBytes = 1 << 10  // of an error output that is a failure's reason
)

// handleJob is the worker's handler for contracts that hear of outcomes: the output is the result.
func (r *commandRunner) handleJob(ctx context.Context, run *client.JobRun) (json.RawMessage,
	error) {
	bound, cancel := r.withKill(ctx)
	defer cancel()
	out, reason := &headBuffer{limit: maxResultBytes}, &tailBuffer{limit: maxReasonBytes}
	err := r.execute(bound, claimedTask(run.Job), io.MultiWriter(r.stdout, out),
		io.MultiWriter(r.stderr, reason))
	if err == nil {
		if out.size > maxResultBytes {
			r.log.Warn("the output is too long for a result; its beginning is, as a string",
				"job_id", run.Job.ID, "bytes", out.size, "kept", maxResultBytes)
		}
		return out.result(), nil
	}
	if errors.Is(err, errCannotRun) {
		err = withReason(err, reason.lastLine())
		r.stopWorker(err)
		return nil, r.told(fmt.Errorf("%w: %w", client.ErrRelease, err))
	}
	if r.killCtx.Err() != nil && ctx.Err() == nil {
		return nil, r.told(errors.Join(err, run.Release(context.WithoutCancel(ctx))))
	}
	return nil, r.told(attemptError(err, reason.lastLine()))
}

// withReason adds what a command wrote last to the error it ended with.
func withReason(err error, reason string) error {
	if reason == "" {
		return err
	}
	return &commandError{reason, err}
}

// commandError is the end of a command with what it wrote last.
type commandError struct {
	reason string
	err    error
}

func (e *commandError) Error() string { return fmt.Sprintf("%s (%v)", e.reason, e.err) }
func (e *commandError) Unwrap() error { return e.err }

// verdict makes of the end of a command what the contract should know of it.
func attemptError(err error, reason string) error {
	var exit *exec.ExitError
	withOutput := withReason(err, reason)
	if !errors.As(err, &exit) {
		return withOutput
	}
	code := exit.ExitCode()
	return &client.JobError{Err: withOutput, Type: "exit", Final: code >= 64 && code <= 78}
}

// headBuffer keeps the beginning of what is written, and how much there was.
type headBuffer struct {
	text  []byte
	limit int
	size  int64
}

func (h *headBuffer) Write(p []byte) (int, error) {
	n := min(len(p), h.limit-len(h.text))
	h.text = append(h.text, p[:n]...)
	h.size += int64(len(p))
	return len(p), nil
}

// result is the output as JSON: as it is, or as a string. None is no result. Of one that is too
// long it is the beginning, as a string whatever it was, as for the server's own handlers
// (G-TF-37).
func (h *headBuffer) result() json.RawMessage {
	whole := h.size == int64(len(h.text))
	text := bytes.TrimSpace(h.text)
	if !whole {
		text = h.text
	}
	if len(text) == 0 {
		return nil
	}
	if whole && json.Valid(text) {
		return text
	}
	quoted, err := json.Marshal(strings.ToValidUTF8(string(text), "\uFFFD"))
	if err != nil {
		return nil // a string does not fail
	}
	return quoted
}

// tailBuffer keeps the end of what is written.
type tailBuffer struct {
	text  []byte
	limit int
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - t.limit; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

// line is the last one that is not empty.
func (t *tailBuffer) lastLine() string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.text), "\uFFFD"))
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// claimPolls are the polls of the worker API.
type claimPolls struct{}

func (claimPolls) isPoll(req *http.Request) bool {
	return req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/worker/v1/claims")
}

func (claimPolls) countsOnClaim() bool { return true }

func (claimPolls) limitToOne(req *http.Request) (*http.Request, error) {
	text, err := io.ReadAll(req.Body)
	req.Body.Close()
	if err != nil {
		return nil, err
	}
	var query map[string]json.RawMessage
	if err := json.Unmarshal(text, &query); err != nil {
		return nil, err
	}
	query["max"] = json.RawMessage("1")
	text, err = json.Marshal(query)
	if err != nil {
		return nil, err
	}
	one := req.Clone(req.Context())
	one.Body, one.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	one.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	return one, nil
}

// jobs reads the answer and puts it back.
func (claimPolls) jobs(resp *http.Response) (int, error) {
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return 0, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	var answer struct {
		Jobs []json.RawMessage `json:"jobs"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return 0, nil // the worker says so
	}
	return len(answer.Jobs), nil
}
