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
	// emptyLeaseBeat is how often a run with timeout 0 beats. Its lease cannot
	// be prolonged (RL-090), but a beat learns that it is over.
	emptyLeaseBeat = time.Second
	// beatTimeout is the least time a heartbeat is given, however short its
	// interval, so that a slow server can still answer.
	beatTimeout = time.Second
	// Completing or requeueing is tried for two thirds of the timeout, which is
	// what is left of the lease after the last beat, within these bounds.
	minSettle = 10 * time.Second
	maxSettle = time.Minute
)

type phase int

const (
	running phase = iota
	lost          // the server gave the run up, or must have
	settled       // completed or requeued, or its handler has returned
)

// attempt is a run in the hands of this process: it keeps the lease, and makes
// sure that nothing is said about the run after it was lost or settled.
type attempt struct {
	lease  lease
	log    *slog.Logger
	cancel context.CancelCauseFunc // ends the handler's context
	turn   chan struct{}           // held while talking to the server about this run
	began  time.Time

	mu     sync.Mutex
	phase  phase
	why    error            // the loss, in phase lost
	staged *json.RawMessage // waits for the next beat
}

func newAttempt(l lease, cancel context.CancelCauseFunc, log *slog.Logger) *attempt {
	return &attempt{
		lease:  l,
		log:    log.With(l.logAttrs()...),
		cancel: cancel,
		turn:   make(chan struct{}, 1),
		began:  time.Now(),
	}
}

// stage puts a state up for the next beat, in place of one still waiting. The
// bytes are copied.
func (a *attempt) stage(state json.RawMessage) error {
	if err := checkJSON("state", state); err != nil {
		return invalid("set state", "%v", err)
	}
	kept := append(json.RawMessage{}, state...)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.overLocked(); err != nil {
		return err
	}
	a.staged = &kept
	return nil
}

// over tells why nothing more can be said about the run; nil while it goes on.
func (a *attempt) over() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.overLocked()
}

func (a *attempt) overLocked() error {
	switch a.phase {
	case lost:
		return a.why
	case settled:
		return ErrRunSettled
	}
	return nil
}

// lose ends a running attempt and its handler's context. The reason is an
// ErrRunLost.
func (a *attempt) lose(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != running {
		return
	}
	a.phase, a.why = lost, why
	a.cancel(why)
}

// close ends a running attempt whose handler has returned without success.
func (a *attempt) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase == running {
		a.phase = settled
	}
}

// exchange talks to the server about the run, one talk at a time, and not at
// all when the run is over.
func (a *attempt) exchange(ctx context.Context, talk func() error) error {
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return ended(ctx)
	}
	defer func() { <-a.turn }()
	if err := a.over(); err != nil {
		return err
	}
	err := talk()
	if errors.Is(err, ErrRunLost) {
		a.lose(err)
	}
	return err
}

// beat prolongs the lease, sending the staged state along.
func (a *attempt) beat(ctx context.Context) error {
	return a.exchange(ctx, func() error { return a.send(ctx) })
}

// save stages a state and sends it in the same turn, so that what comes back
// is the server's word on this state.
func (a *attempt) save(ctx context.Context, state json.RawMessage) error {
	return a.exchange(ctx, func() error {
		if err := a.stage(state); err != nil {
			return err
		}
		return a.send(ctx)
	})
}

// send beats once; the caller has the turn. A state that the server refuses is
// dropped: kept, it would fail every further beat.
func (a *attempt) send(ctx context.Context) error {
	a.mu.Lock()
	staged := a.staged
	a.mu.Unlock()
	var state json.RawMessage
	if staged != nil {
		state = *staged
	}
	cancel, err := a.lease.beat(ctx, state)
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

// settle ends the run with success, unless it is over already. Beats wait
// meanwhile: one that came after the server has settled would look like a
// loss. So it is bounded by what is left of the lease.
func (a *attempt) settle(ctx context.Context, act func(ctx context.Context) error) error {
	bound := min(max(a.lease.timeout()/3*2, minSettle), maxSettle)
	ctx, stop := context.WithTimeout(patient(ctx), bound)
	defer stop()
	return a.exchange(ctx, func() error {
		err := act(ctx)
		if err == nil {
			a.mu.Lock()
			a.phase = settled
			a.mu.Unlock()
		}
		return err
	})
}

// keep beats until the context ends or the run is over. When no beat was
// confirmed for a whole timeout the lease must be presumed over: somebody else
// may be at work, so the run is given up as lost.
func (a *attempt) keep(ctx context.Context, longest time.Duration) {
	every, allowed := rhythm(a.lease.timeout(), longest)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for misses := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := a.beatWithin(ctx, max(every, beatTimeout))
		switch {
		case err == nil:
			misses = 0
			continue
		case ctx.Err() != nil, a.over() != nil:
			return
		}
		misses++
		a.log.Warn("heartbeat failed", "error_message", err, "misses", misses)
		if allowed > 0 && misses >= allowed {
			a.lose(fmt.Errorf("%w: no heartbeat was confirmed within the timeout", ErrRunLost))
			return
		}
	}
}

// beatWithin beats, a second time without the state if the first is refused.
func (a *attempt) beatWithin(ctx context.Context, bound time.Duration) error {
	ctx, stop := context.WithTimeout(ctx, bound)
	defer stop()
	hadState := a.hasStaged()
	err := a.beat(ctx)
	if hadState && errors.Is(err, ErrInvalid) {
		a.log.Error("state refused and dropped", "error_message", err)
		err = a.beat(ctx)
	}
	return err
}

// rhythm gives the time between beats, a third of the timeout and no more than
// longest if that is set, and how many beats may fail in a row before a whole
// timeout has gone by; 0 means any number.
func rhythm(timeout, longest time.Duration) (every time.Duration, misses int) {
	if timeout <= 0 {
		if longest <= 0 {
			longest = emptyLeaseBeat
		}
		return min(emptyLeaseBeat, longest), 0
	}
	every = timeout / 3
	if longest <= 0 || longest >= every {
		return every, 3
	}
	return longest, int((timeout + longest - 1) / longest)
}
