package forgerun

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
)

// engineJobID returns the engine's id of a job.
func engineJobID(key string) job.ID { return job.ID{JobType: Name, Key: key} }

// pathJobID reads the id in the path. A text that is no UUID names no job (G-FR-46).
func pathJobID(c *httpapi.Call) (job.ID, error) {
	key, ok := uuids.Parse(c.PathValue("job_id"))
	if !ok {
		return job.ID{}, notFound("job")
	}
	c.AddAttrs(slog.String(telemetry.JobID, key))
	return engineJobID(key), nil
}

// ownJob loads the job of the path, which must be the client's (FR-033). The job of another client
// is answered with 403 (G-FR-10).
func (f *ForgeRun) ownJob(c *httpapi.Call) (*job.Job, error) {
	id, err := pathJobID(c)
	if err != nil {
		return nil, err
	}
	j, err := f.Engine.Get(c.Context(), id)
	if err != nil {
		return nil, notFoundAs(err, "job")
	}
	if j.Owner != clientID(c) {
		return nil, errForbidden
	}
	return j, nil
}

// notFoundAs gives a "not found" error the name of the thing that is missing.
func notFoundAs(err error, what string) error {
	if job.IsKind(err, job.NotFound) {
		return notFound(what)
	}
	return err
}

// maxSubmitAttempts is how often a submit is tried: an id that is drawn may exist.
const maxSubmitAttempts = 5

// POST /v1/jobs: stores a job and answers 202, also if a request with the same idempotency key has
// stored it before (FR-056, FR-067).
//
//	parseSubmission ─── malformed ─► 400
//	       ▼
//	validateSubmission ── invalid ─► repeatedOr: 400, or the job that the key has already
//	       ▼
//	SubmitOnce ─┬─ stored                              202 with CREATED
//	            ├─ stored before, by the same payload  202 with its present state
//	            └─ stored before, by another payload   409
//
// Job, event and idempotency key are one transaction (FR-080). An id that exists is drawn again.
func (f *ForgeRun) submitJob(c *httpapi.Call) error {
	s, err := parseSubmission(c.Content)
	if err != nil {
		return err
	}
	key := s.key
	if key == "" { // FR-066
		if key, err = idempotencyKeyHeader(c.Request.Header); err != nil {
			return err
		}
	}
	once := s.once(clientID(c), key)
	now := f.Now()
	k, err := f.validateSubmission(&s, now)
	if err != nil {
		return f.repeatedOr(c, once, err)
	}
	made, err := f.store(c.Context(), once, f.newJob(c.Context(), clientID(c), &s, k, now))
	j := made.Job
	switch {
	case err != nil:
		return f.countKeyReuse(c, err)
	case made.Existed:
		return f.sendRepeated(c, j)
	}
	c.AddAttrs(slog.String(telemetry.JobID, j.ID.Key))
	f.metrics.idempotencyNew.Inc()
	f.scheduleCancelWindow(c.Context(), j.ID, k, &s)
	return sendSubmitted(c, j, created)
}

// store stores a job under an id that it draws, or finds the one that the same request has made.
func (f *ForgeRun) store(ctx context.Context, once engine.Idempotency, j job.Job) (engine.Submitted,
	error) {
	batch := []engine.Submission{{Job: j}}
	for range maxSubmitAttempts {
		batch[0].Job.ID = engineJobID(uuids.New(4, f.Random()).String())
		made, err := f.Engine.SubmitOnce(ctx, once, batch)
		if !job.IsKind(err, job.Conflict) || errors.Is(err, engine.ErrKeyReused) {
			return made, err
		} // else the id exists: that job is not this request's (FR-201)
	}
	return engine.Submitted{}, &job.Error{Kind: job.Unavailable, Op: "forgerun.submit",
		Msg: "the job could not be given an id"}
}

