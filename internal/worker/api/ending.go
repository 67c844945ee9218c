package workerapi

import (
	"errors"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// how is the way in which a run is to end.
type finishPlan struct {
	metricOutcome string // for the metrics; none for a run that only starts
	// decide is asked in the transaction, of a run that is current and not overdue.
	decide func(*currentRun) (engine.Outcome, error)
}

var (
	started = finishPlan{decide: func(*currentRun) (engine.Outcome, error) {
		return engine.Outcome{On: job.Started}, nil
	}}
	released = finishPlan{outcomeReleased, func(*currentRun) (engine.Outcome, error) {
		return engine.Outcome{On: job.Released}, nil
	}}
)

// completed leaves a result. It is errNeedsVerify where the contract has to look first.
func completed(result []byte) finishPlan {
	return finishPlan{outcomeCompleted, func(h *currentRun) (engine.Outcome, error) {
		if h.contract.VerifyResult != nil {
			return engine.Outcome{}, errNeedsVerify
		}
		return h.contract.Complete(h.job, result), nil
	}}
}

// errNeedsVerify never leaves the API: Settle may take its time, and must not in a transaction.
var errNeedsVerify = errors.New("workerapi: the contract has to look first")

// verified is what a contract that has looked made of a result.
func verified(o engine.Outcome) finishPlan {
	return finishPlan{outcomeCompleted, func(*currentRun) (engine.Outcome, error) { return o, nil }}
}

// rejected is what a contract that has looked did not believe: the run goes on.
func rejected(err error) finishPlan {
	return finishPlan{decide: func(*currentRun) (engine.Outcome, error) {
		return engine.Outcome{}, err
	}}
}

func failedWith(f failure) finishPlan {
	return finishPlan{outcomeFailed, func(h *currentRun) (engine.Outcome, error) {
		return h.contract.Fail(h.job, f.message, f.errorType, f.retryable), nil
	}}
}

// pendingFinish is a run that is to end, and what the transaction found.
type pendingFinish struct {
	run  job.RunID
	plan finishPlan

	current  *currentRun     // nil for a run that is lost
	state    job.State       // of its job before the end
	timedOut *engine.Outcome // in place of how
}

// decide says in the transaction how a run ends.
func (a *API) decide(e *pendingFinish) engine.DecideFunc {
	return func(j *job.Job) (engine.Outcome, error) {
		var err error
		if e.current, err = a.checkRun(j, e.run); err != nil {
			return engine.Outcome{}, err
		}
		e.state = j.State
		if e.timedOut = e.current.contract.timedOut(j); e.timedOut != nil {
			return *e.timedOut, nil
		}
		return e.plan.decide(e.current)
	}
}

// finishError counts a run that has ended, and tells its worker the error there was.
func (a *API) finishError(e *pendingFinish, err error) error {
	switch {
	case err == nil && e.timedOut != nil:
		a.countFinished(e.current, outcomeOverdue)
		return errRunTimedOut
	case err == nil:
		a.countFinished(e.current, e.plan.metricOutcome)
	case job.IsKind(err, job.Conflict):
		return &problem{code: codeConflict,
			detail: "the job is " + e.current.contract.state(e.state) +
				", which this run cannot leave that way; it may have to be started first",
			cause: err}
	}
	return err
}

// countFinished counts a run that ended; one that has only started has not.
func (a *API) countFinished(h *currentRun, outcome string) {
	if outcome != "" {
		a.metrics.finished.WithLabelValues(h.contract.Name, outcome).Inc()
	}
}
