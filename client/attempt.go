package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	// zeroLeaseHeartbeat is the heartbeat interval of a run with timeout 0. Its lease cannot be
	// extended (RL-090), but the answer to a heartbeat shows when the run is lost.
	zeroLeaseHeartbeat = time.Second
	// heartbeatTimeout is the least time that one heartbeat gets, however short its interval is,
	// so that a slow server can still answer.
	heartbeatTimeout = time.Second
	// A request that finishes a run is retried for two thirds of the lease, which is what remains
	// of it after the latest heartbeat, within these bounds.
	minFinishTimeout = 10 * time.Second
	maxFinishTimeout = time.Minute
)

// phase is where an attempt stands. It leaves phaseRunning once.
type phase int

const (
	phaseRunning  phase = iota
	phaseLost           // the server ended the run, or must be presumed to have
	phaseFinished       // completed, failed, requeued or released, or its handler has returned
)

// attempt is one run of a job in this process. It keeps the lease alive while the handler works,
// and makes sure that nothing is sent about the run after it was lost or finished:
//
//	            heartbeat refused, or none confirmed for a whole lease
//	running ──────────────────────────────────────────────────────────▶ lost
//	    │
//	    └── completed, failed, requeued, released, handler returned ──▶ finished
//
// Heartbeats come from a goroutine of their own, and the handler may save a state or requeue its
// job at any time. requestLock lets one request at a time through: a heartbeat that reached the
// server after the completion would be answered as if the run were lost.
type attempt struct {
	lease       lease
	log         *slog.Logger
	cancel      context.CancelCauseFunc // ends the handler's context
	requestLock chan struct{}           // one element while a request about this run is sent
	started     time.Time

	mu        sync.Mutex
	phase     phase
	lossCause error            // an ErrRunLost, in phaseLost
	staged    *json.RawMessage // the state to send with the next heartbeat
}

func newAttempt(l lease, cancel context.CancelCauseFunc, log *slog.Logger) *attempt {
	return &attempt{
		lease:       l,
		log:         log.With(l.logAttrs()...),
		cancel:      cancel,
		requestLock: make(chan struct{}, 1),
		started:     time.Now(),
	}
}

// stage keeps a copy of a state for the next heartbeat. It replaces a state that was not sent
// yet.
func (a *attempt) stage(state json.RawMessage) error {
	if err := checkJSON("state", state); err != nil {
		return invalid("set state", "%v", err)
	}
	stateCopy := append(json.RawMessage{}, state...)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.endErrorLocked(); err != nil {
		return err
	}
	a.staged = &stateCopy
	return nil
}

// endError returns why nothing more can be sent about the run; nil while it is running.
func (a *attempt) endError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.endErrorLocked()
}

func (a *attempt) endErrorLocked() error {
	switch a.phase {
	case phaseLost:
		return a.lossCause
	case phaseFinished:
		return ErrRunFinished
	}
	return nil
}

// markLost ends a running attempt and its handler's context. The cause is an ErrRunLost.
func (a *attempt) markLost(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != phaseRunning {
		return
	}
	a.phase, a.lossCause = phaseLost, cause
	a.cancel(cause)
}

// close ends a running attempt whose handler has returned and whose outcome was not accepted.
func (a *attempt) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase == phaseRunning {
		a.phase = phaseFinished
	}
}

// withRequestLock sends a request about the run by fn, after the requests before it. It sends
// nothing when the attempt has ended. A request that fails with ErrRunLost ends the attempt.
func (a *attempt) withRequestLock(ctx context.Context, fn func() error) error {
	select {
	case a.requestLock <- struct{}{}:
	case <-ctx.Done():
		return contextError(ctx)
	}
	defer func() { <-a.requestLock }()
	if err := a.endError(); err != nil {
		return err
	}
	err := fn()
	if errors.Is(err, ErrRunLost) {
		a.markLost(err)
	}
	return err
}

// heartbeat extends the lease and sends the staged state with it.
func (a *attempt) heartbeat(ctx context.Context) error {
	return a.withRequestLock(ctx, func() error { return a.sendHeartbeat(ctx) })
}

