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
	maxMessage = 16 << 10 // how much of the body of an error is kept
	maxDrain   = 64 << 10 // how much unread body is read so that the connection can be used again
)

// How a call travels. Each layer does one thing:
//
//	method of a contract      builds the call, explains its errors
//	  doJSON                  decodes the answer
//	    doWithRetries         repeats tries: retryCall decides whether and when
//	      doOnce              one try: one HTTP request, limited in time
//	        responseError     an answer with a status that is not accepted, as an *Error
//	        transportError    no answer, as an *Error
//
// Only retryCall has the earlier tries, so it alone decides whether an error is uncertain: whether
// the call may have taken effect although it failed.

// call is one request of a contract: what to send and which statuses mean success. All other
// statuses are errors, other 2xx too: the welcome page of a proxy must not count as a stored job.
type call struct {
	op     string
	method string
	path   string        // escaped; it is appended to the path of the base URL
	query  string        // encoded
	body   []byte        // JSON; nil sends no body and no Content-Type
	stream *streamedBody // instead of body, with its Content-Type in header
	// header is sent in addition. An Authorization in it, even an empty one, replaces the bearer
	// token of the Config.
	header    http.Header
	wait      time.Duration // how much longer than the request timeout a long poll may take
	accept    []int         // the statuses of a success
	wantBody  bool          // whether the body of a success is read
	readOnly  bool          // changes nothing in the server, so its errors are never uncertain
	singleTry bool          // is tried once
	// drained, unless nil, is set where the answer says that the worker is drained.
	drained *bool
	// notIdempotent is a call with a second effect when it is repeated. It is tried again only
	// while no try can have taken effect.
	notIdempotent bool
}

// answer is the answer of a success.
type answer struct {
	status    int
	header    http.Header
	body      []byte // nil unless call.wantBody
	uncertain bool   // an earlier try of the call may have taken effect, see mayHaveEnded
}

// doWithRetries makes a call and repeats tries that failed. Its error is an *Error.
func (c *Client) doWithRetries(ctx context.Context, call call) (got answer, err error) {
	uncertain := false
	fail := c.retryCall(ctx, call, func() (fail *Error) {
		got, fail = c.doOnce(ctx, call)
		uncertain = uncertain || (fail != nil && fail.mayHaveEnded())
		return fail
	})
	if fail != nil {
		return answer{}, fail
	}
	got.uncertain = uncertain
	return got, nil
}

// deleteOnce makes a DELETE that a server answers with 204. A thing that is not found after a try
// whose answer was lost was deleted by that try.
func (c *Client) deleteOnce(ctx context.Context, call call) error {
	call.method, call.accept = http.MethodDelete, []int{http.StatusNoContent}
	_, err := c.doWithRetries(ctx, call)
	var fail *Error
	if errors.As(err, &fail) && fail.Status == http.StatusNotFound && fail.Uncertain {
		return nil
	}
	return err
}

// retryCall makes tries until one succeeds, or until another try is not allowed or of no use.
func (c *Client) retryCall(ctx context.Context, call call, attempt func() *Error) *Error {
	uncertain, allRefused := false, true
	fail := attempt()
	for try := 1; fail != nil; try++ {
		allRefused = allRefused && fail.isRefusal()
		uncertain = uncertain || fail.Uncertain
		fail.Uncertain, fail.allRefused = uncertain && !call.readOnly, allRefused
		pause := c.backoff.delay(try, fail.RetryAfter)
		lastTry := (c.maxTries > 0 && try >= c.maxTries) || fail.RetryAfter > maxRetryAfter
		if outage := outcomeTriesOf(ctx); outage != nil && fail.Retryable() {
			outage.outcomeFailed(fail)
			pause = min(pause, min(fail.RetryAfter, maxRetryAfter)+maxOutcomePause)
			lastTry = false
		}
		if call.singleTry || lastTry || (call.notIdempotent && uncertain) || !fail.Retryable() {
			return fail
		}
		if !sleep(ctx, pause) {
			fail.Err, fail.transient = errors.Join(contextError(ctx), fail.Err), false
			return fail
		}
		fail = attempt()
	}
	return nil
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
		return value, unreadable(call, got, err)
	}
	return value, nil
}

// unreadable is the error of a success that cannot be read. A page is of another server.
func unreadable(call call, got answer, err error) *Error {
	if isPage(got.body) {
		return &Error{Op: call.op, Status: got.status, Err: ErrNotMillrace}
	}
	return &Error{Op: call.op, Status: got.status, Uncertain: !call.readOnly,
		Err: fmt.Errorf("answer: %w", err)}
}

