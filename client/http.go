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
	op       string
	method   string
	path     string        // escaped, from the contract's mount on
	query    string        // encoded
	body     []byte        // JSON; nil sends no body and no Content-Type
	stream   *streamed     // in place of body; its Content-Type is in header
	header   http.Header   // an Authorization in it, also an empty one, takes the place of Config.Token
	wait     time.Duration // what a long poll may take beyond the request timeout
	accept   []int
	wantBody bool
	reads    bool // changes nothing at the server, so is never uncertain
	once     bool // no retries
	fragile  bool // doing it twice would do harm: repeated only if no try can have taken effect
}

// answer is a success.
type answer struct {
	status int
	body   []byte // only when wanted
}

// do makes the call, repeating what is retryable. Its error is an *Error.
func (c *Client) do(ctx context.Context, call call) (got answer, err error) {
	fail := c.repeat(ctx, call, func() (fail *Error) {
		got, fail = c.try(ctx, call)
		return fail
	})
	if fail != nil {
		return answer{}, fail
	}
	return got, nil
}

// repeat tries a call until a try does not fail, or another is in vain.
func (c *Client) repeat(ctx context.Context, call call, attempt func() *Error) *Error {
	uncertain := false
	for try := 1; ; try++ {
		fail := attempt()
		if fail == nil {
			return nil
		}
		uncertain = uncertain || fail.Uncertain
		fail.Uncertain = uncertain && !call.reads
		last := call.once || call.fragile && uncertain || c.maxTries > 0 && try >= c.maxTries && !isPatient(ctx)
		if last || !fail.Retryable() || fail.RetryAfter > maxRetryAfter {
			return fail
		}
		rest := c.backoff.delay(try, fail.RetryAfter)
		if isPatient(ctx) {
			rest = min(rest, fail.RetryAfter+longestRest)
		}
		if !sleep(ctx, rest) {
			fail.Err, fail.transient = errors.Join(ended(ctx), fail.Err), false
			return fail
		}
	}
}

// longestRest is the most that a patient call waits between two tries: a server that is back must hear of an outcome
// before the lease is over.
const longestRest = 2 * time.Second

type patience struct{}

// patient is a context whose calls are tried for as long as it lasts, however few tries the client was made for.
func patient(ctx context.Context) context.Context { return context.WithValue(ctx, patience{}, true) }

func isPatient(ctx context.Context) bool { return ctx.Value(patience{}) != nil }

// ask makes a call whose answer is JSON. Its error is an *Error.
func ask[T any](ctx context.Context, c *Client, call call) (T, error) {
	var value T
	call.wantBody = true
	got, err := c.do(ctx, call)
	if err != nil {
		return value, err
	}
	if err := json.Unmarshal(got.body, &value); err != nil {
		return value, &Error{Op: call.op, Uncertain: !call.reads, Err: fmt.Errorf("answer: %w", err)}
	}
	return value, nil
}

// try makes the call once.
func (c *Client) try(ctx context.Context, call call) (answer, *Error) {
	bounded, alive, cancel := c.bound(ctx, call)
	defer cancel()
	req, err := c.request(bounded, call)
	if err != nil {
		return answer{}, invalid(call.op, "%v", err)
	}
	if call.stream != nil {
		pass, err := call.stream.begin(alive)
		if err != nil {
			return answer{}, invalid(call.op, "%v", err)
		}
		defer pass.end()
		req.Body, req.ContentLength = io.NopCloser(pass), call.stream.size
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, noAnswer(ctx, call, err)
	}
	defer finish(resp.Body)
	if !slices.Contains(call.accept, resp.StatusCode) {
		return answer{}, refusal(call, resp)
	}
	got := answer{status: resp.StatusCode}
	if !call.wantBody {
		return got, nil
	}
	got.body, err = io.ReadAll(io.LimitReader(resp.Body, c.maxResponse+1))
	if err != nil {
		return answer{}, noAnswer(ctx, call, err)
	}
	if int64(len(got.body)) > c.maxResponse {
		return answer{}, &Error{Op: call.op, Uncertain: true,
			Err: fmt.Errorf("answer is larger than %d bytes (Config.MaxResponseBytes)", c.maxResponse)}
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
	if _, own := call.header["Authorization"]; c.token != "" && !own {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if call.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// finish reads what little is left, so that the connection can be used again.
func finish(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, maxDrain)
	_ = body.Close()
}

// refusal is an answer that is not a success.
func refusal(call call, resp *http.Response) *Error {
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

// noAnswer is a try that ended without one: the connection failed, or the
// caller's context or the request timeout ended it.
func noAnswer(ctx context.Context, call call, err error) *Error {
	fail := &Error{Op: call.op, Err: err, Uncertain: !neverSent(err)}
	if ctx.Err() != nil {
		fail.Err = ended(ctx)
		return fail
	}
	fail.transient = !certificateRefused(err)
	return fail
}

// ended says why a context ended, as its Err and its cause both.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// neverSent: without a connection the server cannot have seen the request.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || certificateRefused(err)
}

// certificateRefused: another try meets the same certificate.
func certificateRefused(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}
