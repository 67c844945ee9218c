package workerapi

import (
	"errors"
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

// held is a run that is its job's current one, or was a moment ago.
type held struct {
	contract *Contract
	job      *job.Job
	run      engine.Run
}

// held tells whose run it is. One that is unknown or over, or of a job that is not served here, is lost like one that
// was taken over (G-X-20).
func (a *API) held(j *job.Job, run job.RunID) (*held, error) {
	contract := a.byEngine[j.ID.Contract]
	if j.Run != run || contract == nil {
		return nil, errLost
	}
	return &held{contract, j, engine.Run{ID: j.ID, Run: run}}, nil
}

// current reads the job of a run with its definition. What is written under the run finds out anew whose it is.
func (a *API) current(c *httpapi.Call) (*held, error) {
	run, err := runOf(c)
	if err != nil {
		return nil, err
	}
	jobs, err := a.engine.Briefs(c.Request.Context(), []int64{run.Seq()})
	if err != nil {
		return nil, err
	}
	if len(jobs) == 0 {
		return nil, errLost
	}
	return a.held(jobs[0], run)
}

func runOf(c *httpapi.Call) (job.RunID, error) {
	run, err := job.ParseRunID(c.Member("run_id"))
	if err != nil {
		return run, errLost
	}
	return run, nil
}

func noteJob(c *httpapi.Call, h *held) { c.Note(slog.String(telemetry.JobID, h.job.ID.Key)) }

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
	noteJob(c, h)
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
	err = a.ended(c, endedWell, func(h *held) (engine.Outcome, error) {
		if h.contract.Settle != nil {
			return engine.Outcome{}, errUnsettled
		}
		return h.contract.Complete(h.job, result), nil
	})
	if err == errUnsettled {
		return a.settle(c, result)
	}
	return err
}

// errUnsettled never leaves the API: Settle may take its time, and must not in a transaction.
var errUnsettled = errors.New("workerapi: the contract has to look first")

func (a *API) settle(c *httpapi.Call, result []byte) error {
	h, err := a.current(c)
	if err != nil {
		return err
	}
	o, err := h.contract.Settle(c.Request.Context(), h.job, result)
	if err != nil {
		return err
	}
	return a.ended(c, endedWell, func(*held) (engine.Outcome, error) { return o, nil })
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

// ended writes what became of a run and answers where its job stands. how is asked in the transaction, unless the run is
// overdue.
func (a *API) ended(c *httpapi.Call, outcome string, how func(*held) (engine.Outcome, error)) error {
	run, err := runOf(c)
	if err != nil {
		return err
	}
	var h *held
	var overdue *engine.Outcome
	after, err := a.engine.FinishBy(c.Request.Context(), engine.Run{Run: run}, func(j *job.Job) (engine.Outcome, error) {
		var err error
		if h, err = a.held(j, run); err != nil {
			return engine.Outcome{}, err
		}
		if overdue = h.contract.overdue(j); overdue != nil {
			return *overdue, nil
		}
		return how(h)
	})
	if h != nil && err != errUnsettled {
		noteJob(c, h)
	}
	switch {
	case err == nil && overdue != nil:
		a.count(h, endedOverdue)
		return errOverdue
	case job.IsKind(err, job.Conflict):
		return &problem{code: codeConflict, detail: "the job is " + h.contract.state(h.job.State) + ", which this run cannot leave that way; it may have to be started first", cause: err}
	case err != nil:
		return err
	}
	a.count(h, outcome)
	sendStatus(c, after.ID.Key, h.contract.state(after.State))
	return nil
}
