package taskflow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/webhook"
	"github.com/millrace/millrace/internal/worker"
)

// maxResponseBytes is how much of a response is stored as the job's result (G-TF-37).
const maxResponseBytes = 64 << 10

// httpHandler executes jobs by sending their payloads to a URL (G-TF-37):
//
//	response                            outcome
//	2xx                                 completed, the response is the result
//	408, 429, 5xx, time-out, no answer  failed, retryable
//	any other                           failed for good
//
// A job may be sent more than once: the answer may be lost, or its node may die. All requests of a
// job have the same Millrace-Job-Id, by which the receiver can recognise a repetition, and each
// attempt has a Millrace-Run-Id of its own.
type httpHandler struct {
	queue  Queue
	client webhook.Doer
	now    func() time.Time // the time in signatures
}

// Handle implements worker.Handler. The end of ctx counts before the result of the call, as it may
// be its cause: the node stops, or the lease was lost and the outcome is dropped.
func (c *httpHandler) Handle(ctx context.Context, t *worker.Task) engine.Outcome {
	within, cancel := context.WithTimeout(ctx, c.queue.Timeout)
	defer cancel()
	status, answer, err := c.call(within, t.Job)
	switch {
	case ctx.Err() != nil: // the node stops: the zero outcome releases the job
		return engine.Outcome{}
	case err != nil:
		message, kind := c.describeError(err)
		return FailedWith(t.Job, message, kind, true)
	case status >= 200 && status <= 299:
		return CompletedWith(t.Job, encodeResult(answer))
	}
	retryable := status == http.StatusRequestTimeout || status == http.StatusTooManyRequests ||
		status >= http.StatusInternalServerError
	message := fmt.Sprintf("the answer was %d %s", status, http.StatusText(status))
	return FailedWith(t.Job, strings.TrimSpace(message), "http_"+strconv.Itoa(status), retryable)
}

// call makes the request and reads the body of a successful response, one byte more than is stored
// at most, by which encodeResult recognises one that is too long. The body of any other response
// is not read. An error means that there is no complete answer, even if a status was received.
func (c *httpHandler) call(ctx context.Context, j *job.Job) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.queue.URL,
		bytes.NewReader(j.Payload))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Millrace-Job-Id", j.ID.Key)
	req.Header.Set("Millrace-Run-Id", j.Run.String())
	req.Header.Set("Millrace-Attempt", strconv.Itoa(Attempt(j)))
	if secret := c.queue.Secret.Reveal(); secret != "" {
		if err := webhook.Sign(req.Header, secret, j.ID.Key, c.now(), j.Payload); err != nil {
			return 0, nil, err
		}
	}
	telemetry.Inject(telemetry.Resume(ctx, j.Trace), req.Header)
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return resp.StatusCode, nil, nil
	}
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes+1))
	return resp.StatusCode, answer, err
}

// encodeResult returns a response as a job's result. JSON is stored unchanged; anything else, and
// a response that is too long, is stored as a JSON string, cut to maxResponseBytes. Bytes that are
// not UTF-8 are replaced, as a cut may also make them; an empty response is no result.
func encodeResult(answer []byte) []byte {
	text := strictjson.Trim(answer)
	switch {
	case len(text) == 0:
		return nil
	case len(answer) <= maxResponseBytes && strictjson.Check(text) == nil:
		return text
	}
	return strictjson.AppendString(nil,
		strings.ToValidUTF8(string(answer[:min(len(answer), maxResponseBytes)]), "\uFFFD"))
}

// describeError says why there was no complete answer. It leaves out the resolved addresses, which
// are internal to the server's network: clients read both texts in the job's last_error. kind is
// refused, timeout or connection.
func (c *httpHandler) describeError(err error) (message, kind string) {
	var refused *egress.RefusedError
	var dns *net.DNSError
	var op *net.OpError
	var timeout net.Error
	var wrapped *url.Error
	switch {
	case errors.As(err, &refused):
		return fmt.Sprintf("the address is refused: %s", refused.Class), "refused"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("no answer within %s", c.queue.Timeout), "timeout"
	case errors.As(err, &dns):
		return "the host is unknown", "connection"
	case errors.As(err, &op):
		return op.Op + ": " + op.Err.Error(), "connection"
	case errors.As(err, &wrapped):
		return wrapped.Err.Error(), "connection"
	}
	return err.Error(), "connection"
}
