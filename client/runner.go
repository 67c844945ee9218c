package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// runner works off what a source hands out. It knows nothing of the contract
// behind it.
type runner struct {
	source               source
	slots                slots
	pollWait             time.Duration // what claim may wait; 0 for not at all
	pollPause            time.Duration // least time from one fruitless claim to the next
	drainTimeout         time.Duration
	maxHeartbeatInterval time.Duration
	backoff              backoff
	log                  *slog.Logger
}

// slots bounds how many handlers run at once. A slot is taken before the work
// for it is asked for, so that nothing is claimed without one.
type slots chan struct{}

// reserve waits for a free slot and takes all others that are free as well. It
// takes none once the context has ended.
func (s slots) reserve(ctx context.Context) int {
	if ctx.Err() != nil {
		return 0
	}
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for reserved := 1; ; reserved++ {
		select {
		case s <- struct{}{}:
		default:
			return reserved
		}
	}
}

func (s slots) release(n int) {
	for range n {
		<-s
	}
}

// run claims and works until ctx ends, then drains. Handlers get the values
// of ctx but outlive it. When run returns nothing of it is left running.
func (r *runner) run(ctx context.Context) error {
	killCtx, kill := context.WithCancelCause(context.WithoutCancel(ctx))
	defer kill(nil)
	var handlers sync.WaitGroup
	r.poll(ctx, func(l lease, afterStop bool) {
		handlers.Go(func() { r.process(killCtx, l, afterStop) })
	})
	return r.drain(&handlers, kill)
}

// pollGrace is how long a poll that is under way when the worker stops may still
// bring its answer: jobs in an answer that is cut off are held by nobody until
// their leases are over.
const pollGrace = 500 * time.Millisecond

// poll claims as much as there are free slots, over and over, until ctx ends.
// What is brought by a poll after that is late.
func (r *runner) poll(ctx context.Context, start func(l lease, afterStop bool)) {
	failures, away := 0, pollOutage{log: r.log}
	for {
		free := r.slots.reserve(ctx)
		if free == 0 {
			return
		}
		// Started before the claim: a claim that waited at the server has
		// paused enough, one that was answered at once has not.
		pause := time.NewTimer(r.pollPause)
		pollCtx, cancelPoll := withGrace(ctx, pollGrace)
		leases, err := r.source.claim(pollCtx, free, r.pollWait)
		cancelPoll()
		if surplus := len(leases) - free; surplus > 0 {
			r.log.Error("server handed out more than was asked for; the rest will time out",
				"surplus", surplus)
			leases = leases[:free]
		}
		afterStop := ctx.Err() != nil
		for _, l := range leases {
			start(l, afterStop)
		}
		r.slots.release(free - len(leases))

		switch {
		case err != nil && ctx.Err() == nil:
			failures++
			away.failed(err)
			r.pauseAfterFailure(ctx, failures, err)
		case err == nil && len(leases) == 0:
			failures = 0
			away.worked()
			await(ctx, pause)
		default:
			failures = 0
			if err == nil {
				away.worked()
			}
		}
		pause.Stop()
	}
}

// withGrace is a context that ends a while after another, or with the function.
func withGrace(ctx context.Context, grace time.Duration) (context.Context, func()) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		sleep(longer, grace)
		cancel()
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// pauseAfterFailure waits after a failed claim, longer with each one.
func (r *runner) pauseAfterFailure(ctx context.Context, failures int, err error) {
	retryAfter := time.Duration(0)
	var fail *Error
	if errors.As(err, &fail) {
		retryAfter = min(fail.RetryAfter, maxRetryAfter)
	}
	sleep(ctx, r.backoff.delay(failures, retryAfter))
}

// pollOutage tells once that polls fail, and once that they work again. Another
// answer than before is told too: it may be another reason.
type pollOutage struct {
	log    *slog.Logger
	away   bool
	status int
	since  time.Time
}

func (p *pollOutage) failed(err error) {
	var fail *Error
	status := 0
	if errors.As(err, &fail) {
		status = fail.Status
	}
	if p.away && p.status == status {
		return
	}
	if !p.away {
		p.since = time.Now()
	}
	p.away, p.status = true, status
	said := "the server refuses polls; they are repeated until it takes one"
	if status == 0 {
		said = "the server does not answer; polls are repeated until it does"
	}
	p.log.Warn(said, "error_message", err)
}

func (p *pollOutage) worked() {
	if p.away {
		p.log.Info("the server answers polls again", "duration", time.Since(p.since))
	}
	p.away = false
}

// drain waits for the handlers, at first leaving them alone, then ending their
// contexts. A handler that ignores its context is waited for all the same: it
// still holds a lease, and its beats go on.
func (r *runner) drain(handlers *sync.WaitGroup, kill context.CancelCauseFunc) error {
	done := make(chan struct{})
	go func() {
		handlers.Wait()
		close(done)
	}()
	timer := time.NewTimer(r.drainTimeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
	}
	select {
	case <-done: // both at once: nothing was cut short
		return nil
	default:
	}
	r.log.Warn("handlers did not finish in time; ending their contexts", "drain_timeout",
		r.drainTimeout)
	kill(ErrDrainTimeout)
	<-done
	return ErrDrainTimeout
}

