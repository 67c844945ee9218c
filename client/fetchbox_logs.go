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
	"strconv"
)

// logPage is how many log entries one request asks for (G-FB-21).
const logPage = 1000

// maxLogLine limits the line of a log entry, in bytes.
const maxLogLine = 1 << 20

// errLogInterrupted means that the connection of a log broke or its data was damaged, which every
// followed log meets sooner or later.
var errLogInterrupted = errors.New("the log was interrupted")

// FetchBoxLogOptions selects a part of a log.
type FetchBoxLogOptions struct {
	// Since is the offset of the first entry; 0 means the first of the job (FB-060). To continue
	// a log, pass the offset of the last entry plus one.
	Since uint64
	// Follow waits for new entries after the last one.
	Follow bool
}

// Logs iterates over the log of a job: each entry once, in order (FB-059, FB-061). When the
// connection breaks, it continues after the last entry, by the client's [Retry], whose tries are
// counted from zero after each entry. Without Follow it ends after the last entry. With Follow it
// ends when the caller stops it, or with the error of the context.
//
// It ends with the first error: [ErrNotFound], [ErrUnauthorized], or [ErrRetryable] when the tries
// are used up.
func (f *FetchBox) Logs(ctx context.Context, jobID string,
	log FetchBoxLogOptions) iter.Seq2[FetchBoxLogEntry, error] {
	return func(yield func(FetchBoxLogEntry, error) bool) {
		const op = "fetchbox logs"
		if err := checkName("job id", jobID); err != nil {
			yield(FetchBoxLogEntry{}, invalid(op, "%v", err))
			return
		}
		r := logReader{f: f, log: log, yield: yield,
			call: f.asOperator(call{op: op, path: fetchJobsPath + "/" + escape(jobID) + "/logs"})}
		if err := r.read(ctx); err != nil {
			yield(FetchBoxLogEntry{}, err)
		}
	}
}

// logReader reads a log in as many requests as it takes.
type logReader struct {
	f       *FetchBox
	call    call
	log     FetchBoxLogOptions // Since moves with every entry
	yield   func(FetchBoxLogEntry, error) bool
	count   int  // entries of the present request
	stopped bool // the caller has ended the iteration
}

// read makes requests until the log has ended or the tries are used up.
func (r *logReader) read(ctx context.Context) error {
	return r.f.client.doContinued(ctx, r.call.op, func() (streamOutcome, *Error) {
		fail := r.request(ctx)
		switch {
		case r.stopped:
			return streamDone, nil
		case (fail != nil || r.log.Follow) && r.count > 0:
			return streamProgressed, fail
		case fail != nil || r.log.Follow:
			return streamEmpty, fail
		case r.count < logPage:
			return streamDone, nil
		}
		return streamContinues, nil // the page was full: there may be more
	})
}

// request makes one request and yields its entries. It returns nil when the answer was complete: at
// the end of the log or, with Follow, when the server ended the answer, as it does when it stops.
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
	return r.readEntries(body)
}

// readEntries yields the entries of an answer. An entry that cannot be read is a retryable error:
// the next request continues after the last good entry.
func (r *logReader) readEntries(body io.Reader) *Error {
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
