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
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/telemetry"
)

// POST /worker/v1/claims
func (a *Server) claim(c *httpapi.Call) error {
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
	jobs, draining, err := a.Engine.ClaimRemote(c.Context(), engine.ClaimRequest{
		JobType: contract.jobType(),
		Queues:  q.queues,
		Skip:    contract.runsLocally,
		Max:     q.max,
		Worker:  q.worker,
		Wait:    time.Duration(q.waitSeconds) * time.Second,
	}, c.Request.UserAgent())
	if err != nil {
		return err
	}
	httpapi.SetDrain(c.Header(), draining)
	a.sendJobs(c, contract, jobs, jobList(contract, jobs))
	return nil
}

// sendJobs sends claimed jobs. When the caller is gone and they cannot be written to the
// connection, they are released at once. Jobs that are lost after that return when their leases
// expire.
func (a *Server) sendJobs(c *httpapi.Call, contract *Adapter, jobs []*job.Job, body []byte) {
	a.metrics.claimed.WithLabelValues(contract.Name).Add(float64(len(jobs)))
	c.Send(http.StatusOK, httpapi.JSON, body)
	if err := http.NewResponseController(c).Flush(); err != nil && len(jobs) > 0 {
		a.Engine.ReleaseClaimed(jobs)
		a.metrics.finished.WithLabelValues(contract.Name,
			outcomeUndelivered).Add(float64(len(jobs)))
	}
}

// POST /worker/v1/jobs/{job_id}/claim
func (a *Server) claimJob(c *httpapi.Call) error {
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
		return errJobNotFound
	}
	existing, err := a.Engine.Get(c.Context(), id)
	if err != nil {
		return err
	}
	if contract.runsLocally("") || contract.runsLocally(existing.Queue) {
		return errRunsLocally("the jobs of queue " + strconv.Quote(existing.Queue))
	}
	if a.Engine.IsDraining(engine.DrainWorker, q.worker) {
		return &httpapi.CodedError{Code: codeNotClaimable,
			Detail: "the worker " + strconv.Quote(q.worker) + " is drained",
			Err:    &job.Error{Kind: job.Conflict, Op: "workerapi.claim"}}
	}
	j, err := a.Engine.ClaimJob(c.Context(), id, q.worker)
	if job.IsKind(err, job.Conflict) {
		detail := "the job is " + contract.state(existing.State) + " and cannot be claimed now: " +
			"it is not ready, not due, limited or paused"
		return &httpapi.CodedError{Code: codeNotClaimable, Detail: detail, Err: err}
	}
	if err != nil {
		return err
	}
	a.sendJobs(c, contract, []*job.Job{j}, appendJob(nil, contract, j))
	return nil
}

// findContract returns the contract that a request names. The error may be that of the contract's
// Check: the node must not give jobs then.
func (a *Server) findContract(name string) (*Adapter, error) {
	if contract := a.contracts[name]; contract != nil {
		return contract, contract.check()
	}
	return nil, invalid("contract " + strconv.Quote(name) + " is unknown or has no remote workers")
}

// currentRun is a run that was its job's current one when the job was read. It may be lost by the
// time it is used, so every write under it is checked again.
type currentRun struct {
	contract *Adapter
	job      *job.Job
	run      engine.Run
}

// checkRun checks that a run is the current one of its job. A run that has ended, and one of a job
// whose contract is not served here, is lost as well (G-X-20).
func (a *Server) checkRun(j *job.Job, run job.RunID) (*currentRun, error) {
	contract := a.byEngine[j.ID.JobType]
	if j.Run != run || contract == nil {
		return nil, errRunLost
	}
	return &currentRun{contract, j, engine.Run{ID: j.ID, Run: run}}, contract.check()
}

