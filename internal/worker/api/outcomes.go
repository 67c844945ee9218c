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

// outcome is what a worker says of one of its runs, and what it is answered.
type outcome struct {
	ending
	id     string // of the run, as it was sent
	done   bool   // it is complete, with the result
	result []byte

	after *job.Job
	err   error // in place of after: this outcome is refused, and the others are not
}

// POST /worker/v1/outcomes
func (a *API) finish(c *httpapi.Call) error {
	all, err := readOutcomes(c)
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	if err = a.finishAll(ctx, all, a.looks); err == errUnsettled {
		if err = a.look(ctx, all); err == nil {
			err = a.finishAll(ctx, all, false)
		}
	}
	if err != nil {
		return err
	}
	c.Send(http.StatusOK, httpapi.JSON, a.outcomeList(all))
	return nil
}

// look asks the contracts that have to look before they believe a result, one run after the other.
func (a *API) look(ctx context.Context, all []*outcome) error {
	jobs, err := a.claimed(ctx, all)
	if err != nil {
		return err
	}
	for _, o := range all {
		j := jobs[o.run.Seq()]
		if !o.done || o.err != nil || j == nil {
			continue // the transaction finds what is lost
		}
		h, err := a.held(j, o.run)
		if err != nil || h.contract.Settle == nil {
			continue
		}
		if err := o.settle(ctx, h); !alone(err) {
			return err
		}
	}
	return nil
}

// claimed reads the jobs whose runs left results, with their definitions, by their numbers.
func (a *API) claimed(ctx context.Context, all []*outcome) (map[int64]*job.Job, error) {
	var seqs []int64
	for _, o := range all {
		if o.done && o.err == nil {
			seqs = append(seqs, o.run.Seq())
		}
	}
	found, err := a.engine.Briefs(ctx, seqs)
	jobs := make(map[int64]*job.Job, len(found))
	for _, j := range found {
		jobs[j.Seq] = j
	}
	return jobs, err
}

// settle has the contract look. A run that is overdue stays that: there is nothing to look for.
func (o *outcome) settle(ctx context.Context, h *held) error {
	if late := h.contract.overdue(h.job); late != nil {
		o.how.of = func(*held) (engine.Outcome, error) { o.overdue = late; return *late, nil }
		return nil
	}
	how, err := h.contract.Settle(ctx, h.job, o.result)
	if o.how = settled(how); err != nil {
		o.how = refused(err) // unless the run is over by then: an outcome before this one may have ended it
	}
	return err
}

// alone reports whether an error is about one run, so that the others can end all the same.
func alone(err error) bool {
	if err == nil {
		return true
	}
	c := judge(err).code
	return c != codeUnavailable && c != codeInternal
}

// finishAll ends in one transaction what has not been refused yet. With ask it ends nothing and is errUnsettled if a
// contract has to look first.
func (a *API) finishAll(ctx context.Context, all []*outcome, ask bool) error {
	all = slices.DeleteFunc(slices.Clone(all), func(o *outcome) bool { return o.err != nil })
	var endings []engine.Ending
	unsettled := false
	if ask {
		endings = a.asking(all, &unsettled)
	}
	asked := len(endings)
	for _, o := range all {
		judge := a.judging(&o.ending)
		endings = append(endings, engine.Ending{Run: engine.Run{Run: o.run}, Judge: func(j *job.Job) (engine.Outcome, error) {
			if unsettled {
				return engine.Outcome{}, errUnsettled
			}
			return judge(j)
		}})
	}
	ended := a.engine.FinishAll(ctx, endings)[asked:]
	if unsettled {
		return errUnsettled
	}
	for i, o := range all {
		o.after, o.err = ended[i].Job, a.became(&o.ending, ended[i].Err)
		if !alone(o.err) {
			return o.err
		}
	}
	return nil
}

// asking asks for all results, in the transaction and before any run ends, whether a contract has to look at them. So
// nobody reads the jobs beforehand where none has to. It ends no run.
func (a *API) asking(all []*outcome, unsettled *bool) (asked []engine.Ending) {
	for _, o := range all {
		if !o.done {
			continue
		}
		judge := a.judging(&o.ending)
		asked = append(asked, engine.Ending{Run: engine.Run{Run: o.run}, Judge: func(j *job.Job) (engine.Outcome, error) {
			_, err := judge(j)
			*unsettled = *unsettled || err == errUnsettled
			return engine.Outcome{}, errAsked
		}})
	}
	return asked
}

// errAsked never leaves the API: a run goes on that was only asked about.
var errAsked = errors.New("workerapi: only asked")
