package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// RelayHeartbeat is one heartbeat of [Relay.HeartbeatAll].
type RelayHeartbeat struct {
	RelayRun
	// State is any JSON value, stored as the job's state. Nil keeps the stored one; a JSON null
	// removes it.
	State json.RawMessage
	// Error reports that the run has failed, and why, for operators and dead letters (G-RL-37).
	// Its lease is not extended: the job returns when it ends. Empty is for a run that goes on.
	Error string
	// ErrorType is the type of the Error in up to 255 bytes, for those who count them.
	ErrorType string
}

// CompleteAll is [Relay.Complete] for up to 50,000 runs, also of several queues, in one request and
// one transaction (G-RL-32). It is for programs that claim many jobs at a time. known[i] is whether
// runs[i] was the current run of its job, which is removed then. A run that is not does not affect
// the others, and is no error; when two entries have the same run id, the second is not known.
// Without runs CompleteAll sends nothing.
//
// Errors: [ErrInvalid] when an entry is wrong, which Message names by its index, and for a request
// that is too large; [ErrNotFound] or another [*Error] with a server that does not have this
// request, which is an extension of the protocol. No run has ended then, unless the error is
// Uncertain.
//
// Repeating is safe. After a try whose answer was lost, the runs that it has ended are not known.
func (r *Relay) CompleteAll(ctx context.Context, runs []RelayRun) (known []bool, err error) {
	return r.completeAll(ctx, runs, false)
}

func (r *Relay) completeAll(ctx context.Context, runs []RelayRun, singleTry bool) ([]bool, error) {
	return r.postRuns(ctx, call{
		op:        "relay complete all",
		path:      "/v2/queues/completions",
		singleTry: singleTry,
	}, entriesOf(runs))
}

// entriesOf returns runs as entries of a request.
func entriesOf(runs []RelayRun) []RelayHeartbeat {
	entries := make([]RelayHeartbeat, len(runs))
	for i, run := range runs {
		entries[i].RelayRun = run
	}
	return entries
}

// completeAndClaim completes runs of a queue and claims up to numJobs of its jobs, in one request
// and one transaction (G-RL-35), by a single try. known is as that of CompleteAll.
func (r *Relay) completeAndClaim(ctx context.Context, queue string, runs []RelayRun, numJobs int,
	worker string) (jobs []RelayJob, known []bool, err error) {
	const op = "relay complete and claim"
	body, err := encodeRuns(entriesOf(runs))
	if err != nil {
		return nil, nil, invalid(op, "%v", err)
	}
	call := call{
		op:        op,
		method:    http.MethodPost,
		path:      "/v2/queues/completions",
		query:     url.Values{"next": {strconv.Itoa(numJobs)}}.Encode(),
		header:    http.Header{"Millrace-Worker": {worker}},
		body:      body,
		singleTry: true,
		wantBody:  true,
		accept:    []int{http.StatusOK, http.StatusNoContent},
	}
	got, err := r.client.doWithRetries(ctx, call)
	switch {
	case err != nil:
		return nil, nil, err
	case got.status == http.StatusNoContent:
		return nil, got.knownRuns(len(runs)), nil
	}
	jobs, err = decodeClaimed(got.body, queue, numJobs)
	if err != nil {
		return nil, nil, unreadable(call, got, err)
	}
	return jobs, got.knownRuns(len(runs)), nil
}

// knownRuns returns which of the n runs of a request were known, by the header of an answer whose
// body does not say it (G-RL-36). To a server without this header all were.
func (a answer) knownRuns(n int) []bool {
	known := slices.Repeat([]bool{true}, n)
	for entry := range strings.SplitSeq(a.header.Get("Millrace-Lost-Runs"), ",") {
		i, err := strconv.Atoi(entry)
		if err != nil {
			continue
		}
		if i >= 0 && i < n {
			known[i] = false
		}
	}
	return known
}

// runLost returns the error of an answer about one run by which the run is lost. It is uncertain
// when an earlier try of the call may have ended the run.
func (a answer) runLost(op string) error {
	if a.knownRuns(1)[0] {
		return nil
	}
	return runLost(op, a.status, a.uncertain)
}

// mayHaveEnded reports whether a try that has failed may have ended a run: its answer was lost, or
// it was one to try again, which Relay also sends where it cannot tell what its store has done.
func (e *Error) mayHaveEnded() bool {
	return e.Uncertain || (e.Status != 0 && e.Retryable())
}

// runLost is the error of a call whose answer says that the run is lost.
func runLost(op string, status int, uncertain bool) *Error {
	return &Error{Op: op, Status: status, Uncertain: uncertain, Err: ErrRunLost,
		Message: "the run is no longer the job's current one"}
}

