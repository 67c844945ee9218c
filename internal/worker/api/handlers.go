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
	jobs, err := a.engine.Claim(c.Request.Context(), engine.ClaimRequest{Contract: contract.Name, Queues: q.queues, Except: contract.bound,
		Max: q.max, Worker: q.worker, Wait: time.Duration(q.waitSeconds) * time.Second})
	if err != nil {
		return err
	}
	sendJobs(c, contract, jobs)
	return nil
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
	c.Send(http.StatusOK, httpapi.JSON, appendJob(nil, contract, j))
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
	if len(jobs) == 0 || jobs[0].Run != run || a.contracts[jobs[0].ID.Contract] == nil {
		return nil, errLost
	}
	j := jobs[0]
	c.Note(slog.String(telemetry.JobID, j.ID.Key))
	return &held{contract: a.contracts[j.ID.Contract], job: j, run: engine.Run{ID: j.ID, Run: run}}, nil
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
	until, err := a.engine.Beat(c.Request.Context(), h.run, state)
	if err != nil {
		return err
	}
	if h.contract.Beaten != nil {
		h.contract.Beaten()
	}
	cancel := h.contract.Overdue != nil && h.contract.Overdue(h.job, until.Add(-h.job.Lease))
	sendBeat(c, until, cancel)
	return nil
}

// POST /worker/v1/runs/{run_id}/start
func (a *API) start(c *httpapi.Call) error {
	return a.end(c, func(*held) engine.Outcome { return engine.Outcome{On: job.Started} })
}

// POST /worker/v1/runs/{run_id}/release
func (a *API) release(c *httpapi.Call) error {
	return a.end(c, func(*held) engine.Outcome { return engine.Outcome{On: job.Released} })
}

// POST /worker/v1/runs/{run_id}/complete
func (a *API) complete(c *httpapi.Call) error {
	result, err := readResult(c)
	if err != nil {
		return err
	}
	return a.ended(c, func(h *held) engine.Outcome { return h.contract.Complete(h.job, result) })
}

// POST /worker/v1/runs/{run_id}/fail
func (a *API) fail(c *httpapi.Call) error {
	f, err := readFailure(c)
	if err != nil {
		return err
	}
	return a.ended(c, func(h *held) engine.Outcome { return h.contract.Fail(h.job, f.message, f.errorType, f.retryable) })
}

// end is ended for routes that have nothing to read but an object.
func (a *API) end(c *httpapi.Call, how func(*held) engine.Outcome) error {
	if _, err := readObject(c); err != nil {
		return err
	}
	return a.ended(c, how)
}

// ended writes what became of a run and answers where its job stands.
func (a *API) ended(c *httpapi.Call, how func(*held) engine.Outcome) error {
	h, err := a.current(c)
	if err != nil {
		return err
	}
	after, err := a.engine.Finish(c.Request.Context(), h.run, how(h))
	if job.IsKind(err, job.Conflict) {
		return &problem{code: codeConflict, detail: "the job is " + h.contract.state(h.job.State) + ", which this run cannot leave that way; it may have to be started first", cause: err}
	}
	if err != nil {
		return err
	}
	sendStatus(c, after.ID.Key, h.contract.state(after.State))
	return nil
}
