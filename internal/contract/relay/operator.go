package relay

import (
	"context"
	"net/url"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// operators says what operators may do with jobs. A released job has used up no attempt.
func (r *Relay) operators() []contract.Operator {
	return []contract.Operator{{JobType: Name, IDsOfQueues: true, HasNoKinds: true,
		Submit: r.submitFor, Check: r.checkFor, Replay: r.replayDead,
		Example: contract.Request{Body: []byte(
			`{"id":"report","queue":"mail","timeout":60,"payload":{"to":"you"}}`)},
		Path: jobURL, Answer: r.errors.Answer, Events: eventTypes,
		Actions: []contract.Action{
			{Name: contract.ActionRerun, States: []job.State{job.StateNone}, Do: r.replayDead},
			contract.RunNow(r.Engine),
			contract.Release(r.Engine, running),
			{Name: contract.ActionDelete, States: []job.State{queued, running},
				Do: func(ctx context.Context, j *job.Job) (*job.Job, error) {
					return r.removeJob(ctx, j.ID)
				}},
		}}}
}

// jobURL is the path of a job.
func jobURL(j *job.Job) string {
	return "/v2/queues/" + url.PathEscape(j.ID.Scope) + "/jobs/" + url.PathEscape(j.ID.Key)
}

// readFor reads and validates a request of an operator: one object of the list that a producer
// sends (G-AD-09).
func (r *Relay) readFor(ctx context.Context, q contract.Request) (s engine.Submission,
	err error) {
	if q.Owner != "" {
		return s, invalid("owner: the jobs of Relay have none")
	}
	if err := strictjson.Check(q.Body); err != nil {
		return s, malformed("the request is not JSON: %v", err)
	}
	if err := decodeJob(q.Body, v2, "", &s.Job); err != nil {
		return s, err
	}
	s.Job.Trace = telemetry.Carrier(ctx)
	return s, r.encodeCallback(&s.Job)
}

// submitFor submits a job by the rules of POST /v2/queues/jobs in mode unique (AD-017).
func (r *Relay) submitFor(ctx context.Context, q contract.Request) (*job.Job, error) {
	s, err := r.readFor(ctx, q)
	if err != nil {
		return nil, err
	}
	var once engine.Idempotency
	if q.Key != "" {
		once.Alias = job.AliasOf(Name, "operator", q.Key)
	}
	return r.submitOnce(ctx, once, s)
}

// submitOnce stores one job and counts it.
func (r *Relay) submitOnce(ctx context.Context, once engine.Idempotency,
	s engine.Submission) (*job.Job, error) {
	batch := []engine.Submission{s}
	made, err := r.Engine.SubmitOnce(ctx, once, batch)
	if err != nil || made.Existed {
		return made.Job, err
	}
	r.metrics.countSubmitted(batch, nil)
	return made.Job, nil
}

// checkFor checks a request as submitFor does, apart from whether its id is in use.
func (r *Relay) checkFor(ctx context.Context, q contract.Request) error {
	_, err := r.readFor(ctx, q)
	return err
}

// replayDead enqueues the job of a dead letter again, as its producer had: with its identity, and
// with all of its attempts. It is a Conflict while another job has the identity.
func (r *Relay) replayDead(ctx context.Context, dead *job.Job) (*job.Job, error) {
	s := engine.Submission{Job: *dead}
	s.Job.Alias = job.IdentityHash{}
	return r.submitOnce(ctx, engine.Idempotency{}, s)
}
