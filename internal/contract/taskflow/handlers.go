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

func engineJobID(key string) job.ID { return job.ID{Contract: Name, Key: key} }

func engineJobIDs(keys []string) []job.ID {
	all := make([]job.ID, len(keys))
	for i, key := range keys {
		all[i] = engineJobID(key)
	}
	return all
}

// pathJobID reads the job of the path: what is no UUID names none (G-TF-22).
func pathJobID(c *httpapi.Call) (job.ID, error) {
	key, ok := uuids.Parse(c.PathValue("job_id"))
	if !ok {
		return job.ID{}, errNotFound
	}
	return engineJobID(key), nil
}

func sendJob(c *httpapi.Call, status int, j *job.Job) error {
	o := strictjson.NewObject(make([]byte, 0, 512+len(j.Payload)))
	appendJob(&o, j)
	c.Send(status, httpapi.JSON, o.End())
	return nil
}

// POST /api/v1/jobs
func (t *TaskFlow) create(c *httpapi.Call) error {
	text, err := readBody(c)
	if err != nil {
		return err
	}
	if err := checkObject(text); err != nil {
		return err
	}
	s, err := readSpec(text, &jobNames)
	if err != nil {
		return err
	}
	if err := s.complete(); err != nil {
		return err
	}
	ctx := c.Request.Context()
	receipt, err := t.engine.Submit(ctx, engine.Unique,
		[]engine.Submission{t.submission(ctx, &s, t.ids.Next(1)[0])})
	if err != nil {
		return unknownDependency(err)
	}
	// not read again: it may be running by now, or gone
	return sendJob(c, http.StatusCreated, receipt.Jobs[0])
}

// submission is a new job as the engine takes it.
func (t *TaskFlow) submission(ctx context.Context, s *jobSpec, key string) engine.Submission {
	d := definition{s.name, s.dependencies}
	return engine.Submission{
		Job: job.Job{ID: engineJobID(key), Kind: s.policy.kind(), Queue: s.queue,
			Priority: s.priority, Lease: t.Lease, MaxAttempts: s.policy.MaxAttempts,
			Definition: d.encode(), Payload: s.payload, Trace: telemetry.Carrier(ctx)},
		DependsOn: engineJobIDs(s.dependencies),
	}
}

// unknownDependency makes of a job that was not found what it is in a list of
// dependencies: a broken rule (TF-008, G-TF-03).
func unknownDependency(err error) error {
	var e *job.Error
	if errors.As(err, &e) && e.Kind == job.NotFound {
		return invalid("dependencies: there is no job %s", e.ID.Key)
	}
	return err
}

// GET /api/v1/jobs/{job_id}
func (t *TaskFlow) get(c *httpapi.Call) error {
	id, err := pathJobID(c)
	if err != nil {
		return err
	}
	j, err := t.engine.Get(c.Request.Context(), id)
	if err != nil {
		return err
	}
	o := strictjson.NewObject(make([]byte, 0, 512+len(j.Payload)+len(j.Result)))
	appendJob(&o, j)
	appendOutcome(&o, j)
	c.Send(http.StatusOK, httpapi.JSON, o.End())
	return nil
}

// PUT /api/v1/jobs/{job_id}
func (t *TaskFlow) update(c *httpapi.Call) error {
	text, err := readBody(c)
	if err != nil {
		return err
	}
	id, err := pathJobID(c)
	if err != nil {
		return err
	}
	var s jobSpec
	broken := checkObject(text)
	if broken == nil {
		s, broken = readSpec(text, &jobNames)
	}
	edit := func(j *job.Job, _ time.Time) error {
		if terminal(j.State) { // before the body is judged (G-TF-34)
			return conflict("the job is %s, which is final", j.State)
		}
		if broken != nil {
			return broken
		}
		return s.apply(j)
	}
	var j *job.Job
	if broken == nil && s.has("dependencies") { // G-TF-09
		j, err = t.engine.SetDependencies(c.Request.Context(), id, engineJobIDs(s.dependencies),
			edit)
	} else {
		j, err = t.engine.Change(c.Request.Context(), id, job.Replaced, edit)
	}
	var e *job.Error
	if errors.As(err, &e) && e.ID != id { // not the job of the path
		err = unknownDependency(err)
	}
	if err != nil {
		return err
	}
	return sendJob(c, http.StatusOK, j)
}

