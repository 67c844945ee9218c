package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	maxMessage = 16 << 10 // of an error body, the part that is kept
	maxDrain   = 64 << 10 // read to its end for keep-alive; beyond, the connection is dropped
)

// call is one exchange of a contract: what to send and which statuses mean
// success. Other statuses, also other 2xx, are errors: a proxy's friendly page
// must not count as an accepted job.
type call struct {
	op     string
	method string
	path   string        // escaped, from the contract's mount on
	query  string        // encoded
	body   []byte        // JSON; nil sends no body and no Content-Type
	stream *streamedBody // in place of body; its Content-Type is in header
	// an Authorization in it, also an empty one, takes the place of Config.Token
	header   http.Header
	wait     time.Duration // what a long poll may take beyond the request timeout
	accept   []int
	wantBody bool
	readOnly bool // changes nothing at the server, so is never uncertain
	noRetry  bool // no retries
	// doing it twice would do harm: repeated only if no try can have taken effect
	notRepeatable bool
}

// answer is a success.
type answer struct {
	status int
	body   []byte // only when wanted
}

// doWithRetries makes the call, repeating what is retryable. Its error is an *Error.
func (c *Client) doWithRetries(ctx context.Context, call call) (got answer, err error) {
	fail := c.retryCall(ctx, call, func() (fail *Error) {
		got, fail = c.doOnce(ctx, call)
		return fail
	})
	if fail != nil {
		return answer{}, fail
	}
	return got, nil
}

// retryCall tries a call until a try does not fail, or another is in vain.
func (c *Client) retryCall(ctx context.Context, call call, attempt func() *Error) *Error {
	uncertain := false
	for try := 1; ; try++ {
		fail := attempt()
		if fail == nil {
			return nil
		}
		uncertain = uncertain || fail.Uncertain
		fail.Uncertain = uncertain && !call.readOnly
		lastErr := call.noRetry || (call.notRepeatable && uncertain) ||
			(c.maxTries > 0 && try >= c.maxTries && !hasUnlimitedRetries(ctx))
		if lastErr || !fail.Retryable() || fail.RetryAfter > maxRetryAfter {
			return fail
		}
		pause := c.backoff.delay(try, fail.RetryAfter)
		if hasUnlimitedRetries(ctx) {
			pause = min(pause, fail.RetryAfter+maxRetryPause)
		}
		if !sleep(ctx, pause) {
			fail.Err, fail.transient = errors.Join(contextError(ctx), fail.Err), false
			return fail
		}
	}
}

// maxRetryPause is the most that a patient call waits between two tries: a server that is back must
// hear of an outcome before the lease is over.
const maxRetryPause = 2 * time.Second

type unlimitedRetriesKey struct{}

// withUnlimitedRetries is a context whose calls are tried for as long as it lasts, however few
// tries the client was made for.
func withUnlimitedRetries(ctx context.Context) context.Context {
	return context.WithValue(ctx, unlimitedRetriesKey{}, true)
}

func hasUnlimitedRetries(ctx context.Context) bool {
	return ctx.Value(unlimitedRetriesKey{}) != nil
}

// doJSON makes a call whose answer is JSON. Its error is an *Error.
func doJSON[T any](ctx context.Context, c *Client, call call) (T, error) {
	var value T
	call.wantBody = true
	got, err := c.doWithRetries(ctx, call)
	if err != nil {
		return value, err
	}
	if err := json.Unmarshal(got.body, &value); err != nil {
		return value, &Error{Op: call.op, Uncertain: !call.readOnly,
			Err: fmt.Errorf("answer: %w", err)}
	}
	return value, nil
}

