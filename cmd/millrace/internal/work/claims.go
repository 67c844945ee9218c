package work

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
	"github.com/millrace/millrace/internal/child"
)

// The limits of the outputs of a command, in bytes.
const (
	maxResultBytes = 64 << 10 // of the standard output that becomes the result
	maxReasonBytes = 1 << 10  // of the standard error that the reason of a failure is taken from
)

// handleJob is the handler for contracts whose jobs have results. The standard output of the
// command is the result. A command that cannot be run releases its job, as the SDK does for one
// that is ended because the worker stops; one that fails for another reason fails the attempt.
func (r *commandRunner) handleJob(ctx context.Context, run *client.JobRun) (json.RawMessage,
	error) {
	out, reason := &child.Head{Max: maxResultBytes}, &child.Tail{Max: maxReasonBytes}
	err := r.execute(ctx, claimedTask(run.Job), io.MultiWriter(r.stdout, out),
		io.MultiWriter(r.stderr, reason))
	switch {
	case errors.Is(err, errCannotRun):
		err = withReason(err, reason)
		r.stopWorker(err)
		return nil, r.logged(fmt.Errorf("%w: %w", client.ErrRelease, err))
	case err != nil:
		return nil, r.logged(attemptError(err, reason))
	}
	if out.Size > maxResultBytes {
		r.log.Warn("the output is too long for a result; its beginning is, as a string",
			"job_id", run.Job.ID, "bytes", out.Size, "kept", maxResultBytes)
	}
	return resultOf(out), nil
}

// withReason adds the last line of a command's standard error to the error that it ended with, if
// it wrote one.
func withReason(err error, output *child.Tail) error {
	reason := output.LastLine()
	if reason == "" {
		return err
	}
	return &commandError{reason, err}
}

// commandError is the error that a command ended with and the last line of its standard error.
type commandError struct {
	reason string
	err    error
}

// Error returns the reason and, in brackets, how the command ended.
func (e *commandError) Error() string { return fmt.Sprintf("%s (%v)", e.reason, e.err) }

// Unwrap returns the error of the command.
func (e *commandError) Unwrap() error { return e.err }

// attemptError makes the error of an attempt from that of its command. The exit codes 64 to 78 make
// it final: sysexits.h defines them for errors that another attempt would repeat.
func attemptError(err error, reason *child.Tail) error {
	var exit *exec.ExitError
	withOutput := withReason(err, reason)
	if !errors.As(err, &exit) {
		return withOutput
	}
	code := exit.ExitCode()
	return &client.JobError{Err: withOutput, Type: "exit", Final: code >= 64 && code <= 78}
}

// resultOf returns an output as JSON: valid JSON unchanged, anything else as a string, nil for no
// output. Output over the limit becomes a string of its beginning, as with the server's own
// handlers (G-TF-37).
func resultOf(out *child.Head) json.RawMessage {
	whole := out.Size == int64(len(out.Text))
	text := bytes.TrimSpace(out.Text)
	if !whole {
		text = out.Text
	}
	if len(text) == 0 {
		return nil
	}
	if whole && json.Valid(text) {
		return text
	}
	quoted, err := json.Marshal(strings.ToValidUTF8(string(text), "\uFFFD"))
	if err != nil {
		return nil // a string never fails to encode
	}
	return quoted
}

// claimPolls recognises the polls of the worker API: its requests for claims.
type claimPolls struct{}

// isPoll recognises POST /worker/v1/claims, also behind the path of a proxy.
func (claimPolls) isPoll(req *http.Request) bool {
	return req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/worker/v1/claims")
}

// countsOnClaim reports true: a job of a claim has a lease from the answer on.
func (claimPolls) countsOnClaim() bool { return true }

// limitToOne sets the member max of the request to 1. The body is made again for requests that are
// repeated.
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

// jobs counts the jobs of an answer. An answer that is not JSON counts as none; the worker reports
// it.
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
		return 0, nil
	}
	return len(answer.Jobs), nil
}
