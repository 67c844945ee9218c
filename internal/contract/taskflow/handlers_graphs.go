package taskflow

import (
	"errors"
	"net/http"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// A graph is submitted as a whole: its jobs name each other by refs, which mean something within
// the request alone, and get ids when all of them are stored, or none. It is read from any of its
// jobs, by which it is found in both directions.

// maxShownNodes is how many jobs of a graph an answer shows (G-TF-36).
const maxShownNodes = 2000

// GET /api/v1/jobs/{job_id}/graph answers with the jobs that are connected with a job in either
// direction, nearest first, and with the edges between those that are shown. An edge points from
// the dependency to its dependent (G-TF-36).
func (t *TaskFlow) getGraph(c *httpapi.Call) error {
	id, err := pathJobID(c)
	if err != nil {
		return err
	}
	jobs, edges, truncated, err := t.Engine.Graph(c.Context(), id, maxShownNodes)
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

// POST /api/v1/graphs answers with the id of each ref. Of the errors of the engine, that of an
// unknown job is about an id in depends_on, as in a create.
func (t *TaskFlow) submitGraph(c *httpapi.Call) error {
	text, err := readBody(c)
	if err != nil {
		return err
	}
	nodes, err := readGraph(text)
	if err != nil {
		return err
	}
	once, err := t.idempotencyOf(c, text)
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
		s := &nodes[i].jobSpec
		if err := t.encodeCallback(s); err != nil {
			return err
		}
		d := definition{name: s.name, dependencies: s.dependencies}
		batch[i] = t.submission(c.Context(), s, &d, ids[i])
	}
	made, err := t.Engine.SubmitOnce(c.Context(), once, batch)
	if err != nil {
		return unknownDependency(cycleInRefs(err, byRef))
	}
	status := http.StatusCreated
	if made.Existed { // a repeated request has the same jobs in the same order
		ids, status = made.Keys, http.StatusOK
	}
	o := strictjson.NewObject(make([]byte, 0, 64*len(nodes)))
	o.Object("jobs", func(o *strictjson.Object) {
		for i := range nodes {
			o.Text(nodes[i].ref, ids[i])
		}
	})
	c.Send(status, httpapi.JSON, o.End())
	return nil
}

// cycleInRefs replaces the ids in the path of a dependency cycle by refs. Nothing was stored, so
// the caller has never received the ids. Each job of the cycle is new and has a ref: no stored job
// can depend on a new one.
func cycleInRefs(err error, byRef map[string]string) error {
	var e *job.Error
	if !errors.As(err, &e) || e.Kind != job.Cycle {
		return err
	}
	refs := make(map[string]string, len(byRef))
	for ref, id := range byRef {
		refs[id] = ref
	}
	withRefs := *e
	withRefs.Path = nil
	for _, id := range e.Path {
		withRefs.Path = append(withRefs.Path, refs[id])
	}
	return &withRefs
}
