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
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// AdminUpdateKind says what has changed.
type AdminUpdateKind string

// The kinds of updates.
const (
	// AdminUpdateReset says that earlier updates are no longer valid, because another node answers
	// or the server was restarted. The present counts, bulk operations and jobs follow.
	AdminUpdateReset AdminUpdateKind = "reset"
	// AdminUpdateCounts has the new counts of queues.
	AdminUpdateCounts AdminUpdateKind = "counts"
	// AdminUpdateJob has a job that has changed, one of those that are watched.
	AdminUpdateJob AdminUpdateKind = "job"
	// AdminUpdateBulkOperation has a bulk operation that has changed.
	AdminUpdateBulkOperation AdminUpdateKind = "bulk"
)

// AdminUpdate is a change that [Admin.Watch] has seen (AD-061).
type AdminUpdate struct {
	Kind          AdminUpdateKind
	Queues        []AdminQueueCounts // of AdminUpdateCounts
	Job           AdminJob           // of AdminUpdateJob; its state is "gone" if it does not exist
	BulkOperation AdminBulkOperation // of AdminUpdateBulkOperation
}

// AdminQueueCounts has the counts of a queue, as [AdminQueue] explains them.
type AdminQueueCounts struct {
	Contract string `json:"contract"`
	Queue    string `json:"queue"`
	Waiting  int64  `json:"waiting"`
	Delayed  int64  `json:"delayed"`
	Ready    int64  `json:"ready"`
	Leased   int64  `json:"leased"`
	Dead     int64  `json:"dead"`
}

// maxUpdateLine is the most bytes of the line of an update.
const maxUpdateLine = 4 << 20

// Watch iterates over changes, about once a second while there are some (AD-061): the counts of
// queues, bulk operations, and the jobs with the given numbers, at most 100. It begins with the
// present counts, bulk operations and jobs. When the connection breaks or the server is restarted,
// it reconnects as the client's [Retry] says, and counts tries from zero after each update.
//
// It ends when the caller stops it, or with the first error: that of the context,
// [ErrUnauthorized], or [ErrRetryable] after the last try.
func (a *Admin) Watch(ctx context.Context, numbers ...int64) iter.Seq2[AdminUpdate, error] {
	return func(yield func(AdminUpdate, error) bool) {
		r := updateReader{admin: a, yield: yield, call: call{op: "admin watch",
			method: http.MethodGet, path: "/admin/v1/events", readOnly: true,
			accept: []int{http.StatusOK}}}
		var texts []string
		for _, number := range numbers {
			texts = append(texts, strconv.FormatInt(number, 10))
		}
		if len(texts) > 0 {
			r.call.query = url.Values{"number": {strings.Join(texts, ",")}}.Encode()
		}
		err := a.client.doContinued(ctx, r.call.op, func() (streamOutcome, *Error) {
			r.gotUpdate = false
			fail := r.request(ctx)
			switch {
			case r.stopped:
				return streamDone, nil
			case r.gotUpdate:
				return streamProgressed, fail
			}
			return streamEmpty, fail
		})
		if err != nil {
			yield(AdminUpdate{}, err)
		}
	}
}

// updateReader reads updates, in as many requests as are needed.
type updateReader struct {
	admin     *Admin
	call      call
	yield     func(AdminUpdate, error) bool
	last      string // the id of the last update
	gotUpdate bool   // the present request has got an update
	stopped   bool   // the caller has ended the iteration
}

// request makes one request and yields its updates.
func (r *updateReader) request(ctx context.Context) *Error {
	r.call.header = http.Header{}
	for name, values := range r.admin.header() {
		r.call.header[name] = values
	}
	if r.last != "" {
		r.call.header.Set("Last-Event-ID", r.last)
	}
	body, fail := r.admin.client.openStream(ctx, r.call)
	if fail != nil {
		return fail
	}
	defer body.Close()
	return r.readUpdates(body)
}

// readUpdates yields the updates of an answer, which are server-sent events: lines "name: value",
// where the space may be missing, ended by an empty line. A line that begins with a colon is a
// comment.
func (r *updateReader) readUpdates(body io.Reader) *Error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxUpdateLine)
	kind, id, data := "", "", []byte(nil)
	for lines.Scan() {
		line := lines.Bytes()
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case string(name) == "event":
			kind = string(value)
		case string(name) == "id":
			id = string(value)
		case string(name) == "data":
			data = bytes.Clone(value)
		case len(line) == 0:
			if fail := r.yieldUpdate(AdminUpdateKind(kind), data); fail != nil || r.stopped {
				return fail
			}
			if id != "" {
				r.last = id
			}
			kind, id, data = "", "", nil
		}
	}
	if err := lines.Err(); err != nil {
		return &Error{Op: r.call.op, Err: fmt.Errorf("the updates were interrupted: %w", err),
			transient: !errors.Is(err, bufio.ErrTooLong)}
	}
	return nil
}

// yieldUpdate yields one update. It skips unknown kinds, which later servers may have.
func (r *updateReader) yieldUpdate(kind AdminUpdateKind, data []byte) *Error {
	r.gotUpdate = true
	u := AdminUpdate{Kind: kind}
	var err error
	switch kind {
	case AdminUpdateReset:
	case AdminUpdateCounts:
		err = json.Unmarshal(data, &struct {
			Queues *[]AdminQueueCounts `json:"queues"`
		}{&u.Queues})
	case AdminUpdateJob:
		err = json.Unmarshal(data, &u.Job)
	case AdminUpdateBulkOperation:
		err = json.Unmarshal(data, &u.BulkOperation)
	default:
		return nil
	}
	if err != nil {
		return &Error{Op: r.call.op, transient: true,
			Err: fmt.Errorf("an update cannot be read: %w", err)}
	}
	r.stopped = !r.yield(u, nil)
	return nil
}
