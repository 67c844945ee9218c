package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// RelayDeadLetter is a job that was out of retries (RT-004).
type RelayDeadLetter struct {
	// ID is the number of the dead letter. One job id may have several, as it can be used again.
	ID    int64  `json:"id"`
	Queue string `json:"queue"`
	JobID string `json:"job_id"`
	// Attempts is how often the job was claimed.
	Attempts int `json:"attempts"`
	// Error says how the last attempt ended, as far as the server knows.
	Error string `json:"error"`
	// Payload and State are as the job had them.
	Payload  json.RawMessage `json:"payload"`
	State    json.RawMessage `json:"state"`
	FailedAt time.Time       `json:"failed_at"`
	// ReplayedAt is when it was last replayed; nil if it was not.
	ReplayedAt *time.Time `json:"replayed_at"`
}

// DeadLetters iterates over the dead letters of a queue, the oldest first, and asks for pageSize of
// them at a time; 0 leaves the size to the server. It ends with the first error. A dead letter that
// was replayed stays in the list.
//
// Errors: [ErrInvalid]. Repeating is safe.
func (r *Relay) DeadLetters(ctx context.Context, queue string,
	pageSize int) iter.Seq2[RelayDeadLetter, error] {
	const op = "relay dead letters"
	return pages(url.Values{}, pageSize, func(query url.Values) (page[RelayDeadLetter], error) {
		if err := checkName("queue", queue); err != nil {
			return page[RelayDeadLetter]{}, invalid(op, "%v", err)
		}
		return doJSON[page[RelayDeadLetter]](ctx, r.client, call{
			op:       op,
			method:   http.MethodGet,
			path:     "/v2/queues/" + escape(queue) + "/dead-letters",
			query:    query.Encode(),
			readOnly: true,
			accept:   []int{http.StatusOK},
		})
	})
}

// Replay enqueues the job of a dead letter again, under its id and with all of its retries, and
// returns it. again replays also one that was replayed before.
//
// Errors: [ErrNotFound]; [ErrConflict] when it was replayed before, and when a job has its queue
// and id; [ErrInvalid].
//
// Repeating: after a try whose answer was lost, the conflict of a repeat may be with that try; the
// error is Uncertain then. With again a try whose answer was lost is not repeated.
func (r *Relay) Replay(ctx context.Context, queue string, id int64, again bool) (RelayJob, error) {
	const op = "relay replay"
	if err := checkName("queue", queue); err != nil {
		return RelayJob{}, invalid(op, "%v", err)
	}
	var body []byte
	if again {
		body = []byte(`{"again":true}`)
	}
	wire, err := doJSON[relayWire](ctx, r.client, call{
		op:     op,
		method: http.MethodPost,
		path: "/v2/queues/" + escape(queue) + "/dead-letters/" +
			strconv.FormatInt(id, 10) + "/replay",
		body:          body,
		accept:        []int{http.StatusAccepted},
		notIdempotent: again,
	})
	if err != nil {
		return RelayJob{}, err
	}
	job, err := wire.job()
	if err != nil {
		return RelayJob{}, &Error{Op: op, Uncertain: true, Err: fmt.Errorf("answer: %w", err)}
	}
	return job, nil
}