// readCurrentRun reads the job of a run, with its definition. A write under the run checks it again
// in its transaction.
func (a *Server) readCurrentRun(c *httpapi.Call) (*currentRun, error) {
	run, err := parseRunID(c.PathValue("run_id"))
	if err != nil {
		return nil, err
	}
	jobs, err := a.Engine.GetBySeqs(c.Context(), []int64{run.Seq()}, store.DefinitionOnly)
	if err != nil {
		return nil, err
	}
	if len(jobs) == 0 {
		return nil, errRunLost
	}
	return a.checkRun(jobs[0], run)
}

// parseRunID reads the id of a run. A text that is no id names no run, so it is answered like a run
// that is lost.
func parseRunID(id string) (job.RunID, error) {
	run, err := job.ParseRunID(id)
	if err != nil {
		return run, errRunLost
	}
	return run, nil
}

// logJob adds the id of the job to the log line of the request.
func logJob(c *httpapi.Call, r *currentRun) {
	c.AddAttrs(slog.String(telemetry.JobID, r.job.ID.Key))
}

// POST /worker/v1/runs/{run_id}/heartbeat
func (a *Server) heartbeat(c *httpapi.Call) error {
	state, err := readState(c)
	if err != nil {
		return err
	}
	r, err := a.readCurrentRun(c)
	if err != nil {
		return err
	}
	logJob(c, r)
	if o := r.contract.timedOut(r.job); o != nil {
		o.Progress = state
		after, err := a.Engine.Finish(c.Context(), r.run, *o)
		if err != nil {
			return err
		}
		a.countFinished(r, outcomeOverdue)
		sendHeartbeat(c, after.UpdatedAt, true)
		return nil
	}
	until, err := a.Engine.Heartbeat(c.Context(), r.run, state)
	if err != nil {
		return err
	}
	if r.contract.OnHeartbeat != nil {
		r.contract.OnHeartbeat()
	}
	sendHeartbeat(c, until, false)
	return nil
}

// POST /worker/v1/runs/{run_id}/start
func (a *Server) start(c *httpapi.Call) error { return a.finishWithoutBody(c, started) }

// POST /worker/v1/runs/{run_id}/release
func (a *Server) release(c *httpapi.Call) error { return a.finishWithoutBody(c, released) }

// POST /worker/v1/runs/{run_id}/complete
func (a *Server) complete(c *httpapi.Call) error {
	body, err := readObject(c)
	if err != nil {
		return err
	}
	result := readResult(body)
	err = a.finishRun(c, completed(result))
	if errors.Is(err, errNeedsVerify) {
		return a.completeVerified(c, result)
	}
	return err
}

// completeVerified completes a run whose result the contract verifies first. The job is read
// outside of a transaction. What the contract verified may have changed since, so the finish checks
// the run again.
func (a *Server) completeVerified(c *httpapi.Call, result []byte) error {
	r, err := a.readCurrentRun(c)
	if err != nil {
		return err
	}
	o, err := r.contract.VerifyResult(c.Context(), r.job, result)
	if err != nil {
		return err
	}
	return a.finishRun(c, verified(o))
}

// POST /worker/v1/runs/{run_id}/fail
func (a *Server) fail(c *httpapi.Call) error {
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

// finishWithoutBody is finishRun for routes whose body is an empty object, or none.
func (a *Server) finishWithoutBody(c *httpapi.Call, plan finishPlan) error {
	if _, err := readObject(c); err != nil {
		return err
	}
	return a.finishRun(c, plan)
}

// finishRun finishes a run, or starts it, and answers with the state of its job. A request that
// came with a lost run is answered RUN_LOST and changes nothing.
func (a *Server) finishRun(c *httpapi.Call, plan finishPlan) error {
	run, err := parseRunID(c.PathValue("run_id"))
	if err != nil {
		return err
	}
	p := &pendingFinish{run: run, plan: plan}
	after, err := a.Engine.FinishBy(c.Context(), engine.Run{Run: run}, a.decide(p))
	if p.current != nil && !errors.Is(err, errNeedsVerify) {
		logJob(c, p.current)
	}
	if err := a.finishError(p, err); err != nil {
		return err
	}
	sendStatus(c, after.ID.Key, p.current.contract.state(after.State))
	return nil
}