// once identifies a submission by its idempotency key. A request with the same key repeats it if it
// has the same payload (FR-067 to FR-069). A request without a key is repeated by none (G-FR-23).
// The key is remembered as long as its job exists (FR-071).
func (s *submission) once(clientID, key string) engine.Idempotency {
	if key == "" {
		return engine.Idempotency{}
	}
	spec := s.jobSpec
	alias := job.AliasOf(Name, clientID, key)
	return engine.Idempotency{Alias: alias, IsSame: func(j *job.Job) bool {
		return decodeJobSpec(j.Payload).equal(spec)
	}}
}

// validateSubmission checks a submission and returns its kind, which it chooses if the client has
// named none.
func (f *ForgeRun) validateSubmission(s *submission, now time.Time) (*kind, error) {
	if err := s.check(f.Types, now); err != nil {
		return nil, err
	}
	k := kindByName[s.kind]
	if k == nil {
		k = f.rules.choose(now.UnixMilli())
	}
	if size := k.outputKiB << 10; size > f.PayloadLimit { // FR-082
		return nil, invalid("payload_size of work_kind %s is %d bytes, and a job may have %d",
			k.name, size, f.PayloadLimit)
	}
	return k, nil
}

// newJob returns the job of a submission, without an id. MaxAttempts is the first attempt and the
// retries. The engine makes a job without execution_at due at once, in the transaction of the
// submit.
func (f *ForgeRun) newJob(ctx context.Context, owner string, s *submission, k *kind,
	now time.Time) job.Job {
	d := f.rules.define(k, s.executionAt, s.callback, now.UnixMilli())
	j := job.Job{
		Kind:        k.name,
		Queue:       queue,
		Owner:       owner,
		DueAt:       s.executionAt,
		Lease:       f.Lease,
		MaxAttempts: f.MaxRetries + 1,
		Definition:  d.encode(),
		Payload:     s.jobSpec.encode(),
		Trace:       telemetry.Carrier(ctx),
	}
	if f.hasCancelWindow(k, s) {
		j.DueAt = now.Add(f.CancelWindow)
	}
	return j
}

// scheduleCancelWindow queues a job of the kind CANCEL_BEFORE_START at once although it is due only
// at the end of its cancel window: so a client can cancel it while it is QUEUED, and no worker can
// claim it before (G-FR-32). If that fails the job is queued when it is due.
func (f *ForgeRun) scheduleCancelWindow(ctx context.Context, id job.ID, k *kind,
	s *submission) {
	if !f.hasCancelWindow(k, s) {
		return
	}
	if _, err := f.Engine.Change(ctx, id, job.Due, nil); err != nil {
		f.Log.Log(ctx, outage.Level(slog.LevelWarn, err),
			"a job could not be queued before its cancel window ends", telemetry.RequestID,
			requestIDFrom(ctx), telemetry.JobID, id.Key, telemetry.ErrorMessage, err)
	}
}

// hasCancelWindow reports whether a job cannot be claimed before its cancel window has ended. A
// scheduled job has none: it can be canceled until its time comes.
func (f *ForgeRun) hasCancelWindow(k *kind, s *submission) bool {
	return f.CancelWindow > 0 && k.name == cancelBeforeStart && s.executionAt.IsZero()
}

// repeatedOr answers an invalid request. If it repeats a request that was valid before, such as
// one whose execution_at has passed meanwhile, it is answered like that one.
func (f *ForgeRun) repeatedOr(c *httpapi.Call, once engine.Idempotency, ruleErr error) error {
	j, err := f.Engine.FindSubmitted(c.Context(), once)
	if err != nil {
		err = f.countKeyReuse(c, err)
		if errors.Is(err, engine.ErrKeyReused) {
			return ruleErr
		}
		return err
	}
	if j == nil {
		return ruleErr
	}
	return f.sendRepeated(c, j)
}