// doOnce makes the call once.
func (c *Client) doOnce(ctx context.Context, call call) (answer, *Error) {
	bounded, onRead, cancel := c.boundTry(ctx, call)
	defer cancel()
	req, err := c.request(bounded, call)
	if err != nil {
		return answer{}, invalid(call.op, "%v", err)
	}
	if call.stream != nil {
		pass, err := call.stream.begin(onRead)
		if err != nil {
			return answer{}, invalid(call.op, "%v", err)
		}
		defer pass.end()
		req.Body, req.ContentLength = io.NopCloser(pass), call.stream.size
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, transportError(ctx, call, err)
	}
	defer drainBody(resp.Body)
	if !slices.Contains(call.accept, resp.StatusCode) {
		return answer{}, responseError(call, resp)
	}
	got := answer{status: resp.StatusCode}
	if !call.wantBody {
		return got, nil
	}
	got.body, err = io.ReadAll(io.LimitReader(resp.Body, c.maxResponse+1))
	if err != nil {
		return answer{}, transportError(ctx, call, err)
	}
	if int64(len(got.body)) > c.maxResponse {
		return answer{}, &Error{Op: call.op, Uncertain: true,
			Err: fmt.Errorf("answer is larger than %d bytes (Config.MaxResponseBytes)",
				c.maxResponse)}
	}
	return got, nil
}

func (c *Client) request(ctx context.Context, call call) (*http.Request, error) {
	target := *c.base
	target.RawQuery = call.query
	target.RawPath = c.base.RawPath + call.path
	// Path must be the decoded RawPath, else net/url ignores RawPath and
	// encodes Path by its own, looser rules.
	decoded, err := url.PathUnescape(target.RawPath)
	if err != nil {
		return nil, err
	}
	target.Path = decoded

	var body io.Reader // a nil *bytes.Reader in it would be a body
	if call.body != nil {
		body = bytes.NewReader(call.body)
	}
	req, err := http.NewRequestWithContext(ctx, call.method, c.base.String(), body)
	if err != nil {
		return nil, err
	}
	req.URL = &target
	for name, values := range call.header {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", c.userAgent)
	if _, hasOwn := call.header["Authorization"]; c.token != "" && !hasOwn {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if call.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// drainBody reads what little is left, so that the connection can be used again.
func drainBody(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, maxDrain)
	_ = body.Close()
}

// responseError is an answer that is not a success.
func responseError(call call, resp *http.Response) *Error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxMessage))
	fail := &Error{
		Op:         call.op,
		Status:     resp.StatusCode,
		Message:    strings.ToValidUTF8(strings.TrimSpace(string(text)), "\uFFFD"),
		RetryAfter: retryAfter(resp.Header),
		Uncertain:  resp.StatusCode >= http.StatusInternalServerError,
	}
	fail.readProblem(resp.Header.Get("Content-Type"), text)
	return fail
}

// readProblem takes what a problem document says (RFC 9457), or an error of
// TaskFlow (G-TF-21) or FetchBox (G-FB-19). What is none of them is left as plain
// text.
func (e *Error) readProblem(mediaType string, body []byte) {
	base, _, _ := mime.ParseMediaType(mediaType)
	if base == "application/json" {
		e.readTaskFlow(body)
		e.readFetchBox(body)
		return
	}
	var problem struct{ Title, Detail, Instance, Code string }
	if base != "application/problem+json" || json.Unmarshal(body, &problem) != nil {
		return
	}
	e.Code, e.Instance = problem.Code, problem.Instance
	e.Message = orDefault(problem.Detail, problem.Title)
}

// transportError is a try that ended without one: the connection failed, or the
// caller's context or the request timeout ended it.
func transportError(ctx context.Context, call call, err error) *Error {
	fail := &Error{Op: call.op, Err: err, Uncertain: !neverSent(err)}
	if ctx.Err() != nil {
		fail.Err = contextError(ctx)
		return fail
	}
	fail.transient = !certificateRejected(err)
	return fail
}

// ended says why a context ended, as its Err and its cause both.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// neverSent: without a connection the server cannot have seen the request.
func neverSent(err error) bool {
	var op *net.OpError
	return (errors.As(err, &op) && op.Op == "dial") || certificateRejected(err)
}

// certificateRejected: another try meets the same certificate.
func certificateRejected(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}
