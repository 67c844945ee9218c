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

// AdminEventKind is what an event is about.
type AdminEventKind string

const (
	// AdminEventReset says that earlier events are no longer valid, as another node answers or
	// the server was restarted. All that there is follows.
	AdminEventReset AdminEventKind = "reset"
	// AdminEventCounts has the counts of queues that have changed.
	AdminEventCounts AdminEventKind = "counts"
	// AdminEventJob has a job that has changed.
	AdminEventJob AdminEventKind = "job"
	// AdminEventBulk has a bulk operation that has changed.
	AdminEventBulk AdminEventKind = "bulk"
)

// AdminEvent is a live event (AD-061).
type AdminEvent struct {
	Kind   AdminEventKind
	Queues []AdminQueueCounts // of AdminEventCounts
	Job    AdminJob           // of AdminEventJob; its state is "gone" where there is none
	Bulk   AdminBulk          // of AdminEventBulk
}

// AdminQueueCounts are how many jobs of a queue are in which phase, as in [AdminQueue].
type AdminQueueCounts struct {
	Contract string `json:"contract"`
	Queue    string `json:"queue"`
	Waiting  int64  `json:"waiting"`
	Delayed  int64  `json:"delayed"`
	Ready    int64  `json:"ready"`
	Leased   int64  `json:"leased"`
	Dead     int64  `json:"dead"`
}

// maxEventLine bounds the line of an event, in bytes.
const maxEventLine = 4 << 20

// Events iterates over what changes, about once a second where something has (AD-061): the counts
// of queues, bulk operations, and the jobs with the numbers, which are up to 100. It begins with
// all that there is. When the connection breaks or the server is restarted, it goes on by the
// client's [Retry], whose tries are counted from zero after each event.
//
// It ends when the caller stops it, or with the first error: that of the context,
// [ErrUnauthorized], or [ErrRetryable] when the tries are used up.
func (a *Admin) Events(ctx context.Context, numbers ...int64) iter.Seq2[AdminEvent, error] {
	return func(yield func(AdminEvent, error) bool) {
		r := eventReader{admin: a, yield: yield, call: call{op: "admin events",
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
			r.brought = false
			fail := r.request(ctx)
			switch {
			case r.stopped:
				return streamDone, nil
			case r.brought:
				return streamProgressed, fail
			}
			return streamEmpty, fail
		})
		if err != nil {
			yield(AdminEvent{}, err)
		}
	}
}

// eventReader reads events in as many requests as it takes.
type eventReader struct {
	admin   *Admin
	call    call
	yield   func(AdminEvent, error) bool
	last    string // the id of the last event
	brought bool   // the present request has brought something
	stopped bool   // the caller has ended the iteration
}

// request makes one request and yields its events.
func (r *eventReader) request(ctx context.Context) *Error {
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
	return r.events(body)
}

// events yields the events of an answer: lines "name: value", where the space may be missing, ended
// by an empty one. A line that begins with a colon is a comment.
func (r *eventReader) events(body io.Reader) *Error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxEventLine)
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
			if fail := r.event(AdminEventKind(kind), data); fail != nil || r.stopped {
				return fail
			}
			if id != "" {
				r.last = id
			}
			kind, id, data = "", "", nil
		}
	}
	if err := lines.Err(); err != nil {
		return &Error{Op: r.call.op, Err: fmt.Errorf("the events were interrupted: %w", err),
			transient: !errors.Is(err, bufio.ErrTooLong)}
	}
	return nil
}

// event yields one event. Those of other kinds, of later servers, are passed over.
func (r *eventReader) event(kind AdminEventKind, data []byte) *Error {
	r.brought = true
	e := AdminEvent{Kind: kind}
	var err error
	switch kind {
	case AdminEventReset:
	case AdminEventCounts:
		err = json.Unmarshal(data, &struct {
			Queues *[]AdminQueueCounts `json:"queues"`
		}{&e.Queues})
	case AdminEventJob:
		err = json.Unmarshal(data, &e.Job)
	case AdminEventBulk:
		err = json.Unmarshal(data, &e.Bulk)
	default:
		return nil
	}
	if err != nil {
		return &Error{Op: r.call.op, transient: true,
			Err: fmt.Errorf("an event cannot be read: %w", err)}
	}
	r.stopped = !r.yield(e, nil)
	return nil
}
