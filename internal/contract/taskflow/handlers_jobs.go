package taskflow

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
)

// engineJobID returns the identity of a job by its id. TaskFlow has no scopes.
func engineJobID(key string) job.ID { return job.ID{JobType: Name, Key: key} }

// engineJobIDs is engineJobID for a list, in its order.
func engineJobIDs(keys []string) []job.ID {
	all := make([]job.ID, len(keys))
	for i, key := range keys {
		all[i] = engineJobID(key)
	}
	return all
}

// pathJobID reads the id in the path. A text that is no UUID names no job (G-TF-22).
func pathJobID(c *httpapi.Call) (job.ID, error) {
	key, ok := uuids.Parse(c.PathValue("job_id"))
	if !ok {
		return job.ID{}, notFound("job")
	}
	return engineJobID(key), nil
}

// sendJob answers with a job, whose definition is d, without the outcome of its attempts.
func sendJob(c *httpapi.Call, status int, j *job.Job, d *definition) error {
	o := strictjson.NewObject(make([]byte, 0, 512+len(j.Payload)))
	appendJob(&o, j, d)
	c.Send(status, httpapi.JSON, o.End())
	return nil
}

// POST /api/v1/jobs stores one job. The engine evaluates its dependencies in the same transaction,
// so the answer shows it as READY, BLOCKED or PENDING (TF-032).
func (t *TaskFlow) submitJob(c *httpapi.Call) error {
	text, err := readBody(c)
	if err != nil {
		return err
	}
	s, err := t.readCreate(text)
	if err != nil {
		return err
	}
	once, err := t.idempotencyOf(c, text)
	if err != nil {
		return err
	}
	ctx, d := c.Context(), definition{name: s.name, dependencies: s.dependencies}
	made, err := t.Engine.SubmitOnce(ctx, once,
		[]engine.Submission{t.submission(ctx, &s, &d, t.ids.Next(1)[0])})
	if err != nil {
		return unknownDependency(err)
	}
	if made.Existed {
		return t.sendStored(c, engineJobID(made.Keys[0]))
	}
	// The job is not loaded afresh: by now it may be running, or deleted.
	return sendJob(c, http.StatusCreated, made.Job, &d)
}

// submission returns a new job in the engine's terms. The trace of the request is stored with the
// job, so that its attempts appear in it on any node.
func (t *TaskFlow) submission(ctx context.Context, s *jobSpec, d *definition,
	key string) engine.Submission {
	return engine.Submission{
		Job: job.Job{
			ID:          engineJobID(key),
			Queue:       s.queue,
			Priority:    s.priority,
			Lease:       t.Lease,
			MaxAttempts: s.policy.MaxAttempts,
			Retry:       s.policy.retry(),
			Definition:  d.encode(),
			Payload:     s.payload,
			Trace:       telemetry.Carrier(ctx),
			Callback:    s.callback,
		},
		DependsOn: engineJobIDs(s.dependencies),
	}
}

// unknownDependency turns "not found" into a validation error: the job that is missing is a
// dependency (TF-008, G-TF-03). Where no job is named something else is missing, such as the dead
// letter that is replayed.
func unknownDependency(err error) error {
	var e *job.Error
	if errors.As(err, &e) && e.Kind == job.NotFound && e.ID.Key != "" {
		return invalid("dependencies: there is no job %s", e.ID.Key)
	}
	return err
}

// GET /api/v1/jobs/{job_id} answers with the job, and with the result or the last error of its
// attempts.
func (t *TaskFlow) getJob(c *httpapi.Call) error {
	id, err := pathJobID(c)
	if err != nil {
		return err
	}
	return t.sendStored(c, id)
}

// sendStored answers with a job as it is now, and with the outcome of its attempts.
func (t *TaskFlow) sendStored(c *httpapi.Call, id job.ID) error {
	j, err := t.Engine.Get(c.Context(), id)
	if err != nil {
		return err
	}
	copies, err := t.copiesOf(c.Context(), keysOfRerunnable([]*job.Job{j}))
	if err != nil {
		return err
	}
	o := strictjson.NewObject(make([]byte, 0, 512+len(j.Payload)+len(j.Result)))
	appendStoredJob(&o, j)
	appendOutcome(&o, j)
	appendCopy(&o, copies[id.Key])
	c.Send(http.StatusOK, httpapi.JSON, o.End())
	return nil
}

// PUT /api/v1/jobs/{job_id} changes a job that is not done. The edit is called with the locked job
// in the transaction, perhaps more than once, and so decides by the status that the job has then.
// An attempt that is running keeps the payload with which it was started (G-TF-08).
func (t *TaskFlow) updateJob(c *httpapi.Call) error {
	text, err := readBody(c)
	if err != nil {
		return err
	}
	id, err := pathJobID(c)
	if err != nil {
		return err
	}
	s, bodyErr := readUpdate(text)
	var d definition
	edit := func(j *job.Job, _ time.Time) (err error) {
		if terminal(j.State) { // whatever the body is (G-TF-34)
			return conflict("the job is %s, which is final", j.State)
		}
		if bodyErr != nil {
			return bodyErr
		}
		d, err = s.apply(j)
		return err
	}
	var j *job.Job
	if s.has("dependencies") { // G-TF-09
		j, err = t.Engine.SetDependencies(c.Context(), id, engineJobIDs(s.dependencies),
			edit)
	} else {
		j, err = t.Engine.Change(c.Context(), id, job.Replaced, edit)
	}
	var e *job.Error
	if errors.As(err, &e) && e.ID != id { // not the job of the path
		err = unknownDependency(err)
	}
	if err != nil {
		return err
	}
	return sendJob(c, http.StatusOK, j, &d)
}

