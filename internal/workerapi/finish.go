package workerapi

import (
	"errors"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// finishPlan is how a run is to be finished, or started.
type finishPlan struct {
	metricOutcome string // the label of the metric; empty for a run that is only started
	// decide returns the outcome. It is called in the transaction, for a run that is the job's
	// current one and has not timed out.
	decide func(*currentRun) (engine.Outcome, error)
}

// These plans need no data from the request.
var (
	started = finishPlan{decide: func(*currentRun) (engine.Outcome, error) {
		return engine.Outcome{On: job.Started}, nil
	}}
	released = finishPlan{outcomeReleased, func(*currentRun) (engine.Outcome, error) {
		return engine.Outcome{On: job.Released}, nil
	}}
)

// completed finishes a run with a result. Its error is errNeedsVerify if the contract has to
// verify the result first.
func completed(result []byte) finishPlan {
	return finishPlan{outcomeCompleted, func(r *currentRun) (engine.Outcome, error) {
		if r.contract.VerifyResult != nil {
			return engine.Outcome{}, errNeedsVerify
		}
		return r.contract.Complete(r.job, result), nil
	}}
}

// errNeedsVerify means that VerifyResult must be called before the run is finished. It never
// leaves the API.
var errNeedsVerify = errors.New("workerapi: the result has to be verified first")

// verified finishes a run with the outcome that VerifyResult returned.
func verified(o engine.Outcome) finishPlan {
	return finishPlan{outcomeCompleted, func(*currentRun) (engine.Outcome, error) { return o, nil }}
}

// rejected refuses a result with the error that VerifyResult returned: the run continues.
func rejected(err error) finishPlan {
	return finishPlan{decide: func(*currentRun) (engine.Outcome, error) {
		return engine.Outcome{}, err
	}}
}

// failedWith finishes a run with a failure. The contract decides whether the job is tried again;
// retryable is only the worker's opinion.
func failedWith(f failure) finishPlan {
	return finishPlan{outcomeFailed, func(r *currentRun) (engine.Outcome, error) {
		return r.contract.Fail(r.job, f.message, f.errorType, f.retryable), nil
	}}
}

// pendingFinish is a run to finish, and what the transaction found out about it. decide fills in
// the last three, each time the transaction runs, so that the last run counts.
type pendingFinish struct {
	run  job.RunID
	plan finishPlan

	current  *currentRun     // nil for a lost run
	state    job.State       // of its job before the finish
	timedOut *engine.Outcome // set instead of the plan's outcome
}

// decide returns the function that decides the outcome of a run in the transaction. It refuses a
// lost run first, then gives a run that has timed out the outcome of that, and asks the plan only
// for all others.
func (a *Server) decide(p *pendingFinish) engine.DecideFunc {
	return func(j *job.Job) (engine.Outcome, error) {
		var err error
		if p.current, err = a.checkRun(j, p.run); err != nil {
			return engine.Outcome{}, err
		}
		p.state = j.State
		if p.timedOut = p.current.contract.timedOut(j); p.timedOut != nil {
			return *p.timedOut, nil
		}
		return p.plan.decide(p.current)
	}
}

// finishError counts a run that has finished. It returns the error for its worker, if any. After a
// conflict the run continues; after a time-out it has ended, although the request was written.
func (a *Server) finishError(p *pendingFinish, err error) error {
	if job.IsKind(err, job.Conflict) {
		detail := "the job is " + p.current.contract.state(p.state) +
			", which this run cannot leave that way; it may have to be started first"
		return &httpapi.CodedError{Code: codeConflict, Detail: detail, Err: err}
	}
	if err != nil {
		return err
	}
	if p.timedOut != nil {
		a.countFinished(p.current, outcomeOverdue)
		return errRunTimedOut
	}
	a.countFinished(p.current, p.plan.metricOutcome)
	return nil
}

// countFinished counts a run that has finished; a run that was only started has no outcome. Retries
// of the same request find a lost run and are not counted again.
func (a *Server) countFinished(r *currentRun, outcome string) {
	if outcome != "" {
		a.metrics.finished.WithLabelValues(r.contract.Name, outcome).Inc()
	}
}