// doOnce makes one try of a call. The body of its answer has been read when it returns.
func (c *Client) doOnce(ctx context.Context, call call) (answer, *Error) {
	tryCtx, onRead, cancel := c.withTryTimeout(ctx, call)
	defer cancel()
	req, err := c.request(tryCtx, call)
	if err != nil {
		return answer{}, invalid(call.op, "%v", err)
	}
	if call.stream != nil {
		body, err := call.stream.open(onRead)
		if err != nil {
			return answer{}, invalid(call.op, "%v", err)
		}
		defer body.end()
		req.Body, req.ContentLength = io.NopCloser(body), call.stream.size
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, transportError(ctx, call, err)
	}
	defer drainBody(resp.Body)
	if !slices.Contains(call.accept, resp.StatusCode) {
		return answer{}, c.responseError(call, resp)
	}
	if call.drained != nil {
		*call.drained = resp.Header.Get("Millrace-Drain") == "true"
	}
	got := answer{status: resp.StatusCode, header: resp.Header}
	if !call.wantBody {
		return got, nil
	}
	got.body, err = io.ReadAll(io.LimitReader(resp.Body, c.maxResponse+1))
	if err != nil {
		return answer{}, transportError(ctx, call, err)
	}
	if int64(len(got.body)) > c.maxResponse {
		err := fmt.Errorf("answer is larger than %d bytes (Config.MaxResponseBytes)", c.maxResponse)
		return answer{}, &Error{Op: call.op, Uncertain: true, Err: err}
	}
	return got, nil
}

// request makes the HTTP request of a call, with the credentials of the client.
func (c *Client) request(ctx context.Context, call call) (*http.Request, error) {
	target := *c.base
	target.RawQuery = call.query
	target.RawPath = c.base.RawPath + call.path
	// Path must be the decoded RawPath. Otherwise net/url ignores RawPath and encodes Path by its
	// own rules, which leave more characters as they are.
	decoded, err := url.PathUnescape(target.RawPath)
	if err != nil {
		return nil, err
	}
	target.Path = decoded

	var body io.Reader // stays nil without a body: a nil *bytes.Reader in it would count as one
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

// drainBody reads a short rest of a body, so that the connection can be used again.
func drainBody(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, maxDrain)
	_ = body.Close()
}

// responseError is the error of an answer whose status is not accepted.
func (c *Client) responseError(call call, resp *http.Response) *Error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxMessage))
	fail := &Error{
		Op:         call.op,
		Status:     resp.StatusCode,
		Message:    strings.ToValidUTF8(strings.TrimSpace(string(text)), "\uFFFD"),
		RetryAfter: retryAfter(resp.Header),
		Uncertain:  resp.StatusCode >= http.StatusInternalServerError,
	}
	if resp.StatusCode == http.StatusUnauthorized {
		fail.Server = c.base.Scheme + "://" + c.base.Host
	}
	fail.readProblem(resp.Header.Get("Content-Type"), text)
	fail.readForeign(text)
	return fail
}

// readForeign recognises the answer of another server, and removes a page from the message. A
// gateway answers with a page of its own when the server behind it is unavailable.
func (e *Error) readForeign(body []byte) {
	if isPage(body) {
		e.Message = ""
	}
	if (isPage(body) || string(body) == goNotFound) && !e.Retryable() {
		e.Err, e.Uncertain = ErrNotMillrace, false
	}
}

// goNotFound is the body of the 404 of other servers in Go.
const goNotFound = "404 page not found\n"

// isPage reports whether a body is HTML, which no route of the contracts answers.
func isPage(body []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(body), []byte("<")) }

// readProblem takes code and message from a problem document (RFC 9457) or from an error of
// TaskFlow (G-TF-21) or FetchBox (G-FB-19). With any other body Message stays the plain text.
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

// transportError is the error of a try without an answer: the connection failed, or the caller's
// context or the request timeout ended it.
func transportError(ctx context.Context, call call, err error) *Error {
	fail := &Error{Op: call.op, Err: err, Uncertain: !neverSent(err)}
	if ctx.Err() != nil {
		fail.Err = contextError(ctx)
		return fail
	}
	fail.transient = !wrongServer(err)
	return fail
}

// contextError returns the error of a context that has ended, which is its Err and its cause both.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// neverSent reports whether a try failed before there was a connection, so that the server cannot
// have seen its request.
func neverSent(err error) bool { return notConnected(err) || wrongServer(err) }

// notConnected reports whether no connection to the server was made.
func notConnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// wrongServer reports whether the server's certificate was rejected, or the server speaks HTTP
// where HTTPS was expected. Another try would be of no use.
func wrongServer(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification) || errors.Is(err, http.ErrSchemeMismatch)
}