// process runs one handler under its lease, from the claim to its outcome. What
// came late is given back where that is possible, else it is done in the time
// there is.
func (r *runner) process(killCtx context.Context, l lease, afterStop bool) {
	defer r.slots.release(1)
	if f, ok := l.(endObserver); ok {
		defer f.runOver() // before the slot is free
	}
	ctx, cancel := context.WithCancelCause(killCtx)
	defer cancel(nil)
	a := newAttempt(l, cancel, r.log)
	defer a.close()
	if g, ok := l.(releaser); ok && afterStop {
		if err := a.finish(context.WithoutCancel(killCtx), g.release); err != nil {
			logUnfinished(a, "job that came after the stop not given back; it is held until its "+
				"lease is over", err)
		}
		return
	}
	a.log.Debug("job started")
	stop := r.startHeartbeats(context.WithoutCancel(killCtx), a)
	defer stop() // also when the handler ends its goroutine
	err := invoke(ctx, a)
	cause := context.Cause(ctx)
	stop()
	r.finishRun(context.WithoutCancel(killCtx), a, err, cause)
}

// startHeartbeats beats until the returned function is called, which returns once
// the beating has ended.
func (r *runner) startHeartbeats(ctx context.Context, a *attempt) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.keepAlive(ctx, r.maxHeartbeatInterval)
	}()
	return sync.OnceFunc(func() {
		cancel()
		<-done
	})
}

// invoke runs the handler and turns a panic into an error. runtime.Goexit
// cannot be stopped; then only the deferred calls of process follow.
func invoke(ctx context.Context, a *attempt) (err error) {
	returned := false
	defer func() {
		value := recover()
		switch {
		case value != nil:
			a.log.Error("handler panicked", "panic", fmt.Sprint(value), "stack",
				string(debug.Stack()))
			err = &panicError{value}
		case !returned:
			a.log.Error("handler ended its goroutine; the run ends with its lease")
		}
	}()
	err = a.lease.handle(ctx, a)
	returned = true
	return err
}

// panicError is what a handler panicked with.
type panicError struct{ value any }

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// finishRun says what came of the run; cause is why the handler's context had
// ended, nil if it had not. Nothing is completed whose run was lost or already
// settled.
func (r *runner) finishRun(ctx context.Context, a *attempt, err, cause error) {
	over := a.endError()
	switch {
	case errors.Is(over, ErrRunLost):
		a.log.Warn("run lost; its outcome is dropped", "error_message", over, "outcome", err)
	case over != nil && err != nil:
		a.log.Warn("handler failed after it had requeued its job", "error_message", err)
	case over != nil:
		a.log.Debug("job requeued or released", "duration", time.Since(a.started))
	case err != nil:
		r.fail(ctx, a, err, cause)
	default:
		if err := a.finish(ctx, a.lease.complete); err != nil {
			logUnfinished(a, "job done but not completed; the run ends with its lease", err)
			return
		}
		a.log.Debug("job completed", "duration", time.Since(a.started))
	}
}

// logUnfinished logs that an outcome was not taken, or perhaps was.
func logUnfinished(a *attempt, msg string, err error) {
	var fail *Error
	if errors.Is(err, ErrRunLost) && errors.As(err, &fail) && fail.Uncertain {
		a.log.Warn("an answer was lost and the run is over now; its outcome was probably taken",
			"error_message", err)
		return
	}
	a.log.Error(msg, "error_message", err)
}

// fail reports a failure or, where there is no report, leaves the job to its
// timeout. A state that the handler had put up still goes out, for the next run
// to go on from.
func (r *runner) fail(ctx context.Context, a *attempt, err, cause error) {
	reporter, canReport := a.lease.(failureReporter)
	if canReport {
		a.log.Error("handler failed", "error_message", err)
	} else {
		a.log.Error("handler failed; the run ends with its lease", "error_message", err)
	}
	r.sendStagedState(ctx, a)
	if !canReport {
		return
	}
	report := func(ctx context.Context) error { return reporter.report(ctx, err, cause) }
	if err := a.finish(ctx, report); err != nil {
		logUnfinished(a, "failure not reported; the run ends with its lease", err)
	}
}

// sendStagedState sends the state that is still waiting.
func (r *runner) sendStagedState(ctx context.Context, a *attempt) {
	if !a.hasStaged() {
		return
	}
	ctx, stop := context.WithTimeout(ctx, minFinishTimeout)
	defer stop()
	if err := a.heartbeat(ctx); err != nil {
		a.log.Warn("last state not stored", "error_message", err)
	}
}
