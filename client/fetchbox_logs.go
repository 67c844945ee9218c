package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// logPage is how many entries of a log one request asks for (G-FB-21).
const logPage = 1000

// maxLogLine bounds an entry of a log.
const maxLogLine = 1 << 20

// errLogInterrupted is a log that broke off, which happens to every log that is followed
// for long enough.
var errLogInterrupted = errors.New("the log broke off")

// FetchBoxLogOptions says which part of a log is wanted.
type FetchBoxLogOptions struct {
	// Since is the offset of the first entry; the zero value is the job's first
	// (FB-060). To go on, ask from the last offset plus one.
	Since uint64
	// Follow goes on with entries as they come.
	Follow bool
}

// Logs goes through the log of a job, each entry once and in order (FB-059,
// FB-061). When the connection breaks it goes on behind the last entry, by the
// client's [Retry], which begins anew with each entry that comes. Without
// Follow it ends with the log as it is; with Follow only its caller or the
// context ends it, the latter with its error.
//
// It ends with the first error: [ErrNotFound], [ErrUnauthorized], or
// [ErrRetryable] when the server stays away.
func (f *FetchBox) Logs(ctx context.Context, jobID string,
	log FetchBoxLogOptions) iter.Seq2[FetchBoxLogEntry, error] {
	return func(yield func(FetchBoxLogEntry, error) bool) {
		const op = "fetchbox logs"
		if err := checkName("job id", jobID); err != nil {
			yield(FetchBoxLogEntry{}, invalid(op, "%v", err))
			return
		}
		r := logReader{f: f, log: log, yield: yield,
			call: f.asOperator(call{op: op, path: fetchJobs + "/" + escape(jobID) + "/logs"})}
		if err := r.read(ctx); err != nil {
			yield(FetchBoxLogEntry{}, err)
		}
	}
}

// logReader reads a log, in as many requests as it takes.
type logReader struct {
	f       *FetchBox
	call    call
	log     FetchBoxLogOptions
	yield   func(FetchBoxLogEntry, error) bool
	count   int  // entries of the present request
	stopped bool // the caller wants no more
}

// read reads until the log ends or cannot be read.
func (r *logReader) read(ctx context.Context) error {
	for failures := 0; ; {
		fail := r.request(ctx)
		if r.stopped || (fail == nil && !r.log.Follow && r.count < logPage) {
			return nil
		}
		if ctx.Err() != nil {
			return &Error{Op: r.call.op, Err: contextError(ctx)}
		}
		if fail == nil && !r.log.Follow {
			continue // the page was full: there may be more
		}
		if r.count > 0 {
			failures = 0
		}
		failures++
		pause := r.f.client.backoff.delay(failures, 0)
		if fail != nil {
			if tries := r.f.client.maxTries; !fail.Retryable() || fail.RetryAfter > maxRetryAfter ||
				(tries > 0 && failures >= tries) {
				return fail
			}
			pause += fail.RetryAfter
		}
		if !sleep(ctx, pause) {
			return &Error{Op: r.call.op, Err: contextError(ctx)}
		}
	}
}

// request makes one request and hands on what it brings. nil is a log that came
// to its end, or a server that ended one that is followed, as a stop does.
func (r *logReader) request(ctx context.Context) *Error {
	r.count = 0
	query := url.Values{}
	if r.log.Since > 0 {
		query.Set("since_offset", strconv.FormatUint(r.log.Since, 10))
	}
	if r.log.Follow {
		query.Set("follow", "true")
	} else {
		query.Set("limit", strconv.Itoa(logPage))
	}
	r.call.query = query.Encode()
	body, fail := r.f.client.openStream(ctx, r.call)
	if fail != nil {
		return fail
	}
	defer body.Close()
	return r.entries(body)
}

// entries hands the entries on. What cannot be read is read again: from the
// last entry on, by another request.
func (r *logReader) entries(body io.Reader) *Error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxLogLine)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var e FetchBoxLogEntry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Offset < r.log.Since {
			return &Error{Op: r.call.op, Err: errors.Join(errLogInterrupted, err), transient: true}
		}
		r.count++
		r.log.Since = e.Offset + 1
		if !r.yield(e, nil) {
			r.stopped = true
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return &Error{Op: r.call.op, Err: fmt.Errorf("%w: %w", errLogInterrupted, err),
			transient: !errors.Is(err, bufio.ErrTooLong)}
	}
	return nil
}

// open makes a call once and returns the body of its answer, which may take as
// long as it likes once it has begun. Closing it ends the call.
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
		return nil, &Error{Op: call.op, Err: err, transient: !certificateRejected(err)}
	}
	if !slices.Contains(call.accept, resp.StatusCode) {
		defer cancel(nil)
		defer drainBody(resp.Body)
		fail := responseError(call, resp)
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
