package workerapi

import (
	"errors"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// how is the way in which a run is to end.
type how struct {
	outcome string // for the metrics; none for a run that only starts
	// of is asked in the transaction, of a run that is current and not overdue.
	of func(*held) (engine.Outcome, error)
}

var (
	started  = how{of: func(*held) (engine.Outcome, error) { return engine.Outcome{On: job.Started}, nil }}
	released = how{endedGiven, func(*held) (engine.Outcome, error) { return engine.Outcome{On: job.Released}, nil }}
)

// completed leaves a result. It is errUnsettled where the contract has to look first.
func completed(result []byte) how {
	return how{endedWell, func(h *held) (engine.Outcome, error) {
		if h.contract.Settle != nil {
			return engine.Outcome{}, errUnsettled
		}
		return h.contract.Complete(h.job, result), nil
	}}
}

// errUnsettled never leaves the API: Settle may take its time, and must not in a transaction.
var errUnsettled = errors.New("workerapi: the contract has to look first")

// settled is what a contract that has looked made of a result.
func settled(o engine.Outcome) how {
	return how{endedWell, func(*held) (engine.Outcome, error) { return o, nil }}
}

// refused is what a contract that has looked did not believe: the run goes on.
func refused(err error) how {
	return how{of: func(*held) (engine.Outcome, error) { return engine.Outcome{}, err }}
}

func failing(f failed) how {
	return how{endedBadly, func(h *held) (engine.Outcome, error) {
		return h.contract.Fail(h.job, f.message, f.errorType, f.retryable), nil
	}}
}

// ending is a run that is to end, and what the transaction found.
type ending struct {
	run job.RunID
	how how

	held    *held           // nil for a run that is lost
	state   job.State       // of its job before the end
	overdue *engine.Outcome // in place of how
}

// judging says in the transaction how a run ends.
func (a *API) judging(e *ending) engine.Judge {
	return func(j *job.Job) (engine.Outcome, error) {
		var err error
		if e.held, err = a.held(j, e.run); err != nil {
			return engine.Outcome{}, err
		}
		e.state = j.State
		if e.overdue = e.held.contract.overdue(j); e.overdue != nil {
			return *e.overdue, nil
		}
		return e.how.of(e.held)
	}
}

// became counts a run that has ended, and tells its worker the error there was.
func (a *API) became(e *ending, err error) error {
	switch {
	case err == nil && e.overdue != nil:
		a.count(e.held, endedOverdue)
		return errOverdue
	case err == nil:
		a.count(e.held, e.how.outcome)
	case job.IsKind(err, job.Conflict):
		return &problem{code: codeConflict, detail: "the job is " + e.held.contract.state(e.state) + ", which this run cannot leave that way; it may have to be started first", cause: err}
	}
	return err
}

// count counts a run that ended; one that has only started has not.
func (a *API) count(h *held, outcome string) {
	if outcome != "" {
		a.metrics.ended.WithLabelValues(h.contract.Name, outcome).Inc()
	}
}
