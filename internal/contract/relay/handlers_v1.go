package relay

import (
	"net/http"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
)

// POST /v1/queues/jobs has no mode: one job is stored in mode unique, several in mode ignore
// (G-RL-22).
func (r *Relay) enqueueV1(c *httpapi.Call) error {
	batch, err := r.readJobs(c, v1)
	if err != nil {
		return err
	}
	mode := engine.Ignore
	if len(batch) == 1 {
		mode = engine.Unique
	}
	return r.submit(c, mode, batch)
}

// PUT /v1/queues/jobs replaces a running job by a new version of itself. The job is found by its
// queue and id. Like a requeue of version 2 it is accepted and changes nothing if that job is not
// running.
func (r *Relay) rescheduleV1(c *httpapi.Call) error {
	s, err := readJob(c, v1)
	if err != nil {
		return err
	}
	batch := []engine.Submission{s}
	err = r.Engine.RequeueJob(c.Context(), s.Job.ID, engine.Replace, batch)
	return r.sendRequeued(c, s.Job.ID, batch, err)
}

// GET /v1/queues/{queue}/jobs?num_jobs=
func (r *Relay) nextV1(c *httpapi.Call) error { return r.sendClaimed(c, appendJobV1) }

// PATCH /v1/queues/{queue}/jobs/{id} extends the lease of the job's current attempt; 404 if it
// has none.
func (r *Relay) heartbeatV1(c *httpapi.Call) error {
	state, err := readState(c)
	if err != nil {
		return err
	}
	id := pathJobID(c)
	if err := r.Engine.HeartbeatJob(c.Context(), id, state); err != nil {
		return err
	}
	r.metrics.existingQueue(id.Scope).heartbeats.Inc()
	c.WriteHeader(http.StatusAccepted)
	return nil
}

// GET /v1/queues/{queue}/jobs/{id}
func (r *Relay) getJobV1(c *httpapi.Call) error { return r.sendOne(c, appendJobV1) }