// sendRepeated answers a request that repeats the one of a job (FR-067).
func (f *ForgeRun) sendRepeated(c *httpapi.Call, j *job.Job) error {
	c.AddAttrs(slog.String(telemetry.JobID, j.ID.Key))
	f.metrics.idempotencyHits.Inc()
	return sendSubmitted(c, j, j.State)
}

// countKeyReuse counts a request with the idempotency key of another one and returns the conflict
// that answers it (FR-068). It returns every other error as it is.
func (f *ForgeRun) countKeyReuse(c *httpapi.Call, err error) error {
	var other *job.Error
	if !errors.Is(err, engine.ErrKeyReused) || !errors.As(err, &other) {
		return err
	}
	c.AddAttrs(slog.String(telemetry.JobID, other.ID.Key))
	f.metrics.idempotencyConflicts.Inc()
	return &httpapi.CodedError{Code: codeIdempotency, Err: err,
		Detail: "the idempotency key belongs to a job with another payload"}
}

// sendSubmitted answers with a job in a state. A new job is answered as CREATED, in which it began.
// An instant job has left that state by then (G-FR-18).
func sendSubmitted(c *httpapi.Call, j *job.Job, state job.State) error {
	return sendObject(c, http.StatusAccepted, func(o *strictjson.Object) {
		o.Text("job_id", j.ID.Key)
		o.Text("state", string(state))
		o.Time("created_at", j.CreatedAt)
	})
}

// GET /v1/jobs/{job_id}: the job as it is now (FR-120). It changes nothing (FR-123).
func (f *ForgeRun) getJob(c *httpapi.Call) error {
	j, err := f.ownJob(c)
	if err != nil {
		return err
	}
	return sendObject(c, http.StatusOK, func(o *strictjson.Object) { appendJob(o, j) })
}

// maxReportAttempts is how often a report is read if a retry changes the job meanwhile.
const maxReportAttempts = 5

// GET /v1/jobs/{job_id}/report: the report of a final job, computed from the job and its history
// (FR-125). A retry withdraws it (G-FR-09).
func (f *ForgeRun) report(c *httpapi.Call) error {
	for range maxReportAttempts {
		j, err := f.ownJob(c)
		if err != nil {
			return err
		}
		if !final(j.State) { // FR-126, G-FR-09
			return &httpapi.CodedError{Code: codeNotFound,
				Detail: "the job is " + string(j.State) + " and has no report yet"}
		}
		history, err := f.Engine.History(c.Context(), j.ID)
		if err != nil {
			return notFoundAs(err, "job")
		}
		// If the job was retried between the two reads, they do not fit together.
		if n := len(history); n > 0 && history[n-1].At.Equal(j.FinishedAt) {
			return sendObject(c, http.StatusOK, func(o *strictjson.Object) {
				appendReport(o, j, eventsOf(j.ID.Key, history))
			})
		}
	}
	return &job.Error{Kind: job.Unavailable, Op: "forgerun.report", Msg: "the job keeps changing"}
}

// errUnchanged is returned by a decide function that leaves the job as it is.
var errUnchanged = errors.New("nothing to change")

// change makes a transition of a client's own job. decide is called with the job under its lock; if
// it returns errUnchanged, change returns the job as it is and no error. decide may be called more
// than once, when the store repeats the transaction, so it must have no other effects. The client
// is checked before it, and the body in it: a client learns what is wrong with its request only if
// the job is its own.
func (f *ForgeRun) change(c *httpapi.Call, on job.Cause,
	decide func(j *job.Job, now time.Time) error) (*job.Job, error) {
	id, err := pathJobID(c)
	if err != nil {
		return nil, err
	}
	var before job.Job
	after, err := f.Engine.Change(c.Context(), id, on, func(j *job.Job, now time.Time) error {
		before = *j
		if j.Owner != clientID(c) {
			return errForbidden
		}
		return decide(j, now)
	})
	if errors.Is(err, errUnchanged) {
		c.AddAttrs(slog.String(telemetry.CurrentState, string(before.State)))
		return &before, nil
	}
	if err != nil {
		return nil, notFoundAs(err, "job")
	}
	c.AddAttrs(slog.String(telemetry.CurrentState, string(before.State)),
		slog.String(telemetry.NextState, string(after.State)))
	return after, nil
}

