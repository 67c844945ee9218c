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
	// finishGrace is how long the outcome of a run is still tried after the worker has ended the
	// contexts of its handlers.
	finishGrace = 10 * time.Second
)

// phase is the phase of an attempt. It leaves phaseRunning once.
type phase int

const (
	phaseRunning  phase = iota
	phaseLost           // the server ended the run, or must be presumed to have
	phaseFinished       // completed, failed, or ended by its handler, or that has returned
)

// attempt is one run of a job in this process. It keeps the lease alive while the handler works,
// and makes sure that nothing is sent about the run after it was lost or finished:
//
//	            run lost, or definite refusals for a whole lease
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
	outage      *serverOutage
	cancel      context.CancelCauseFunc // ends the handler's context
	killed      context.Context         // ends when the worker ends the contexts of all handlers
	requestLock chan struct{}           // one element while a request about this run is sent
	started     time.Time

	mu        sync.Mutex
	phase     phase
	lossCause error            // an ErrRunLost, in phaseLost
	staged    *json.RawMessage // the state to send with the next heartbeat
}

func (r *runner) newAttempt(l lease, cancel context.CancelCauseFunc,
	killed context.Context) *attempt {
	return &attempt{
		lease:       l,
		log:         r.log.With(l.logAttrs()...),
		outage:      &r.outage,
		cancel:      cancel,
		killed:      killed,
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

// finish ends the run by act, unless the attempt has ended already. It tries until the server gives
// a definite answer, and for finishGrace after a kill of the handlers. Heartbeats wait for the
// request lock meanwhile.
func (a *attempt) finish(ctx context.Context, act func(ctx context.Context) error) error {
	ctx, stop := withEnd(ctx, a.killed, finishGrace)
	defer stop()
	ctx = withOutcomeTries(ctx, a.outage)
	return a.withRequestLock(ctx, func() error {
		if err := act(ctx); err != nil {
			if isDefinite(err) {
				a.outage.outcomeAnswered()
			}
			return err
		}
		a.outage.outcomeAnswered()
		a.markFinished()
		return nil
	})
}

// finishWith ends the run by end, which sends no request about it, unless the attempt has ended
// already. Heartbeats wait for the request lock meanwhile.
func (a *attempt) finishWith(ctx context.Context, end func(context.Context) error) error {
	return a.withRequestLock(ctx, func() error {
		if err := end(ctx); err != nil {
			return err
		}
		a.markFinished()
		return nil
	})
}

func (a *attempt) markFinished() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.phase = phaseFinished
}

// keepAlive sends heartbeats until the context or the attempt ends. When the server has definitely
// refused all of them for a whole lease, such as for a wrong token, another worker may have the job
// by now: the run is marked lost. Heartbeats without a definite answer do not count, because a
// server that is unavailable gives no job to another worker.
func (a *attempt) keepAlive(ctx context.Context, maxInterval time.Duration) {
	interval, allowedRefusals := heartbeatSchedule(a.lease.timeout(), maxInterval)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	missed, refused := 0, 0 // in a row
	defer func() { a.outage.runFinished(missed) }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := a.heartbeatWithin(ctx, max(interval, heartbeatTimeout))
		switch {
		case err == nil:
			a.outage.heartbeatAnswered(missed)
			missed, refused = 0, 0
			continue
		case errors.Is(err, ErrRunLost):
			a.outage.heartbeatAnswered(missed)
			missed = 0
			return
		case ctx.Err() != nil, a.endError() != nil:
			return
		}
		missed++
		a.outage.heartbeatFailed(missed, err)
		if !isDefinite(err) {
			continue
		}
		refused++
		if allowedRefusals > 0 && refused >= allowedRefusals {
			a.markLost(fmt.Errorf("%w: no heartbeat was accepted within the timeout", ErrRunLost))
			return
		}
	}
}

// heartbeatWithin sends a heartbeat, and a second one without the state if the state is refused.
func (a *attempt) heartbeatWithin(ctx context.Context, timeout time.Duration) error {
	ctx, stop := context.WithTimeout(ctx, timeout)
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
// maxInterval if that is set, and how many of them may be refused in a row before a whole lease has
// passed; 0 means any number.
func heartbeatSchedule(timeout, maxInterval time.Duration) (interval time.Duration, refused int) {
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