// apply changes a job in what the update names; the rest stays (G-TF-06).
func (s *jobSpec) apply(j *job.Job) error {
	if err := s.checkReadOnly(j); err != nil {
		return err
	}
	d := decodeDefinition(j.Definition)
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
		// the run to come, or under way, is one more (TF-066)
		if s.policy.MaxAttempts <= j.FailedAttempts {
			return invalid("retry_policy.max_attempts is %d, and %d attempts have failed "+
				"already: with the one to come it is %d or more",
				s.policy.MaxAttempts, j.FailedAttempts, j.FailedAttempts+1)
		}
		j.Kind, j.MaxAttempts = s.policy.kind(), s.policy.MaxAttempts
	}
	j.Definition = d.encode()
	return nil
}

// DELETE /api/v1/jobs/{job_id}
func (t *TaskFlow) remove(c *httpapi.Call) error {
	id, err := pathJobID(c)
	if err != nil {
		return err
	}
	if err := t.engine.Remove(c.Request.Context(), id); err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// maxShownNodes is how much of a graph is shown (G-TF-36).
const maxShownNodes = 2000

// GET /api/v1/jobs/{job_id}/graph
func (t *TaskFlow) graph(c *httpapi.Call) error {
	id, err := pathJobID(c)
	if err != nil {
		return err
	}
	jobs, edges, truncated, err := t.engine.Graph(c.Request.Context(), id, maxShownNodes)
	if err != nil {
		return err
	}
	keys := make(map[int64]string, len(jobs))
	o := strictjson.NewObject(make([]byte, 0, 256+192*len(jobs)+96*len(edges)))
	o.Objects("nodes", len(jobs), func(i int, o *strictjson.Object) {
		j := jobs[i]
		keys[j.Seq] = j.ID.Key
		o.Text("job_id", j.ID.Key)
		o.Text("name", decodeDefinition(j.Definition).name)
		o.Text("queue", j.Queue)
		o.Text("status", string(j.State))
		o.Int("priority", int64(j.Priority))
		o.Int("attempt_count", int64(attemptCount(j)))
	})
	o.Objects("edges", len(edges), func(i int, o *strictjson.Object) {
		o.Text("from", keys[edges[i].Dependency])
		o.Text("to", keys[edges[i].Dependent])
	})
	if truncated {
		o.Bool("truncated", true)
	}
	c.Send(http.StatusOK, httpapi.JSON, o.End())
	return nil
}

// POST /api/v1/graphs
func (t *TaskFlow) createGraph(c *httpapi.Call) error {
	text, err := readBody(c)
	if err != nil {
		return err
	}
	nodes, err := readGraph(text)
	if err != nil {
		return err
	}
	ids := t.ids.Next(len(nodes))
	byRef, err := resolveRefs(nodes, ids)
	if err != nil {
		return err
	}
	batch := make([]engine.Submission, len(nodes))
	for i := range nodes {
		batch[i] = t.submission(c.Request.Context(), &nodes[i].jobSpec, ids[i])
	}
	if _, err := t.engine.Submit(c.Request.Context(), engine.Unique, batch); err != nil {
		return unknownDependency(cycleInRefs(err, byRef))
	}
	o := strictjson.NewObject(make([]byte, 0, 64*len(nodes)))
	o.Object("jobs", func(o *strictjson.Object) {
		for i := range nodes {
			o.Text(nodes[i].ref, ids[i])
		}
	})
	c.Send(http.StatusCreated, httpapi.JSON, o.End())
	return nil
}

// cycleInRefs names the jobs of a cycle as the caller knows them: nothing was stored, so
// their ids say nothing.
func cycleInRefs(err error, byRef map[string]string) error {
	var e *job.Error
	if !errors.As(err, &e) || e.Kind != job.Cycle {
		return err
	}
	refs := make(map[string]string, len(byRef))
	for ref, id := range byRef {
		refs[id] = ref
	}
	told := *e
	told.Path = nil
	for _, id := range e.Path {
		told.Path = append(told.Path, refs[id])
	}
	return &told
}
