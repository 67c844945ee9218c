package taskflow

import (
	"errors"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

func idOf(key string) job.ID { return job.ID{Contract: Name, Key: key} }

func idsOf(keys []string) []job.ID {
	all := make([]job.ID, len(keys))
	for i, key := range keys {
		all[i] = idOf(key)
	}
	return all
}

// jobID reads the job of the path: what is no UUID names none (G-TF-22).
func jobID(c *httpapi.Call) (job.ID, error) {
	key, ok := parseUUID(c.Member("job_id"))
	if !ok {
		return job.ID{}, notFound
	}
	return idOf(key), nil
}

func sendJob(c *httpapi.Call, status int, j *job.Job) error {
	o := begin(make([]byte, 0, 512+len(j.Payload)))
	appendJob(&o, j)
	c.Send(status, httpapi.JSON, o.end())
	return nil
}

// POST /api/v1/jobs
func (t *TaskFlow) create(c *httpapi.Call) error {
	text, err := body(c, t.BodyLimit)
	if err != nil {
		return err
	}
	if err := checkObject(text); err != nil {
		return err
	}
	s, err := readSpec(text)
	if err != nil {
		return err
	}
	if err := s.complete(); err != nil {
		return err
	}
	submission := t.submission(&s, t.ids.next(1)[0])
	ctx := c.Request.Context()
	if _, err := t.engine.Submit(ctx, engine.Unique, []engine.Submission{submission}); err != nil {
		return unknownDependency(err)
	}
	j, err := t.engine.Get(ctx, submission.Job.ID)
	if err != nil {
		return err
	}
	return sendJob(c, http.StatusCreated, j)
}

// submission is a new job as the engine takes it.
func (t *TaskFlow) submission(s *spec, key string) engine.Submission {
	d := definition{s.name, s.dependencies}
	return engine.Submission{
		Job: job.Job{ID: idOf(key), Kind: s.policy.kind(), Queue: s.queue, Priority: s.priority, Lease: t.Lease, RunLimit: s.policy.MaxAttempts,
			Definition: d.encode(), Payload: s.payload},
		DependsOn: idsOf(s.dependencies),
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
	id, err := jobID(c)
	if err != nil {
		return err
	}
	j, err := t.engine.Get(c.Request.Context(), id)
	if err != nil {
		return err
	}
	return sendJob(c, http.StatusOK, j)
}

// PUT /api/v1/jobs/{job_id}
func (t *TaskFlow) update(c *httpapi.Call) error {
	text, err := body(c, t.BodyLimit)
	if err != nil {
		return err
	}
	id, err := jobID(c)
	if err != nil {
		return err
	}
	var s spec
	broken := checkObject(text)
	if broken == nil {
		s, broken = readSpec(text)
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
		j, err = t.engine.Relink(c.Request.Context(), id, idsOf(s.dependencies), edit)
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
func (s *spec) apply(j *job.Job) error {
	if err := s.keepsOwned(j); err != nil {
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
		if s.policy.MaxAttempts < j.Failures {
			return invalid("retry_policy.max_attempts is %d, and %d attempts have failed already", s.policy.MaxAttempts, j.Failures)
		}
		j.Kind, j.RunLimit = s.policy.kind(), s.policy.MaxAttempts
	}
	j.Definition = d.encode()
	return nil
}

// DELETE /api/v1/jobs/{job_id}
func (t *TaskFlow) remove(c *httpapi.Call) error {
	id, err := jobID(c)
	if err != nil {
		return err
	}
	if err := t.engine.Remove(c.Request.Context(), id); err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// mostNodes is how much of a graph is shown (G-TF-36).
const mostNodes = 2000

// GET /api/v1/jobs/{job_id}/graph
func (t *TaskFlow) graph(c *httpapi.Call) error {
	id, err := jobID(c)
	if err != nil {
		return err
	}
	jobs, edges, truncated, err := t.engine.Graph(c.Request.Context(), id, mostNodes)
	if err != nil {
		return err
	}
	keys := make(map[int64]string, len(jobs))
	o := begin(make([]byte, 0, 256+192*len(jobs)+96*len(edges)))
	o.array("nodes", len(jobs), func(i int, o *object) {
		j := jobs[i]
		keys[j.Seq] = j.ID.Key
		o.text("job_id", j.ID.Key)
		o.text("name", decodeDefinition(j.Definition).name)
		o.text("queue", j.Queue)
		o.text("status", string(j.State))
		o.number("priority", j.Priority)
		o.number("attempt_count", attemptCount(j))
	})
	o.array("edges", len(edges), func(i int, o *object) {
		o.text("from", keys[edges[i].Dependency])
		o.text("to", keys[edges[i].Dependent])
	})
	if truncated {
		o.raw("truncated", "true")
	}
	c.Send(http.StatusOK, httpapi.JSON, o.end())
	return nil
}

// POST /api/v1/graphs
func (t *TaskFlow) createGraph(c *httpapi.Call) error {
	text, err := body(c, t.GraphBodyLimit)
	if err != nil {
		return err
	}
	nodes, err := readGraph(text)
	if err != nil {
		return err
	}
	ids := t.ids.next(len(nodes))
	byRef, err := resolve(nodes, ids)
	if err != nil {
		return err
	}
	batch := make([]engine.Submission, len(nodes))
	for i := range nodes {
		batch[i] = t.submission(&nodes[i].spec, ids[i])
	}
	if _, err := t.engine.Submit(c.Request.Context(), engine.Unique, batch); err != nil {
		return unknownDependency(inRefs(err, byRef))
	}
	o := begin(make([]byte, 0, 64*len(nodes)))
	o.object("jobs", func(o *object) {
		for i := range nodes {
			o.text(nodes[i].ref, ids[i])
		}
	})
	c.Send(http.StatusCreated, httpapi.JSON, o.end())
	return nil
}

// inRefs names the jobs of a cycle as the caller knows them: nothing was stored, so
// their ids say nothing.
func inRefs(err error, byRef map[string]string) error {
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
