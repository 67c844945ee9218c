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
		return contract, contract.check()
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
	return &held{contract, j, engine.Run{ID: j.ID, Run: run}}, contract.check()
}

// current reads the job of a run with its definition. What is written under the run finds out anew whose it is.
func (a *API) current(c *httpapi.Call) (*held, error) {
	run, err := runOf(c.Member("run_id"))
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

func runOf(id string) (job.RunID, error) {
	run, err := job.ParseRunID(id)
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
func (a *API) start(c *httpapi.Call) error { return a.end(c, started) }

// POST /worker/v1/runs/{run_id}/release
func (a *API) release(c *httpapi.Call) error { return a.end(c, released) }

// POST /worker/v1/runs/{run_id}/complete
func (a *API) complete(c *httpapi.Call) error {
	body, err := readObject(c)
	if err != nil {
		return err
	}
	result := resultOf(body)
	err = a.ended(c, completed(result))
	if err == errUnsettled {
		return a.settle(c, result)
	}
	return err
}

func (a *API) settle(c *httpapi.Call, result []byte) error {
	h, err := a.current(c)
	if err != nil {
		return err
	}
	o, err := h.contract.Settle(c.Request.Context(), h.job, result)
	if err != nil {
		return err
	}
	return a.ended(c, settled(o))
}

// POST /worker/v1/runs/{run_id}/fail
func (a *API) fail(c *httpapi.Call) error {
	body, err := readObject(c)
	if err != nil {
		return err
	}
	f, err := failureOf("", body)
	if err != nil {
		return err
	}
	return a.ended(c, failing(f))
}

// end is ended for routes that have nothing to read but an object.
func (a *API) end(c *httpapi.Call, how how) error {
	if _, err := readObject(c); err != nil {
		return err
	}
	return a.ended(c, how)
}

// ended writes what became of a run and answers where its job stands.
func (a *API) ended(c *httpapi.Call, how how) error {
	run, err := runOf(c.Member("run_id"))
	if err != nil {
		return err
	}
	e := &ending{run: run, how: how}
	after, err := a.engine.FinishBy(c.Request.Context(), engine.Run{Run: run}, a.judging(e))
	if e.held != nil && err != errUnsettled {
		noteJob(c, e.held)
	}
	if err := a.became(e, err); err != nil {
		return err
	}
	sendStatus(c, after.ID.Key, e.held.contract.state(after.State))
	return nil
}
