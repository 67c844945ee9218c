package workerapi

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// outcome is the outcome of one run in a request with many, and the answer to it.
type outcome struct {
	pendingFinish
	id        string // of the run, as it was sent
	completes bool   // whether the run completes, with result
	result    []byte

	job *job.Job // after the finish
	err error    // set instead of job: only this outcome is refused
}

// POST /worker/v1/outcomes
func (a *Server) finish(c *httpapi.Call) error {
	all, err := readOutcomes(c)
	if err != nil {
		return err
	}
	ctx := c.Context()
	err = a.finishAll(ctx, all, a.needsVerify)
	if errors.Is(err, errNeedsVerify) {
		err = a.verifyAndFinishAll(ctx, all)
	}
	if err != nil {
		return err
	}
	c.Send(http.StatusOK, httpapi.JSON, a.outcomeList(all))
	return nil
}

// verifyAndFinishAll verifies results and finishes the runs then.
func (a *Server) verifyAndFinishAll(ctx context.Context, all []*outcome) error {
	if err := a.verifyResults(ctx, all); err != nil {
		return err
	}
	return a.finishAll(ctx, all, false)
}

// verifyResults calls VerifyResult for the results of contracts that have it, one after the other.
// It stops at an error that concerns all runs, such as an outage of the objects: none of them is
// finished then, and the worker sends the request again.
func (a *Server) verifyResults(ctx context.Context, all []*outcome) error {
	jobs, err := a.completedJobs(ctx, all)
	if err != nil {
		return err
	}
	for _, o := range all {
		j := jobs[o.run.Seq()]
		if !o.completes || o.err != nil || j == nil {
			continue // refused already, or lost, which the transaction will find
		}
		r, err := a.checkRun(j, o.run)
		if err != nil || r.contract.VerifyResult == nil {
			continue
		}
		if err := o.verify(ctx, r); err != nil && !affectsOneRun(err) {
			return err
		}
	}
	return nil
}

// completedJobs reads the jobs of the runs that complete, with their definitions, by number.
// Outcomes that were refused while the request was read are left out.
func (a *Server) completedJobs(ctx context.Context, all []*outcome) (map[int64]*job.Job, error) {
	var seqs []int64
	for _, o := range all {
		if o.err != nil || !o.completes {
			continue
		}
		seqs = append(seqs, o.run.Seq())
	}
	found, err := a.Engine.GetBySeqs(ctx, seqs, store.DefinitionOnly)
	jobs := make(map[int64]*job.Job, len(found))
	for _, j := range found {
		jobs[j.Seq] = j
	}
	return jobs, err
}

// verify calls VerifyResult and makes its answer the plan. A run that has timed out stays that,
// without verification.
func (o *outcome) verify(ctx context.Context, r *currentRun) error {
	if timeout := r.contract.timedOut(r.job); timeout != nil {
		o.plan.decide = func(*currentRun) (engine.Outcome, error) {
			o.timedOut = timeout
			return *timeout, nil
		}
		return nil
	}
	verifiedOutcome, err := r.contract.VerifyResult(ctx, r.job, o.result)
	if err != nil {
		// The transaction still checks the run: another outcome for it may have ended it.
		o.plan = rejected(err)
		return err
	}
	o.plan = verified(verifiedOutcome)
	return nil
}

// affectsOneRun reports whether an error is about one run only, so that the others can be
// finished.
func affectsOneRun(err error) bool {
	c := errorTable.Answer(err).Code
	return c != codeUnavailable && c != codeInternal
}

// finishAll finishes the runs whose outcomes have not been refused yet, in one transaction. With
// checkFirst it finishes none and returns errNeedsVerify if a result has to be verified first. An
// error that concerns all runs is returned, and the answer is that error; one that concerns a
// single run is kept with its outcome.
func (a *Server) finishAll(ctx context.Context, all []*outcome, checkFirst bool) error {
	all = slices.DeleteFunc(slices.Clone(all), func(o *outcome) bool { return o.err != nil })
	var requests []engine.FinishRequest
	needsVerify := false
	if checkFirst {
		requests = a.verifyChecks(all, &needsVerify)
	}
	checks := len(requests)
	for _, o := range all {
		decide := a.decide(&o.pendingFinish)
		requests = append(requests, engine.FinishRequest{
			Run: engine.Run{Run: o.run},
			Decide: func(j *job.Job) (engine.Outcome, error) {
				if needsVerify {
					return engine.Outcome{}, errNeedsVerify
				}
				return decide(j)
			},
		})
	}
	results := a.Engine.FinishAll(ctx, requests)[checks:]
	if needsVerify {
		return errNeedsVerify
	}
	for i, o := range all {
		o.job, o.err = results[i].Job, a.finishError(&o.pendingFinish, results[i].Err)
		if o.err != nil && !affectsOneRun(o.err) {
			return o.err
		}
	}
	return nil
}

// verifyChecks returns requests that run before those of the outcomes, in their transaction, and
// set needsVerify if a result has to be verified first. They finish no run. So the jobs are read
// ahead of the transaction only when that is needed.
func (a *Server) verifyChecks(all []*outcome, needsVerify *bool) (checks []engine.FinishRequest) {
	for _, o := range all {
		if !o.completes {
			continue
		}
		decide := a.decide(&o.pendingFinish)
		checks = append(checks, engine.FinishRequest{
			Run: engine.Run{Run: o.run},
			Decide: func(j *job.Job) (engine.Outcome, error) {
				_, err := decide(j)
				*needsVerify = *needsVerify || errors.Is(err, errNeedsVerify)
				return engine.Outcome{}, errCheckOnly
			},
		})
	}
	return checks
}

// errCheckOnly keeps a check from finishing its run. It never leaves the API.
var errCheckOnly = errors.New("workerapi: a check only")
