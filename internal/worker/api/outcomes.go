package workerapi

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// metricOutcome is what a worker says of one of its runs, and what it is answered.
type outcome struct {
	pendingFinish
	id        string // of the run, as it was sent
	completes bool   // it is complete, with the result
	result    []byte

	job *job.Job
	err error // in place of after: this outcome is refused, and the others are not
}

// POST /worker/v1/outcomes
func (a *API) finish(c *httpapi.Call) error {
	all, err := readOutcomes(c)
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	if err = a.finishAll(ctx, all, a.needsVerify); err == errNeedsVerify {
		if err = a.verifyResults(ctx, all); err == nil {
			err = a.finishAll(ctx, all, false)
		}
	}
	if err != nil {
		return err
	}
	c.Send(http.StatusOK, httpapi.JSON, a.outcomeList(all))
	return nil
}

// verifyResults asks the contracts that have to look before they believe a result, one run after
// the other.
func (a *API) verifyResults(ctx context.Context, all []*outcome) error {
	jobs, err := a.completedJobs(ctx, all)
	if err != nil {
		return err
	}
	for _, o := range all {
		j := jobs[o.run.Seq()]
		if !o.completes || o.err != nil || j == nil {
			continue // the transaction finds what is lost
		}
		h, err := a.checkRun(j, o.run)
		if err != nil || h.contract.VerifyResult == nil {
			continue
		}
		if err := o.verify(ctx, h); !affectsOneRun(err) {
			return err
		}
	}
	return nil
}

// completedJobs reads the jobs whose runs left results, with their definitions, by their numbers.
func (a *API) completedJobs(ctx context.Context, all []*outcome) (map[int64]*job.Job, error) {
	var seqs []int64
	for _, o := range all {
		if o.completes && o.err == nil {
			seqs = append(seqs, o.run.Seq())
		}
	}
	found, err := a.engine.GetWithoutBodies(ctx, seqs)
	jobs := make(map[int64]*job.Job, len(found))
	for _, j := range found {
		jobs[j.Seq] = j
	}
	return jobs, err
}

// settle has the contract look. A run that is overdue stays that: there is nothing to look for.
func (o *outcome) verify(ctx context.Context, h *currentRun) error {
	if timeout := h.contract.timedOut(h.job); timeout != nil {
		o.plan.decide = func(*currentRun) (engine.Outcome, error) {
			o.timedOut = timeout
			return *timeout, nil
		}
		return nil
	}
	verifiedOutcome, err := h.contract.VerifyResult(ctx, h.job, o.result)
	if o.plan = verified(verifiedOutcome); err != nil {
		// unless the run is over by then: an outcome before this one may have ended it
		o.plan = rejected(err)
	}
	return err
}

// affectsOneRun reports whether an error is about one run, so that the others can end all the same.
func affectsOneRun(err error) bool {
	if err == nil {
		return true
	}
	c := toProblem(err).code
	return c != codeUnavailable && c != codeInternal
}

// finishAll ends in one transaction what has not been refused yet. With ask it ends nothing and is
// errNeedsVerify if a contract has to look first.
func (a *API) finishAll(ctx context.Context, all []*outcome, checkFirst bool) error {
	all = slices.DeleteFunc(slices.Clone(all), func(o *outcome) bool { return o.err != nil })
	var endings []engine.FinishRequest
	needsVerify := false
	if checkFirst {
		endings = a.verifyChecks(all, &needsVerify)
	}
	checks := len(endings)
	for _, o := range all {
		judge := a.decide(&o.pendingFinish)
		endings = append(endings, engine.FinishRequest{Run: engine.Run{Run: o.run},
			Decide: func(j *job.Job) (engine.Outcome, error) {
				if needsVerify {
					return engine.Outcome{}, errNeedsVerify
				}
				return judge(j)
			}})
	}
	ended := a.engine.FinishAll(ctx, endings)[checks:]
	if needsVerify {
		return errNeedsVerify
	}
	for i, o := range all {
		o.job, o.err = ended[i].Job, a.finishError(&o.pendingFinish, ended[i].Err)
		if !affectsOneRun(o.err) {
			return o.err
		}
	}
	return nil
}

// verifyChecks asks for all results, in the transaction and before any run ends, whether a contract
// has to look at them. So nobody reads the jobs beforehand where none has to. It ends no run.
func (a *API) verifyChecks(all []*outcome, needsVerify *bool) (checks []engine.FinishRequest) {
	for _, o := range all {
		if !o.completes {
			continue
		}
		judge := a.decide(&o.pendingFinish)
		checks = append(checks, engine.FinishRequest{Run: engine.Run{Run: o.run},
			Decide: func(j *job.Job) (engine.Outcome, error) {
				_, err := judge(j)
				*needsVerify = *needsVerify || err == errNeedsVerify
				return engine.Outcome{}, errCheckOnly
			}})
	}
	return checks
}

// errCheckOnly never leaves the API: a run goes on that was only asked about.
var errCheckOnly = errors.New("workerapi: only asked")
