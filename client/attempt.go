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
	// zeroLeaseHeartbeat is how often a run with timeout 0 beats. Its lease cannot
	// be prolonged (RL-090), but a beat learns that it is over.
	zeroLeaseHeartbeat = time.Second
	// heartbeatTimeout is the least time a heartbeat is given, however short its
	// interval, so that a slow server can still answer.
	heartbeatTimeout = time.Second
	// Completing or requeueing is tried for two thirds of the timeout, which is
	// what is left of the lease after the last beat, within these bounds.
	minFinishTimeout = 10 * time.Second
	maxFinishTimeout = time.Minute
)

type phase int

const (
	phaseRunning  phase = iota
	phaseLost           // the server gave the run up, or must have
	phaseFinished       // completed or requeued, or its handler has returned
)

// attempt is a run in the hands of this process: it keeps the lease, and makes
// sure that nothing is said about the run after it was lost or settled.
type attempt struct {
	lease       lease
	log         *slog.Logger
	cancel      context.CancelCauseFunc // ends the handler's context
	requestLock chan struct{}           // held while talking to the server about this run
	started     time.Time

	mu        sync.Mutex
	phase     phase
	lossCause error            // the loss, in phase lost
	staged    *json.RawMessage // waits for the next beat
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

// stage puts a state up for the next beat, in place of one still waiting. The
// bytes are copied.
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

// over tells why nothing more can be said about the run; nil while it goes on.
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
		return ErrRunSettled
	}
	return nil
}

// markLost ends a running attempt and its handler's context. The reason is an
// ErrRunLost.
func (a *attempt) markLost(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != phaseRunning {
		return
	}
	a.phase, a.lossCause = phaseLost, cause
	a.cancel(cause)
}

// close ends a running attempt whose handler has returned without success.
func (a *attempt) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase == phaseRunning {
		a.phase = phaseFinished
	}
}

// exchange talks to the server about the run, one talk at a time, and not at
// all when the run is over.
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

// heartbeat prolongs the lease, sending the staged state along.
func (a *attempt) heartbeat(ctx context.Context) error {
	return a.withRequestLock(ctx, func() error { return a.sendHeartbeat(ctx) })
}

// save stages a state and sends it in the same turn, so that what comes back
// is the server's word on this state.
func (a *attempt) save(ctx context.Context, state json.RawMessage) error {
	return a.withRequestLock(ctx, func() error {
		if err := a.stage(state); err != nil {
			return err
		}
		return a.sendHeartbeat(ctx)
	})
}

// sendHeartbeat beats once; the caller has the turn. A state that the server refuses is
// dropped: kept, it would fail every further beat.
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
	if staged != nil && (err == nil || errors.Is(err, ErrInvalid)) {
		a.unstage(staged)
	}
	return err
}

// unstage takes a state back, unless a newer one has come.
func (a *attempt) unstage(state *json.RawMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.staged == state {
		a.staged = nil
	}
}

func (a *attempt) hasStaged() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.staged != nil
}

// finish ends the run with success, unless it is over already. Beats wait
// meanwhile: one that came after the server has settled would look like a
// loss. So it is bounded by what is left of the lease.
func (a *attempt) finish(ctx context.Context, act func(ctx context.Context) error) error {
	bound := min(max(a.lease.timeout()/3*2, minFinishTimeout), maxFinishTimeout)
	ctx, stop := context.WithTimeout(withUnlimitedRetries(ctx), bound)
	defer stop()
	return a.withRequestLock(ctx, func() error {
		err := act(ctx)
		if err == nil {
			a.mu.Lock()
			a.phase = phaseFinished
			a.mu.Unlock()
		}
		return err
	})
}

// keepAlive beats until the context ends or the run is over. When no beat was
// confirmed for a whole timeout the lease must be presumed over: somebody else
// may be at work, so the run is given up as lost.
func (a *attempt) keepAlive(ctx context.Context, maxInterval time.Duration) {
	interval, allowedMisses := heartbeatSchedule(a.lease.timeout(), maxInterval)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for missed := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := a.heartbeatWithin(ctx, max(interval, heartbeatTimeout))
		switch {
		case err == nil:
			missed = 0
			continue
		case ctx.Err() != nil, a.endError() != nil:
			return
		}
		missed++
		a.log.Warn("heartbeat failed", "error_message", err, "misses", missed)
		if allowedMisses > 0 && missed >= allowedMisses {
			a.markLost(fmt.Errorf("%w: no heartbeat was confirmed within the timeout", ErrRunLost))
			return
		}
	}
}

// heartbeatWithin beats, a second time without the state if the first is refused.
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

// heartbeatSchedule gives the time between beats, a third of the timeout and no more than
// longest if that is set, and how many beats may fail in a row before a whole
// timeout has gone by; 0 means any number.
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
