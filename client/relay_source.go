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

	completions batcher[*relayEnd]
	heartbeats  batcher[RelayRun]
	noNext      unsupported // ends that bring the next job
}

// relayEnd is a run that ends with success.
type relayEnd struct {
	run RelayRun
	// mayClaim reports whether a job of the queue is wanted in its place; nil means that none is.
	mayClaim  func() bool
	next      *RelayJob // that job, once the end is answered; nil for none
	uncertain bool      // the answer of a batch with it was lost, which may have ended the run
}

// newRelaySource makes a source of the jobs of a queue.
func newRelaySource(relay *Relay, queue, name string, handler Handler,
	afterRun func(RelayJob, error)) *relaySource {
	s := &relaySource{relay: relay, queue: queue, name: name, handler: handler,
		afterRun: afterRun}
	s.completions = batcher[*relayEnd]{op: opComplete, sendOne: s.completeOne,
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

// completeOne completes a run in a request of its own. It fails with ErrRunLost when the run is
// lost, which is uncertain when an earlier request may have ended it.
func (s *relaySource) completeOne(ctx context.Context, end *relayEnd) error {
	errs, err := s.completeAndClaim(ctx, end)
	if err != nil {
		return s.completeAlone(ctx, end)
	}
	return errs[0]
}

// completeAlone is completeOne without a claim.
func (s *relaySource) completeAlone(ctx context.Context, end *relayEnd) error {
	err := s.relay.complete(ctx, end.run)
	var fail *Error
	if errors.Is(err, ErrRunLost) && errors.As(err, &fail) {
		fail.Uncertain = fail.Uncertain || end.uncertain
	}
	return err
}

// completeAll completes runs in one request. The error of one that is lost is ErrRunLost.
func (s *relaySource) completeAll(ctx context.Context, ends []*relayEnd) ([]error, error) {
	errs, err := s.completeAndClaim(ctx, ends...)
	if !errors.Is(err, errNoBatches) {
		return errs, err
	}
	// It has no next, but may have batches.
	known, err := s.relay.completeAll(withoutOutcomeTries(ctx), runsOf(ends), true)
	if err != nil {
		return nil, failedEnds(ends, err)
	}
	return lostRuns(opComplete, http.StatusOK, known), nil
}

// lostRuns returns an error for each of the runs of a request that was not known.
func lostRuns(op string, status int, known []bool) []error {
	errs := make([]error, len(known))
	for i := range known {
		if !known[i] {
			errs[i] = runLost(op, status, false)
		}
	}
	return errs
}

// failedEnds is batchError for ends of runs, which a request without an answer may have ended.
func failedEnds(ends []*relayEnd, err error) error {
	var fail *Error
	if errors.As(err, &fail) && fail.mayHaveEnded() {
		for _, end := range ends {
			end.uncertain = true
		}
	}
	return batchError(err)
}

// completeAndClaim completes runs and claims jobs in the place of those that want one, in one
// request (G-RL-35), and returns an error for each that is lost. It is tried once, as a batch is:
// who does not get an answer ends its run without a claim, and jobs in an answer that is lost
// return after their timeouts. The error is errNoBatches where the server is not asked, or would
// refuse another such request too.
func (s *relaySource) completeAndClaim(ctx context.Context, ends ...*relayEnd) ([]error, error) {
	var claiming []*relayEnd
	for _, end := range ends {
		if end.mayClaim != nil && end.mayClaim() {
			claiming = append(claiming, end)
		}
		end.mayClaim = nil // it is not asked for a second time
	}
	if len(claiming) == 0 || s.noNext.isOn() {
		return nil, errNoBatches
	}
	jobs, known, err := s.relay.completeAndClaim(withoutOutcomeTries(ctx), s.queue, runsOf(ends),
		len(claiming), s.name)
	if err != nil {
		if err = failedEnds(ends, err); errors.Is(err, errNoBatches) {
			s.noNext.begin()
		}
		return nil, err
	}
	for i := range jobs {
		claiming[i].next = &jobs[i]
	}
	return lostRuns(opComplete, http.StatusOK, known), nil
}

func runsOf(ends []*relayEnd) []RelayRun {
	runs := make([]RelayRun, len(ends))
	for i, end := range ends {
		runs[i] = end.run
	}
	return runs
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
	return lostRuns(opHeartbeat, http.StatusNotFound, known), nil
}

// batchError decides what becomes of the entries of a batch that has failed. A batch is tried once,
// and its entries go on one by one, as if it had not been sent: that is right for every server and
// proxy, whatever its answer means. An answer that another batch would get too, such as 404 from a
// server that does not have the route, ends batches for a while.
func batchError(err error) error {
	var fail *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &fail) && fail.Status != 0 && !fail.Retryable():
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

func (l *relayLease) complete(ctx context.Context, mayClaim func() bool) (next lease,
	refused, err error) {
	end := &relayEnd{run: l.job.Run(), mayClaim: mayClaim}
	if !l.fitsBatch() {
		err = l.source.completeOne(ctx, end)
	} else {
		err = l.source.completions.send(ctx, end)
	}
	unanswered := err != nil && !errors.Is(err, ErrRunLost) // next may still be written
	if unanswered || end.next == nil {
		return nil, nil, err
	}
	return &relayLease{source: l.source, job: *end.next}, nil, err
}

// fitsBatch reports whether the names of the job are short enough to share a request.
func (l *relayLease) fitsBatch() bool { return len(l.job.Queue)+len(l.job.ID) <= maxBatchedBytes }

// release returns nil: Relay has no release.
func (l *relayLease) release() func(context.Context) error { return nil }

// report sends why the handler has failed, for operators and dead letters (G-RL-37). The lease goes
// on until it ends. A server that does not have the request gets no reason.
func (l *relayLease) report(ctx context.Context, failure, cause error) error {
	entry := RelayHeartbeat{RelayRun: l.job.Run(), Error: failureText(failure),
		ErrorType: failureType(failure, cause)}
	known, err := l.source.relay.HeartbeatAll(ctx, []RelayHeartbeat{entry})
	switch status := statusOf(err); {
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return nil
	case err != nil:
		return err
	case !known[0]:
		return runLost(opHeartbeat, http.StatusNotFound, false)
	}
	return nil
}

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