// readUpdate reads the body of an update. With an error the spec has no members.
func readUpdate(text []byte) (jobSpec, error) {
	if err := checkObject(text); err != nil {
		return jobSpec{}, err
	}
	s, err := readSpec(text, &jobNames)
	if err != nil {
		return jobSpec{}, err
	}
	return s, nil
}

// apply changes the members of a job that the update names and leaves the others (G-TF-06). It
// returns the definition that the job has then. After an error the job may be changed in part; the
// engine then stores nothing of it.
func (s *jobSpec) apply(j *job.Job) (d definition, err error) {
	if err := s.checkReadOnly(j); err != nil {
		return d, err
	}
	d = decodeDefinition(j.Definition)
	if s.has("name") {
		d.name = s.name
	}
	if s.has("queue") {
		j.Queue = s.queue
	}
	if s.has("payload") {
		j.Payload = s.payload
	}
	if s.has("priority") {
		j.Priority = s.priority
	}
	if s.has("dependencies") {
		d.dependencies = s.dependencies
	}
	if s.has("retry_policy") {
		// The current or next attempt comes on top of the failed ones (TF-066).
		if s.policy.MaxAttempts <= j.FailedAttempts {
			return d, invalid("retry_policy.max_attempts is %d, and %d attempts have failed "+
				"already: with the one to come it is %d or more",
				s.policy.MaxAttempts, j.FailedAttempts, j.FailedAttempts+1)
		}
		j.MaxAttempts, j.Retry = s.policy.MaxAttempts, s.policy.retry()
	}
	j.Definition = d.encode()
	return d, nil
}

// DELETE /api/v1/jobs/{job_id} deletes a job. A running attempt loses its run, and its outcome is
// refused (G-TF-19). A job that another one lists as a dependency is a conflict, whatever the
// status of either (TF-083, G-TF-20), unless cascade=true asks for those to be deleted too; then a
// RUNNING one of them is a conflict (RT-001).
func (t *TaskFlow) deleteJob(c *httpapi.Call) error {
	id, err := pathJobID(c)
	if err != nil {
		return err
	}
	cascade, _, err := c.Query("cascade")
	if err != nil {
		return err
	}
	switch cascade {
	case "true":
		err = t.removeWithDependents(c.Context(), id)
	case "", "false":
		err = t.removeJob(c.Context(), id)
	default:
		err = invalid("cascade must be true or false")
	}
	if err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// POST /api/v1/jobs/{job_id}/cancel ends the attempt of a job that is RUNNING: the job is FAILED
// for good, and the worker's outcome is refused. In any other status it is a conflict (RT-001).
func (t *TaskFlow) cancelJob(c *httpapi.Call) error {
	if err := readNothing(c); err != nil {
		return err
	}
	id, err := pathJobID(c)
	if err != nil {
		return err
	}
	j, err := t.Engine.Change(c.Context(), id, job.Canceled, cancelRun)
	if err != nil {
		return err
	}
	return t.sendStored(c, j.ID)
}

// cancelRun is the edit of a cancel.
func cancelRun(j *job.Job, _ time.Time) error {
	if j.State != Running {
		return conflict("the job is %s; only a job that is RUNNING can be canceled", j.State)
	}
	j.Failure = encodeFailure(canceledMessage, typeCanceled, false)
	return nil
}

// GET /api/v1/jobs answers with a page. It begins after the position in the cursor and not at an
// offset, so jobs that are created or deleted meanwhile neither repeat a job nor leave one out
// (TF-101).
func (t *TaskFlow) listJobs(c *httpapi.Call) error {
	s, matchesNone, err := readSearch(c.Request.URL.RawQuery)
	if err != nil {
		return err
	}
	limit := s.Limit
	var jobs []*job.Job
	if !matchesNone {
		s.Limit++ // to know whether there are more
		if jobs, err = t.Engine.Search(c.Context(), s); err != nil {
			return err
		}
	}
	copies, err := t.copiesOf(c.Context(), keysOfRerunnable(jobs))
	if err != nil {
		return err
	}
	return httpapi.SendPage(c, cursors, limit, jobs, func(j *job.Job) httpapi.Position {
		return httpapi.Position{At: j.CreatedAt, ID: j.ID.Key}
	}, func(o *strictjson.Object, j *job.Job) {
		appendStoredJob(o, j)
		appendCopy(o, copies[j.ID.Key])
	})
}