// save stages a state and sends it under the same lock, so that the result is the server's answer
// to this very state.
func (a *attempt) save(ctx context.Context, state json.RawMessage) error {
	return a.withRequestLock(ctx, func() error {
		if err := a.stage(state); err != nil {
			return err
		}
		return a.sendHeartbeat(ctx)
	})
}

// sendHeartbeat sends one heartbeat; the caller has the request lock. A state that the server
// refuses is dropped, because it would make every further heartbeat fail.
func (a *attempt) sendHeartbeat(ctx context.Context) error {
	a.mu.Lock()
	staged := a.staged
	a.mu.Unlock()
	var state json.RawMessage
	if staged != nil {
		state = *staged
	}
	cancel, err := a.lease.heartbeat(ctx, state)
	if cancel {
		a.cancel(ErrRunCanceled)
	}
	retryable := err != nil && !errors.Is(err, ErrInvalid)
	if staged != nil && !retryable {
		a.unstage(staged)
	}
	return err
}

// unstage drops a state that was sent, unless a newer one was staged meanwhile.
func (a *attempt) unstage(state *json.RawMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.staged == state {
		a.staged = nil
	}
}

// hasStaged reports whether a state waits for the next heartbeat.
func (a *attempt) hasStaged() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.staged != nil
}

// finish ends the run by act, unless the attempt has ended already, and retries it for what is
// left of the lease: heartbeats wait for the request lock meanwhile.
func (a *attempt) finish(ctx context.Context, act func(ctx context.Context) error) error {
	bound := min(max(a.lease.timeout()/3*2, minFinishTimeout), maxFinishTimeout)
	ctx, stop := context.WithTimeout(withUnlimitedRetries(ctx), bound)
	defer stop()
	return a.withRequestLock(ctx, func() error {
		if err := act(ctx); err != nil {
			return err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.phase = phaseFinished
		return nil
	})
}

// keepAlive sends heartbeats until the context or the attempt ends. When none was confirmed for a
// whole lease, another worker may have the job by now: the run is marked lost.
func (a *attempt) keepAlive(ctx context.Context, maxInterval time.Duration, outage *serverOutage) {
	interval, allowedMisses := heartbeatSchedule(a.lease.timeout(), maxInterval)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	missed := 0
	defer func() { outage.runEnded(missed) }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := a.heartbeatWithin(ctx, max(interval, heartbeatTimeout))
		switch {
		case err == nil:
			outage.heartbeatSucceeded(missed)
			missed = 0
			continue
		case ctx.Err() != nil, a.endError() != nil:
			return
		}
		missed++
		outage.heartbeatFailed(missed, err)
		if allowedMisses > 0 && missed >= allowedMisses {
			a.markLost(fmt.Errorf("%w: no heartbeat was confirmed within the timeout", ErrRunLost))
			return
		}
	}
}

// heartbeatWithin sends a heartbeat, and a second one without the state if the state is refused.
func (a *attempt) heartbeatWithin(ctx context.Context, bound time.Duration) error {
	ctx, stop := context.WithTimeout(ctx, bound)
	defer stop()
	hadState := a.hasStaged()
	err := a.heartbeat(ctx)
	if hadState && errors.Is(err, ErrInvalid) {
		a.log.Error("state refused and dropped", "error_message", err)
		err = a.heartbeat(ctx)
	}
	return err
}

// heartbeatSchedule returns the time between heartbeats, a third of the lease and at most
// maxInterval if that is set, and how many of them may fail in a row before a whole lease has
// passed; 0 means any number.
func heartbeatSchedule(timeout, maxInterval time.Duration) (interval time.Duration, missed int) {
	if timeout <= 0 {
		if maxInterval <= 0 {
			maxInterval = zeroLeaseHeartbeat
		}
		return min(zeroLeaseHeartbeat, maxInterval), 0
	}
	interval = timeout / 3
	if maxInterval <= 0 || maxInterval >= interval {
		return interval, 3
	}
	return maxInterval, int((timeout + maxInterval - 1) / maxInterval)
}