// decodeClaimed reads up to numJobs jobs of a queue, at least one, that were claimed. A server that
// passes over the parameter next answers with entries that have no queue.
func decodeClaimed(body []byte, queue string, numJobs int) ([]RelayJob, error) {
	jobs, err := decodeJobs(body)
	if err != nil {
		return nil, err
	}
	if len(jobs) == 0 || len(jobs) > numJobs {
		return nil, fmt.Errorf("it has %d jobs, not 1 to %d", len(jobs), numJobs)
	}
	for i := range jobs {
		if jobs[i].Queue != queue || jobs[i].RunID == "" {
			return nil, fmt.Errorf("entry %d is not a job of the queue that was claimed", i)
		}
	}
	return jobs, nil
}

// HeartbeatAll is [Relay.Heartbeat] for up to 50,000 runs, also of several queues, in one request
// and one transaction (G-RL-32). known[i] is whether heartbeats[i] named the current run of its
// job; where it is false the run is lost, and its worker should stop. That does not affect the
// others. When two entries have the same run id, the last state counts. Without heartbeats
// HeartbeatAll sends nothing.
//
// Errors: those of [Relay.CompleteAll]. Repeating is safe: it stores the same states again.
func (r *Relay) HeartbeatAll(ctx context.Context, heartbeats []RelayHeartbeat) (known []bool,
	err error) {
	return r.heartbeatAll(ctx, heartbeats, false)
}

func (r *Relay) heartbeatAll(ctx context.Context, heartbeats []RelayHeartbeat,
	singleTry bool) ([]bool, error) {
	return r.postRuns(ctx, call{
		op:        "relay heartbeat all",
		path:      "/v2/queues/heartbeats",
		singleTry: singleTry,
	}, heartbeats)
}

// postRuns sends entries and returns which of their runs were known.
func (r *Relay) postRuns(ctx context.Context, call call, entries []RelayHeartbeat) ([]bool, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	body, err := encodeRuns(entries)
	if err != nil {
		return nil, invalid(call.op, "%v", err)
	}
	call.method, call.body = http.MethodPost, body
	call.accept, call.wantBody = []int{http.StatusOK}, true
	got, err := r.client.doWithRetries(ctx, call)
	if err != nil {
		return nil, err
	}
	known, err := decodeKnown(got.body, entries)
	if err != nil {
		return nil, unreadable(call, got, err)
	}
	return known, nil
}

// encodeRuns encodes entries as they are on the wire. The error names the first that is wrong.
func encodeRuns(entries []RelayHeartbeat) ([]byte, error) {
	body := []byte{'['}
	for i, entry := range entries {
		if i > 0 {
			body = append(body, ',')
		}
		var err error
		if body, err = entry.append(body); err != nil {
			return nil, fmt.Errorf("run %d: %w", i, err)
		}
	}
	return append(body, ']'), nil
}

// append appends the entry as it is on the wire. The state stays byte for byte.
func (h RelayHeartbeat) append(b []byte) ([]byte, error) {
	if err := errors.Join(
		checkName("queue", h.Queue),
		checkName("id", h.ID),
		checkName("run id", h.RunID),
	); err != nil {
		return nil, err
	}
	b = append(b, `{"queue":`...)
	b = appendString(b, h.Queue)
	b = append(b, `,"id":`...)
	b = appendString(b, h.ID)
	b = append(b, `,"run_id":`...)
	b = appendString(b, h.RunID)
	if h.State != nil {
		if err := checkJSON("state", h.State); err != nil {
			return nil, err
		}
		b = append(b, `,"state":`...)
		b = append(b, h.State...)
	}
	if h.Error != "" {
		b = append(b, `,"error":`...)
		b = appendString(b, h.Error)
	}
	if h.Error != "" && h.ErrorType != "" {
		b = append(b, `,"error_type":`...)
		b = appendString(b, h.ErrorType)
	}
	return append(b, '}'), nil
}

// decodeKnown reads the answer to entries, which must be about these in their order.
func decodeKnown(body []byte, entries []RelayHeartbeat) ([]bool, error) {
	var results []struct {
		ID    string `json:"id"`
		RunID string `json:"run_id"`
		Known *bool  `json:"known"`
	}
	if err := json.Unmarshal(body, &results); err != nil {
		return nil, err
	}
	if len(results) != len(entries) {
		return nil, fmt.Errorf("it has %d entries, not %d", len(results), len(entries))
	}
	known := make([]bool, len(results))
	for i, result := range results {
		if result.ID != entries[i].ID || result.RunID != entries[i].RunID || result.Known == nil {
			return nil, fmt.Errorf("entry %d is about another run", i)
		}
		known[i] = *result.Known
	}
	return known, nil
}
