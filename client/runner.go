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

// runner claims jobs from a source and runs a handler for each. It knows nothing of the contract
// behind the source. One runner is one poll loop and, per claimed job, two goroutines:
//
//	poll ──▶ source.claim ──▶ process ──▶ handler
//	 ▲                           │  └───── heartbeats, until the handler has returned
//	 └── a slot is free ◀────────┴──────── complete, report or release the run
//
// A slot is reserved before a job is claimed for it, so no claimed job waits for a handler.
type runner struct {
	source               source
	slots                slots
	pollWait             time.Duration // how long a claim may wait in the server; 0 for not at all
	pollPause            time.Duration // least time from one claim without jobs to the next
	drainTimeout         time.Duration
	maxHeartbeatInterval time.Duration
	backoff              backoff
	log                  *slog.Logger
	outage               serverOutage
}

// slots bounds how many handlers run at once; each element of the channel is a slot in use.
type slots chan struct{}

// reserve waits for a free slot and takes the other free slots too. It takes none once the
// context has ended.
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

// run claims and executes jobs until ctx ends, and drains then. The contexts of the handlers have
// the values of ctx but not its end. No goroutine is left when run returns.
func (r *runner) run(ctx context.Context) error {
	killCtx, kill := context.WithCancelCause(context.WithoutCancel(ctx))
	defer kill(nil)
	var handlers sync.WaitGroup
	r.outage.log = r.log
	r.poll(ctx, func(l lease, afterStop bool) {
		handlers.Go(func() { r.process(killCtx, l, afterStop) })
	})
	return r.drain(&handlers, kill)
}

// pollGrace is how long the poll that is under way when the worker stops may still take: jobs in
// an answer that is cut off have no worker until their leases expire.
const pollGrace = 500 * time.Millisecond

// poll claims a job for every free slot, again and again, until ctx ends. afterStop marks the jobs
// of the last poll that arrived after that.
func (r *runner) poll(ctx context.Context, start func(l lease, afterStop bool)) {
	failures := 0
	for {
		free := r.slots.reserve(ctx)
		if free == 0 {
			return
		}
		// The timer starts before the claim: a claim that waited in the server has paused long
		// enough, a claim that was answered at once has not.
		pause := time.NewTimer(r.pollPause)
		pollCtx, cancelPoll := withGrace(ctx, pollGrace)
		leases, err := r.source.claim(pollCtx, free, r.pollWait)
		cancelPoll()
		if surplus := len(leases) - free; surplus > 0 {
			r.log.Error("server sent more jobs than were asked for; the rest will time out",
				"surplus", surplus)
			leases = leases[:free]
		}
		afterStop := ctx.Err() != nil
		for _, l := range leases {
			start(l, afterStop)
		}
		r.slots.release(free - len(leases))

		switch {
		case err == nil:
			failures = 0
			r.outage.pollSucceeded()
			if len(leases) == 0 {
				await(ctx, pause)
			}
		case ctx.Err() == nil:
			failures++
			r.outage.pollFailed(err)
			r.pauseAfterFailure(ctx, failures, err)
		}
		pause.Stop()
	}
}

// withGrace returns a context that ends a while after ctx, or when the returned function is
// called.
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

// pauseAfterFailure waits after a failed claim, longer with each failure in a row.
func (r *runner) pauseAfterFailure(ctx context.Context, failures int, err error) {
	retryAfter := time.Duration(0)
	var fail *Error
	if errors.As(err, &fail) {
		retryAfter = min(fail.RetryAfter, maxRetryAfter)
	}
	sleep(ctx, r.backoff.delay(failures, retryAfter))
}

// drain waits for the handlers, and ends their contexts when the drain timeout has passed. It
// waits for a handler that ignores its context too: that handler still has a lease, which its
// heartbeats extend.
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
	case <-done: // the handlers finished just in time
		return nil
	default:
	}
	r.log.Warn("handlers did not finish in time; ending their contexts", "drain_timeout",
		r.drainTimeout)
	kill(ErrDrainTimeout)
	<-done
	return ErrDrainTimeout
}

// process runs the handler of one job, from the claim to the outcome. A job that arrived after
// the stop is released where the contract allows that, else it is executed in the time left.
func (r *runner) process(killCtx context.Context, l lease, afterStop bool) {
	defer r.slots.release(1)
	if observer, ok := l.(endObserver); ok {
		defer observer.runEnded() // before the slot is free
	}
	ctx, cancel := context.WithCancelCause(killCtx)
	defer cancel(nil)
	a := newAttempt(l, cancel, r.log)
	defer a.close()
	if g, ok := l.(releaser); ok && afterStop {
		if err := a.finish(context.WithoutCancel(killCtx), g.release); err != nil {
			logUnfinished(a, "job that arrived after the stop not released; "+
				"it returns when its lease expires", err)
		}
		return
	}
	a.log.Debug("job started")
	stop := r.startHeartbeats(context.WithoutCancel(killCtx), a)
	defer stop() // also when the handler calls runtime.Goexit
	err := invoke(ctx, a)
	cause := context.Cause(ctx)
	stop()
	r.finishRun(context.WithoutCancel(killCtx), a, err, cause)
}

// startHeartbeats sends heartbeats in a goroutine. The returned function stops it and returns
// when it has ended.
func (r *runner) startHeartbeats(ctx context.Context, a *attempt) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.keepAlive(ctx, r.maxHeartbeatInterval, &r.outage)
	}()
	return sync.OnceFunc(func() {
		cancel()
		<-done
	})
}

// invoke calls the handler and turns a panic into an error. It cannot stop runtime.Goexit, after
// which only the deferred calls of process run.
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

// panicError is the error of a handler that panicked with value.
type panicError struct{ value any }

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// finishRun sends the outcome of a run. cause is the cause of the handler's context if that had
// ended, else nil. Nothing is sent about a run that was lost or has finished.
func (r *runner) finishRun(ctx context.Context, a *attempt, err, cause error) {
	ended := a.endError()
	switch {
	case errors.Is(ended, ErrRunLost):
		a.log.Warn("run lost; its outcome is dropped", "error_message", ended, "outcome", err)
	case ended != nil && err != nil:
		a.log.Warn("handler failed after it had requeued its job", "error_message", err)
	case ended != nil:
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

// logUnfinished logs that an outcome was not accepted, or may have been with a lost answer.
func logUnfinished(a *attempt, msg string, err error) {
	var fail *Error
	if errors.Is(err, ErrRunLost) && errors.As(err, &fail) && fail.Uncertain {
		a.log.Warn("an answer was lost and the run has ended; its outcome was probably accepted",
			"error_message", err)
		return
	}
	a.log.Error(msg, "error_message", err)
}

// fail reports the failure of a handler. In a contract without failure reports the job returns
// when its lease expires. A staged state is sent first, for the next run to continue from.
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

// sendStagedState sends the state that waits for a heartbeat.
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
