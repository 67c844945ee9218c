package client

import (
	"context"
	"io"
	"slices"
	"time"
)

// streamOutcome is how one of the requests that together make one answer has ended.
type streamOutcome int

const (
	streamDone       streamOutcome = iota // nothing more is wanted, or there is nothing more
	streamContinues                       // there is more at once
	streamProgressed                      // it has brought something
	streamEmpty                           // it has brought nothing
)

// doContinued makes requests that continue an answer, until one says that it has ended, the tries
// are used up, or ctx ends. Tries are counted from zero after a request that has brought something.
func (c *Client) doContinued(ctx context.Context, op string,
	request func() (streamOutcome, *Error)) error {
	for failures := 0; ; {
		ended, fail := request()
		if ended == streamDone {
			return nil
		}
		if ctx.Err() != nil {
			return &Error{Op: op, Err: contextError(ctx)}
		}
		if ended == streamContinues {
			continue
		}
		if ended == streamProgressed {
			failures = 0
		}
		failures++
		pause := c.backoff.delay(failures, 0)
		if fail != nil {
			triesUsedUp := c.maxTries > 0 && failures >= c.maxTries
			if triesUsedUp || !fail.Retryable() || fail.RetryAfter > maxRetryAfter {
				return fail
			}
			pause += fail.RetryAfter
		}
		if !sleep(ctx, pause) {
			return &Error{Op: op, Err: contextError(ctx)}
		}
	}
}

// openStream makes one try of a call and returns the body of its answer. The request timeout limits
// the time until the answer begins. Closing the body ends the call.
func (c *Client) openStream(ctx context.Context, call call) (io.ReadCloser, *Error) {
	ctx, cancel := context.WithCancelCause(ctx)
	responseTimer := time.AfterFunc(c.requestTimeout, func() { cancel(context.DeadlineExceeded) })
	defer responseTimer.Stop()
	req, err := c.request(ctx, call)
	if err != nil {
		cancel(nil)
		return nil, invalid(call.op, "%v", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		cancel(nil)
		return nil, &Error{Op: call.op, Err: err, transient: !wrongServer(err)}
	}
	if !slices.Contains(call.accept, resp.StatusCode) {
		defer cancel(nil)
		defer drainBody(resp.Body)
		fail := c.responseError(call, resp)
		fail.Uncertain = false
		return nil, fail
	}
	return &cancelingBody{resp.Body, cancel}, nil
}

// cancelingBody ends its call when it is closed.
type cancelingBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *cancelingBody) Close() error {
	b.cancel(nil)
	return b.ReadCloser.Close()
}
