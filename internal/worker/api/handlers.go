package workerapi

import (
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// POST /worker/v1/claims
func (a *API) claim(c *httpapi.Call) error {
	var q claimRequest
	if err := q.read(c); err != nil {
		return err
	}
	contract, err := a.contractOf(q.contract)
	if err != nil {
		return err
	}
	for _, queue := range q.queues {
		if contract.bound(queue) {
			return runHere("the jobs of queue " + strconv.Quote(queue))
		}
	}
	if contract.bound("") {
		return runHere("the jobs of " + contract.Name)
	}
	waiting := a.metrics.waiting.WithLabelValues(contract.Name)
	waiting.Inc()
	defer waiting.Dec()
	jobs, err := a.engine.Claim(c.Request.Context(), engine.ClaimRequest{Contract: contract.engineName(), Queues: q.queues, Except: contract.bound,
		Max: q.max, Worker: q.worker, Wait: time.Duration(q.waitSeconds) * time.Second})
	if err != nil {
		return err
	}
	a.hand(c, contract, jobs, jobList(contract, jobs))
	return nil
}

// hand answers with jobs that were claimed. Those that do not get as far as the connection, because the caller is gone,
// go back at once. What is lost behind it nobody knows: the lease ends that.
func (a *API) hand(c *httpapi.Call, contract *Contract, jobs []*job.Job, body []byte) {
	a.metrics.claimed.WithLabelValues(contract.Name).Add(float64(len(jobs)))
	c.Send(http.StatusOK, httpapi.JSON, body)
	if err := http.NewResponseController(c).Flush(); err != nil && len(jobs) > 0 {
		a.engine.GiveBack(jobs)
		a.metrics.ended.WithLabelValues(contract.Name, endedUnheard).Add(float64(len(jobs)))
	}
}

// POST /worker/v1/jobs/{job_id}/claim
func (a *API) claimJob(c *httpapi.Call) error {
	var q claimRequest
	if err := q.readOne(c); err != nil {
		return err
	}
	contract, err := a.contractOf(q.contract)
	if err != nil {
		return err
	}
	id, ok := contract.id(c.Member("job_id"))
	if !ok {
		return errNoJob
	}
	there, err := a.engine.Get(c.Request.Context(), id)
	if err != nil {
		return err
	}
	if contract.bound("") || contract.bound(there.Queue) {
		return runHere("the jobs of queue " + strconv.Quote(there.Queue))
	}
	j, err := a.engine.ClaimJob(c.Request.Context(), id, q.worker)
	if job.IsKind(err, job.Conflict) {
		return &problem{code: codeNotClaimable, detail: "the job is " + contract.state(there.State) + " and cannot be claimed now: it is not ready, not due, or held back by a limit or pause", cause: err}
	}
	if err != nil {
		return err
	}
	a.hand(c, contract, []*job.Job{j}, appendJob(nil, contract, j))
	return nil
}

// contractOf finds the contract a request names.
func (a *API) contractOf(name string) (*Contract, error) {
	if contract := a.contracts[name]; contract != nil {
		return contract, nil
	}
	return nil, invalid("contract " + strconv.Quote(name) + " is none whose jobs are handed out here")
}

// held is a run that was its job's current one a moment ago. What is written under it finds out anew, in its
// transaction.
type held struct {
	contract *Contract
	job      *job.Job // with no body but its definition
	run      engine.Run
}

// current finds the run a request is about. One that is unknown or over, or of a job that is not served here, is lost
// like one that was taken over (G-X-20).
func (a *API) current(c *httpapi.Call) (*held, error) {
	run, err := job.ParseRunID(c.Member("run_id"))
	if err != nil {
		return nil, errLost
	}
	jobs, err := a.engine.Briefs(c.Request.Context(), []int64{run.Seq()})
	if err != nil {
		return nil, err
	}
	if len(jobs) == 0 || jobs[0].Run != run || a.byEngine[jobs[0].ID.Contract] == nil {
		return nil, errLost
	}
	j := jobs[0]
	c.Note(slog.String(telemetry.JobID, j.ID.Key))
	return &held{contract: a.byEngine[j.ID.Contract], job: j, run: engine.Run{ID: j.ID, Run: run}}, nil
}

// POST /worker/v1/runs/{run_id}/heartbeat
func (a *API) heartbeat(c *httpapi.Call) error {
	state, err := readState(c)
	if err != nil {
		return err
	}
	h, err := a.current(c)
	if err != nil {
		return err
	}
	if o := h.contract.overdue(h.job); o != nil {
		o.Progress = state
		after, err := a.engine.Finish(c.Request.Context(), h.run, *o)
		if err != nil {
			return err
		}
		a.count(h, endedOverdue)
		sendBeat(c, after.UpdatedAt, true)
		return nil
	}
	until, err := a.engine.Beat(c.Request.Context(), h.run, state)
	if err != nil {
		return err
	}
	if h.contract.Beaten != nil {
		h.contract.Beaten()
	}
	sendBeat(c, until, false)
	return nil
}

// POST /worker/v1/runs/{run_id}/start
func (a *API) start(c *httpapi.Call) error {
	return a.end(c, "", func(*held) (engine.Outcome, error) { return engine.Outcome{On: job.Started}, nil })
}

// POST /worker/v1/runs/{run_id}/release
func (a *API) release(c *httpapi.Call) error {
	return a.end(c, endedGiven, func(*held) (engine.Outcome, error) { return engine.Outcome{On: job.Released}, nil })
}

// POST /worker/v1/runs/{run_id}/complete
func (a *API) complete(c *httpapi.Call) error {
	result, err := readResult(c)
	if err != nil {
		return err
	}
	return a.ended(c, endedWell, func(h *held) (engine.Outcome, error) {
		return h.contract.complete(c.Request.Context(), h.job, result)
	})
}

// POST /worker/v1/runs/{run_id}/fail
func (a *API) fail(c *httpapi.Call) error {
	f, err := readFailure(c)
	if err != nil {
		return err
	}
	return a.ended(c, endedBadly, func(h *held) (engine.Outcome, error) {
		return h.contract.Fail(h.job, f.message, f.errorType, f.retryable), nil
	})
}

// end is ended for routes that have nothing to read but an object.
func (a *API) end(c *httpapi.Call, outcome string, how func(*held) (engine.Outcome, error)) error {
	if _, err := readObject(c); err != nil {
		return err
	}
	return a.ended(c, outcome, how)
}

// count counts a run that ended; one that has only started has not.
func (a *API) count(h *held, outcome string) {
	if outcome != "" {
		a.metrics.ended.WithLabelValues(h.contract.Name, outcome).Inc()
	}
}

// ended writes what became of a run and answers where its job stands.
func (a *API) ended(c *httpapi.Call, outcome string, how func(*held) (engine.Outcome, error)) error {
	h, err := a.current(c)
	if err != nil {
		return err
	}
	var o engine.Outcome
	overdue := h.contract.overdue(h.job)
	if overdue != nil {
		o = *overdue
	} else if o, err = how(h); err != nil {
		return err
	}
	after, err := a.engine.Finish(c.Request.Context(), h.run, o)
	if err == nil && overdue != nil {
		a.count(h, endedOverdue)
		return errOverdue
	}
	if job.IsKind(err, job.Conflict) {
		return &problem{code: codeConflict, detail: "the job is " + h.contract.state(h.job.State) + ", which this run cannot leave that way; it may have to be started first", cause: err}
	}
	if err != nil {
		return err
	}
	a.count(h, outcome)
	sendStatus(c, after.ID.Key, h.contract.state(after.State))
	return nil
}
