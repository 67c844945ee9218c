package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// relaySource claims the jobs of one Relay queue.
type relaySource struct {
	relay    *Relay
	queue    string
	name     string // of the worker
	handler  Handler
	afterRun func(RelayJob, error) // may be nil

	completions, heartbeats batcher[RelayRun]
}

// newRelaySource makes a source of the jobs of a queue.
func newRelaySource(relay *Relay, queue, name string, handler Handler,
	afterRun func(RelayJob, error)) *relaySource {
	s := &relaySource{relay: relay, queue: queue, name: name, handler: handler,
		afterRun: afterRun}
	s.completions = batcher[RelayRun]{op: opComplete, sendOne: relay.Complete,
		sendAll: s.completeAll}
	s.heartbeats = batcher[RelayRun]{op: opHeartbeat, sendOne: s.heartbeatOne,
		sendAll: s.heartbeatAll}
	return s
}

// wait waits until no request is under way, after the last run has ended.
func (s *relaySource) wait() {
	s.completions.wait()
	s.heartbeats.wait()
}

func (s *relaySource) claim(ctx context.Context, max int, wait time.Duration) ([]lease, error) {
	jobs, err := s.relay.claim(ctx, s.queue, max, wait, s.name, true)
	if err != nil {
		return nil, err
	}
	leases := make([]lease, len(jobs))
	for i, job := range jobs {
		leases[i] = &relayLease{source: s, job: job}
	}
	return leases, nil
}

// completeAll completes runs in one request. A run that is lost is no error (G-RL-03).
func (s *relaySource) completeAll(ctx context.Context, runs []RelayRun) ([]error, error) {
	if _, err := s.relay.completeAll(withoutOutcomeTries(ctx), runs, true); err != nil {
		return nil, batchError(err)
	}
	return make([]error, len(runs)), nil
}

func (s *relaySource) heartbeatOne(ctx context.Context, run RelayRun) error {
	return s.relay.Heartbeat(ctx, run, nil)
}

// heartbeatAll sends heartbeats in one request.
func (s *relaySource) heartbeatAll(ctx context.Context, runs []RelayRun) ([]error, error) {
	all := make([]RelayHeartbeat, len(runs))
	for i, run := range runs {
		all[i].RelayRun = run
	}
	known, err := s.relay.heartbeatAll(ctx, all, true)
	if err != nil {
		return nil, batchError(err)
	}
	errs := make([]error, len(runs))
	for i := range runs {
		if !known[i] {
			errs[i] = &Error{Op: opHeartbeat, Status: http.StatusNotFound, Err: ErrRunLost}
		}
	}
	return errs, nil
}

// batchError decides what becomes of the entries of a batch that has failed. A batch is tried once,
// and its entries go on one by one, as if it had not been sent: that is right for every server and
// proxy, whatever its answer means. An answer that another batch would get too, such as 404 from a
// server that does not have the route, ends batches for a while.
func batchError(err error) error {
	var fail *Error
	if errors.As(err, &fail) && fail.Status != 0 && !fail.Retryable() {
		return errNoBatches
	}
	return errSendSingly
}

// relayLease is one claimed job.
type relayLease struct {
	source *relaySource
	job    RelayJob
}

func (l *relayLease) timeout() time.Duration { return l.job.Timeout }

func (l *relayLease) logAttrs() []any { return []any{"job_id", l.job.ID, "run_id", l.job.RunID} }

func (l *relayLease) handle(ctx context.Context, a *attempt) error {
	return l.source.handler(ctx, &Run{Job: l.job, attempt: a, relay: l.source.relay})
}

// heartbeat sends a state in a request of its own: a caller that stops waiting for a batch cannot
// take its entry back, and a state must not arrive after a newer one.
func (l *relayLease) heartbeat(ctx context.Context,
	state json.RawMessage) (cancel bool, err error) {
	if state != nil || !l.fitsBatch() {
		return false, l.source.relay.Heartbeat(ctx, l.job.Run(), state)
	}
	return false, l.source.heartbeats.send(ctx, l.job.Run())
}

func (l *relayLease) complete(ctx context.Context) (refused, err error) {
	if !l.fitsBatch() {
		return nil, l.source.relay.Complete(ctx, l.job.Run())
	}
	return nil, l.source.completions.send(ctx, l.job.Run())
}

// fitsBatch reports whether the names of the job are short enough to share a request.
func (l *relayLease) fitsBatch() bool { return len(l.job.Queue)+len(l.job.ID) <= maxBatchedBytes }

// unfinished returns nil: Relay has no failure report and no release.
func (l *relayLease) unfinished() unfinished { return nil }

func (l *relayLease) runFinished(reason error) {
	if l.source.afterRun != nil {
		l.source.afterRun(l.job, reason)
	}
}

// decodeExact decodes JSON. Numbers become json.Number in fields of type any, so that none is
// rounded.
func decodeExact(raw json.RawMessage, target any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return decoder.Decode(target)
}