// POST /v1/jobs/{job_id}/cancel: makes any job that is not final CANCELED (FR-134); a final one
// stays as it is (FR-137). The engine refuses the outcome of its run from then on (FR-135).
func (f *ForgeRun) cancelJob(c *httpapi.Call) error {
	j, err := f.change(c, job.Canceled, func(j *job.Job, _ time.Time) error {
		if err := parseObject(c.Content, false); err != nil {
			return err
		}
		if final(j.State) { // FR-137
			return errUnchanged
		}
		return nil
	})
	if err != nil {
		return err
	}
	return sendChanged(c, j, false)
}

// POST /v1/jobs/{job_id}/retry: queues a FAILED job once more, with a delay (FR-140, FR-144).
func (f *ForgeRun) retryJob(c *httpapi.Call) error {
	j, err := f.change(c, job.Retried, func(j *job.Job, now time.Time) error {
		if err := parseObject(c.Content, false); err != nil {
			return err
		}
		if err := f.prepareRetry(j, now); err != nil {
			return err
		}
		if trace := telemetry.Carrier(c.Context()); trace != "" {
			j.Trace = trace // the next attempt belongs to the trace of this request (FR-243)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return sendChanged(c, j, true)
}

// prepareRetry decides whether a job can be retried and schedules the next attempt (G-FR-07,
// G-FR-64). It may be called more than once.
func (f *ForgeRun) prepareRetry(j *job.Job, now time.Time) error {
	switch {
	case j.State == failed && retriesUsedUp(j): // FR-142
		return conflict("the job is FAILED and its %d retries are used up", j.MaxAttempts-1)
	case j.State == failed:
		random := f.Random()
		j.DueAt = now.Add(job.Jittered(f.BackoffBase, f.BackoffMax, 2, attempt(j)+1,
			binary.BigEndian.Uint64(random[:8])))
		j.Failure = nil
		return nil
	case !final(j.State) && attempt(j) > 0: // FR-145
		return errUnchanged
	}
	return conflict("only a FAILED job can be retried, and this one is %s", j.State)
}

// sendChanged answers a cancel or a retry with the job's state.
func sendChanged(c *httpapi.Call, j *job.Job, withAttempt bool) error {
	return sendObject(c, http.StatusOK, func(o *strictjson.Object) {
		o.Text("job_id", j.ID.Key)
		o.Text("state", string(j.State))
		o.Time("updated_at", updatedAt(j))
		if withAttempt {
			o.Int("attempt", int64(attempt(j)))
		}
	})
}

var jobPages = pages("j", httpapi.ByNumber)

// GET /v1/jobs?state=&cursor=&limit= (G-FR-43): the client's own jobs, newest first.
func (f *ForgeRun) listJobs(c *httpapi.Call) error {
	limit, before, err := jobPages.Read(c)
	if err != nil {
		return err
	}
	filter := store.Filter{JobType: Name, Owner: clientID(c), NewestFirst: true, Before: before,
		Limit: limit + 1}
	text, given, err := c.Query("state")
	if err != nil {
		return err
	}
	if given {
		if !slices.Contains(states, job.State(text)) {
			return invalid("state must be one of %s, not %s", stateNames, quote(text))
		}
		filter.States = []job.State{job.State(text)}
	}
	jobs, err := f.Engine.List(c.Context(), filter)
	if err != nil {
		return err
	}
	return httpapi.SendPage(c, jobPages.Cursor, limit, jobs,
		func(j *job.Job) int64 { return j.Seq }, appendJob)
}

// stateNames lists the states for error messages.
var stateNames = func() string {
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}()
