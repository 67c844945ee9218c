package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// runner claims jobs from a source and runs a handler for each. It knows nothing of the contract
// behind the source. One runner is one poll loop and, per claimed job, two goroutines:
//
//	poll ──▶ source.claim ──▶ process ──▶ handler
//	 ▲                         ▲ │  └───── heartbeats, until the handler has returned
//	 └── a slot is free ◀──────┼─┴──────── complete, report or release the run
//	                           └────────── the next job, which came with the completion
//
// A slot is reserved before a job is claimed for it, so no claimed job waits for a handler. A
// completion asks for the next job while all slots are in use: the poll loop has none to claim for.
type runner struct {
	source               source
	slots                slots
	pollWait             time.Duration // how long a claim may wait in the server; 0 for not at all
	pollPause            time.Duration // least time from one claim without jobs to the next
	drainTimeout         time.Duration
	kill                 context.Context // ends the drain early; may be nil
	maxHeartbeatInterval time.Duration
	backoff              backoff
	log                  *slog.Logger
	outage               serverOutage
	claiming             atomic.Bool // while the poll loop has slots reserved
}

// slots limits how many handlers run at once; each element of the channel is a slot in use.
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
	if r.kill != nil {
		polling, stopPolling := context.WithCancel(ctx)
		defer stopPolling()
		defer context.AfterFunc(r.kill, func() {
			stopPolling()
			kill(&killCause{context.Cause(r.kill)})
		})()
		ctx = polling
	}
	var handlers sync.WaitGroup
	r.outage.log = r.log
	drained := r.poll(ctx, func(l lease, afterStop bool) {
		handlers.Go(func() { r.work(killCtx, ctx, l, afterStop) })
	})
	if drained {
		r.log.Info("drained by an operator: no new jobs; running handlers may finish")
		awaitHandlers(ctx, &handlers)
	}
	return r.drain(&handlers, killCtx, kill)
}

