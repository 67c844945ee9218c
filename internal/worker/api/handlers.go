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
	contract, err := a.findContract(q.contract)
	if err != nil {
		return err
	}
	for _, queue := range q.queues {
		if contract.runsLocally(queue) {
			return errRunsLocally("the jobs of queue " + strconv.Quote(queue))
		}
	}
	if contract.runsLocally("") {
		return errRunsLocally("the jobs of " + contract.Name)
	}
	waiting := a.metrics.waiting.WithLabelValues(contract.Name)
	waiting.Inc()
	defer waiting.Dec()
	jobs, err := a.engine.Claim(c.Request.Context(),
		engine.ClaimRequest{Contract: contract.engineName(), Queues: q.queues,
			Skip: contract.runsLocally,
			Max:  q.max, Worker: q.worker, Wait: time.Duration(q.waitSeconds) * time.Second})
	if err != nil {
		return err
	}
	a.sendJobs(c, contract, jobs, jobList(contract, jobs))
	return nil
}

// sendJobs answers with jobs that were claimed. Those that do not get as far as the connection,
// because the caller is gone, go back at once. What is lost behind it nobody knows: the lease ends
// that.
func (a *API) sendJobs(c *httpapi.Call, contract *Contract, jobs []*job.Job, body []byte) {
	a.metrics.claimed.WithLabelValues(contract.Name).Add(float64(len(jobs)))
	c.Send(http.StatusOK, httpapi.JSON, body)
	if err := http.NewResponseController(c).Flush(); err != nil && len(jobs) > 0 {
		a.engine.ReleaseClaimed(jobs)
		a.metrics.finished.WithLabelValues(contract.Name,
			outcomeUndelivered).Add(float64(len(jobs)))
	}
}

// POST /worker/v1/jobs/{job_id}/claim
func (a *API) claimJob(c *httpapi.Call) error {
	var q claimRequest
	if err := q.readOne(c); err != nil {
		return err
	}
	contract, err := a.findContract(q.contract)
	if err != nil {
		return err
	}
	id, ok := contract.id(c.PathValue("job_id"))
	if !ok {
		return errNoJob
	}
	existing, err := a.engine.Get(c.Request.Context(), id)
	if err != nil {
		return err
	}
	if contract.runsLocally("") || contract.runsLocally(existing.Queue) {
		return errRunsLocally("the jobs of queue " + strconv.Quote(existing.Queue))
	}
	j, err := a.engine.ClaimJob(c.Request.Context(), id, q.worker)
	if job.IsKind(err, job.Conflict) {
		return &problem{code: codeNotClaimable,
			detail: "the job is " + contract.state(existing.State) +
				" and cannot be claimed now: it is not ready, not due, or held back by a limit or pause", cause: err}
	}
	if err != nil {
		return err
	}
	a.sendJobs(c, contract, []*job.Job{j}, appendJob(nil, contract, j))
	return nil
}

// findContract finds the contract a request names.
func (a *API) findContract(name string) (*Contract, error) {
	if contract := a.contracts[name]; contract != nil {
		return contract, contract.check()
	}
	return nil, invalid("contract " + strconv.Quote(name) +
		" is none whose jobs are handed out here")
}

// held is a run that is its job's current one, or was a moment ago.
type currentRun struct {
	contract *Contract
	job      *job.Job
	run      engine.Run
}

// held tells whose run it is. One that is unknown or over, or of a job that is not served here, is
// lost like one that was taken over (G-X-20).
func (a *API) checkRun(j *job.Job, run job.RunID) (*currentRun, error) {
	contract := a.byEngine[j.ID.Contract]
	if j.Run != run || contract == nil {
		return nil, errRunLost
	}
	return &currentRun{contract, j, engine.Run{ID: j.ID, Run: run}}, contract.check()
}