// awaitHandlers waits until all handlers have returned, or ctx ends.
func awaitHandlers(ctx context.Context, handlers *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		handlers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// killCause is the cause of the handlers' contexts after Kill: it is also an ErrDrainTimeout.
type killCause struct{ cause error }

func (k *killCause) Error() string   { return k.cause.Error() }
func (k *killCause) Unwrap() []error { return []error{k.cause, ErrDrainTimeout} }

// pollGrace is how long the poll that is under way when the worker stops may still take: jobs in
// an answer that is cut off have no worker until their leases expire.
const pollGrace = 500 * time.Millisecond

// poll claims a job for every free slot, again and again, until ctx ends or the worker is drained,
// which it reports. afterStop marks the jobs of the last poll that arrived after the end of ctx.
func (r *runner) poll(ctx context.Context, start func(l lease, afterStop bool)) (drained bool) {
	failures := 0
	for {
		free := r.slots.reserve(ctx)
		if free == 0 {
			return false
		}
		// The timer starts before the claim: a claim that waited in the server has paused long
		// enough, a claim that was answered at once has not.
		pause := time.NewTimer(r.pollPause)
		pollCtx, cancelPoll := withEnd(context.WithoutCancel(ctx), ctx, pollGrace)
		wait := r.pollWait
		if failures > 0 {
			wait = 0 // the answer shows at once that the outage has ended
		}
		leases, err := r.claim(pollCtx, free, wait)
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
		case errors.Is(err, errDrained):
			pause.Stop()
			return true
		case err == nil:
			failures = 0
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

// claim claims jobs. It records that the server has answered before the handlers of these jobs
// start: an outcome that the server refuses may come at once, and begins an outage that this poll
// does not end.
func (r *runner) claim(ctx context.Context, limit int, wait time.Duration) ([]lease, error) {
	r.claiming.Store(true)
	defer r.claiming.Store(false)
	leases, err := r.source.claim(ctx, limit, wait)
	if err != nil && !errors.Is(err, errDrained) {
		return leases, err
	}
	r.outage.pollSucceeded()
	return leases, err
}

// withEnd returns a copy of ctx that also ends a while after end does, or when the returned
// function is called.
func withEnd(ctx, end context.Context, grace time.Duration) (context.Context, func()) {
	ended, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(end, func() {
		sleep(ended, grace)
		cancel(context.Cause(end))
	})
	return ended, func() {
		stop()
		cancel(nil)
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

// drain waits for the handlers, and ends their contexts when the drain timeout has passed, unless
// killCtx ends before. It waits for a handler that ignores its context too: that handler still has
// a lease, which its heartbeats extend.
func (r *runner) drain(handlers *sync.WaitGroup, killCtx context.Context,
	kill context.CancelCauseFunc) error {
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
	case <-killCtx.Done():
	}
	select {
	case <-done: // the handlers finished just in time
		return nil
	default:
	}
	if killCtx.Err() != nil {
		<-done
		return ErrDrainTimeout
	}
	r.log.Warn("handlers did not finish in time; ending their contexts", "drain_timeout",
		r.drainTimeout)
	kill(ErrDrainTimeout)
	<-done
	return ErrDrainTimeout
}

// work uses a slot for a job, and for those that its completion brings, until there is none or
// polling has ended.
func (r *runner) work(killCtx, polling context.Context, l lease, afterStop bool) {
	defer r.slots.release(1)
	for l != nil {
		l = r.process(killCtx, polling, l, afterStop)
		afterStop = polling.Err() != nil
	}
}

// mayClaim reports whether a completion may ask for the next job. A worker that was drained has
// slots free for which it does not poll.
func (r *runner) mayClaim(polling context.Context) bool {
	return polling.Err() == nil && !r.claiming.Load() && len(r.slots) == cap(r.slots)
}

// process runs the handler of one job, from the claim to the outcome, and returns the next one if
// there is one. A job that arrived after the stop is released where the contract allows that, else
// it is executed in the time left.
func (r *runner) process(killCtx, polling context.Context, l lease, afterStop bool) (next lease) {
	outcome := errNoOutcome                   // of a handler that ends its goroutine
	defer func() { l.runFinished(outcome) }() // before the slot is free
	ctx, cancel := context.WithCancelCause(killCtx)
	defer cancel(nil)
	a := r.newAttempt(l, cancel, killCtx)
	defer a.close()
	if release := l.release(); release != nil && afterStop {
		outcome = ErrRelease
		if err := a.finish(context.WithoutCancel(killCtx), release); err != nil {
			logUnfinished(a, "job that arrived after the stop not released; "+
				"it returns when its lease expires", err)
		}
		return nil
	}
	a.log.Debug("job started")
	stop := r.startHeartbeats(context.WithoutCancel(killCtx), a)
	defer stop() // also when the handler calls runtime.Goexit
	err := invoke(ctx, a)
	cause := context.Cause(ctx)
	stop()
	mayClaim := func() bool { return r.mayClaim(polling) }
	next, outcome = r.finishRun(context.WithoutCancel(killCtx), a, err, cause, mayClaim)
	return next
}

// errNoOutcome is the outcome of a handler that has called runtime.Goexit.
var errNoOutcome = errors.New("the handler ended its goroutine")

// startHeartbeats sends heartbeats in a goroutine. The returned function stops it and returns
// when it has ended.
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

// invoke calls the handler and turns a panic into an error. It cannot stop runtime.Goexit, after
// which only the deferred calls of process run.
func invoke(ctx context.Context, a *attempt) (err error) {
	returned := false
	defer func() {
		value := recover()
		switch {
		case value != nil:
			err = &panicError{value, string(debug.Stack())}
		case !returned:
			a.log.Error("handler ended its goroutine; the run ends with its lease")
		}
	}()
	err = a.lease.handle(ctx, a)
	returned = true
	return err
}

// panicError is the error of a handler that panicked with value.
type panicError struct {
	value any
	stack string
}

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// stackOf returns the attribute of the log for the stack of a handler that panicked; none for
// another error.
func stackOf(err error) slog.Attr {
	var panicked *panicError
	if !errors.As(err, &panicked) {
		return slog.Attr{}
	}
	return slog.String("stack", panicked.stack)
}

// finishRun sends the outcome of a run, and returns why the job was not completed; nil if it was,
// or its handler has ended the run. cause is the cause of the handler's context if that had ended,
// else nil. Nothing is sent about a run that was lost or has finished. The completion may bring the
// next job, see lease.
func (r *runner) finishRun(ctx context.Context, a *attempt, err, cause error,
	mayClaim func() bool) (next lease, reason error) {
	ended := a.endError()
	switch {
	case errors.Is(ended, ErrRunLost):
		a.log.Warn("run lost; its outcome is dropped", "error_message", ended, "outcome", err,
			stackOf(err))
		return nil, ended
	case ended != nil && err != nil:
		a.log.Error("handler failed after it had ended its run", "error_message", err, stackOf(err))
		return nil, err
	case ended != nil:
		a.log.Debug("run ended by its handler", "duration", time.Since(a.started))
	case err != nil:
		r.fail(ctx, a, err, cause)
		return nil, err
	default:
		return r.complete(ctx, a, mayClaim)
	}
	return nil, nil
}

// complete sends the success of a run, and returns the next job if it brought one, or why the job
// was not completed.
func (r *runner) complete(ctx context.Context, a *attempt, mayClaim func() bool) (next lease,
	reason error) {
	var refused error
	err := a.finish(ctx, func(ctx context.Context) (err error) {
		next, refused, err = a.lease.complete(ctx, mayClaim)
		return err
	})
	switch {
	case err != nil:
		logUnfinished(a, "job done but not completed; the run ends with its lease", err)
		return next, err
	case refused != nil:
		a.log.Warn("the server refused the result; the run has failed", "error_message", refused)
		return nil, refused
	}
	a.log.Debug("job completed", "duration", time.Since(a.started))
	return next, nil
}

// logUnfinished logs that an outcome was not accepted, or may have been with a lost answer.
func logUnfinished(a *attempt, msg string, err error) {
	var fail *Error
	switch {
	case !errors.Is(err, ErrRunLost):
		a.log.Error(msg, "error_message", err)
	case errors.As(err, &fail) && fail.Uncertain:
		a.log.Warn("an answer was lost and the run has ended; its outcome was probably accepted",
			"error_message", err)
	default:
		a.log.Warn("run lost; its outcome is dropped", "error_message", err)
	}
}

// fail reports the failure of a handler. A staged state is sent first, for the next run to continue
// from.
func (r *runner) fail(ctx context.Context, a *attempt, err, cause error) {
	msg := "handler failed"
	if a.lease.release() == nil {
		msg += "; the run ends with its lease"
	}
	a.log.Error(msg, "error_message", err, stackOf(err))
	r.sendStagedState(ctx, a)
	report := func(ctx context.Context) error { return a.lease.report(ctx, err, cause) }
	if err := a.finish(ctx, report); err != nil {
		logUnfinished(a, "failure not reported; the run ends with its lease", err)
	}
}

// sendStagedState sends the state that waits for a heartbeat.
func (r *runner) sendStagedState(ctx context.Context, a *attempt) {
	if !a.hasStaged() {
		return
	}
	ctx, stop := context.WithTimeout(ctx, finishGrace)
	defer stop()
	if err := a.heartbeat(ctx); err != nil {
		a.log.Warn("last state not stored", "error_message", err)
	}
}