// readCurrentRun reads the job of a run with its definition. What is written under the run finds
// out anew whose it is.
func (a *API) readCurrentRun(c *httpapi.Call) (*currentRun, error) {
	run, err := parseRunID(c.PathValue("run_id"))
	if err != nil {
		return nil, err
	}
	jobs, err := a.engine.GetWithoutBodies(c.Request.Context(), []int64{run.Seq()})
	if err != nil {
		return nil, err
	}
	if len(jobs) == 0 {
		return nil, errRunLost
	}
	return a.checkRun(jobs[0], run)
}

func parseRunID(id string) (job.RunID, error) {
	run, err := job.ParseRunID(id)
	if err != nil {
		return run, errRunLost
	}
	return run, nil
}

func logJob(c *httpapi.Call, h *currentRun) {
	c.AddAttrs(slog.String(telemetry.JobID, h.job.ID.Key))
}

// POST /worker/v1/runs/{run_id}/heartbeat
func (a *API) heartbeat(c *httpapi.Call) error {
	state, err := readState(c)
	if err != nil {
		return err
	}
	h, err := a.readCurrentRun(c)
	if err != nil {
		return err
	}
	logJob(c, h)
	if o := h.contract.timedOut(h.job); o != nil {
		o.Progress = state
		after, err := a.engine.Finish(c.Request.Context(), h.run, *o)
		if err != nil {
			return err
		}
		a.countFinished(h, outcomeOverdue)
		sendHeartbeat(c, after.UpdatedAt, true)
		return nil
	}
	until, err := a.engine.Heartbeat(c.Request.Context(), h.run, state)
	if err != nil {
		return err
	}
	if h.contract.OnHeartbeat != nil {
		h.contract.OnHeartbeat()
	}
	sendHeartbeat(c, until, false)
	return nil
}

// POST /worker/v1/runs/{run_id}/start
func (a *API) start(c *httpapi.Call) error { return a.finishWithoutBody(c, started) }

// POST /worker/v1/runs/{run_id}/release
func (a *API) release(c *httpapi.Call) error { return a.finishWithoutBody(c, released) }

// POST /worker/v1/runs/{run_id}/complete
func (a *API) complete(c *httpapi.Call) error {
	body, err := readObject(c)
	if err != nil {
		return err
	}
	result := readResult(body)
	err = a.finishRun(c, completed(result))
	if err == errNeedsVerify {
		return a.completeVerified(c, result)
	}
	return err
}

func (a *API) completeVerified(c *httpapi.Call, result []byte) error {
	h, err := a.readCurrentRun(c)
	if err != nil {
		return err
	}
	o, err := h.contract.VerifyResult(c.Request.Context(), h.job, result)
	if err != nil {
		return err
	}
	return a.finishRun(c, verified(o))
}

// POST /worker/v1/runs/{run_id}/fail
func (a *API) fail(c *httpapi.Call) error {
	body, err := readObject(c)
	if err != nil {
		return err
	}
	f, err := readFailure("", body)
	if err != nil {
		return err
	}
	return a.finishRun(c, failedWith(f))
}

// finishWithoutBody is ended for routes that have nothing to read but an object.
func (a *API) finishWithoutBody(c *httpapi.Call, plan finishPlan) error {
	if _, err := readObject(c); err != nil {
		return err
	}
	return a.finishRun(c, plan)
}

// ended writes what became of a run and answers where its job stands.
func (a *API) finishRun(c *httpapi.Call, plan finishPlan) error {
	run, err := parseRunID(c.PathValue("run_id"))
	if err != nil {
		return err
	}
	e := &pendingFinish{run: run, plan: plan}
	after, err := a.engine.FinishBy(c.Request.Context(), engine.Run{Run: run}, a.decide(e))
	if e.current != nil && err != errNeedsVerify {
		logJob(c, e.current)
	}
	if err := a.finishError(e, err); err != nil {
		return err
	}
	sendStatus(c, after.ID.Key, e.current.contract.state(after.State))
	return nil
}
