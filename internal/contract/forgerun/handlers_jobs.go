package forgerun

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
)

// jobID makes the identity of a job.
func jobID(key string) job.ID { return job.ID{Contract: Name, Key: key} }

// jobID reads the job of the path: what is no UUID names none (G-FR-46).
func (v *request) jobID() (job.ID, error) {
	key, ok := uuids.Parse(v.call.PathValue("job_id"))
	if !ok {
		return job.ID{}, notFound("job")
	}
	v.logAttr(telemetry.JobID, key)
	return jobID(key), nil
}

// ownJob reads the job of the path, which must be the client's (FR-033).
func (f *ForgeRun) ownJob(v *request) (*job.Job, error) {
	id, err := v.jobID()
	if err != nil {
		return nil, err
	}
	j, err := f.engine.Get(v.ctx, id)
	if err != nil {
		return nil, notFoundAs(err, "job")
	}
	if j.Owner != v.identity.ClientID {
		return nil, errForbidden
	}
	return j, nil
}

// notFoundAs says what was not found.
func notFoundAs(err error, what string) error {
	if job.IsKind(err, job.NotFound) {
		return notFound(what)
	}
	return err
}

// maxSubmitTries is how often an id is drawn; a second time is needed when a key was
// given up between two looks, and otherwise never.
const maxSubmitTries = 5

// POST /v1/jobs
func (f *ForgeRun) submit(v *request) error {
	s, err := parseSubmission(v.body)
	if err != nil {
		return err
	}
	key := s.key
	if key == "" { // FR-066
		if key, err = idempotencyKeyHeader(v.call.Request.Header); err != nil {
			return err
		}
	}
	now := f.Now()
	k, err := f.validateSubmission(&s, now)
	if err != nil {
		return f.idempotentOr(v, key, s.jobSpec, err)
	}
	j := f.newJob(v, &s, k, now)
	if key != "" {
		j.Alias = job.AliasOf(Name, v.identity.ClientID, key) // FR-069
	}
	for range maxSubmitTries {
		j.ID = jobID(uuids.New(4, f.Random()).String())
		receipt, err := f.engine.Submit(v.ctx, engine.Unique, []engine.Submission{{Job: j}})
		if err == nil {
			v.logAttr(telemetry.JobID, j.ID.Key)
			f.metrics.idempotencyNew.Inc()
			f.scheduleCancelWindow(v, &j)
			return v.sendSubmitted(j.ID.Key, created, receipt.At)
		}
		if !job.IsKind(err, job.Conflict) {
			return err
		}
		if key == "" {
			continue // an id that exists is not reported as success (FR-201)
		}
		if err = f.sendIdempotent(v, j.Alias, s.jobSpec); !job.IsKind(err, job.NotFound) {
			return err
		}
	}
	return &job.Error{Kind: job.Unavailable, Op: "forgerun.submit",
		Msg: "the job could not be given an id"}
}

// judge holds a submission against the rules and finds its kind.
func (f *ForgeRun) validateSubmission(s *submission, now time.Time) (*kind, error) {
	if err := s.check(f.Types, now); err != nil {
		return nil, err
	}
	k := kindByName[s.kind]
	if k == nil {
		k = f.rules.choose(now.UnixMilli())
	}
	if size := k.outputKiB << 10; size > f.PayloadLimit { // FR-082
		return nil, invalid("payload_size of work_kind " + k.name + " is " +
			strconv.FormatInt(size, 10) + " bytes, and a job may have " +
			strconv.FormatInt(f.PayloadLimit, 10))
	}
	return k, nil
}

// newJob makes a job of what was asked for. It lacks its id.
func (f *ForgeRun) newJob(v *request, s *submission, k *kind, now time.Time) job.Job {
	d := f.rules.define(k, s.executionAt, s.callback, now.UnixMilli())
	j := job.Job{Kind: k.name, Queue: queue, Owner: v.identity.ClientID, DueAt: s.executionAt,
		Lease: f.Lease, MaxAttempts: f.MaxRetries + 1,
		Definition: d.encode(), Payload: s.jobSpec.encode(), Trace: telemetry.Carrier(v.ctx)}
	if f.CancelWindow > 0 && k.name == cancelBeforeStart && s.executionAt.IsZero() {
		j.DueAt = now.Add(f.CancelWindow)
	}
	return j
}

// scheduleCancelWindow queues a job of the kind that waits to be canceled while it is
// QUEUED: it cannot be claimed before its window is over (G-FR-32). Where it
// fails the job is queued when it is due.
func (f *ForgeRun) scheduleCancelWindow(v *request, j *job.Job) {
	if j.Kind != cancelBeforeStart || f.CancelWindow <= 0 ||
		!decodeJobSpec(j.Payload).executionAt.IsZero() {
		return
	}
	if _, err := f.engine.Change(v.ctx, j.ID, job.Due, nil); err != nil {
		f.Log.Log(v.ctx, outage.Level(slog.LevelWarn, err),
			"a job is queued at the end of its cancel window only", telemetry.RequestID,
			requestIDFrom(v.ctx), telemetry.JobID, j.ID.Key, telemetry.ErrorMessage, err)
	}
}

// idempotentOr answers a request that breaks a rule now and did not when it was sent
// first, such as one whose time has passed meanwhile.
func (f *ForgeRun) idempotentOr(v *request, key string, t jobSpec, ruleErr error) error {
	if key == "" {
		return ruleErr
	}
	err := f.sendIdempotent(v, job.AliasOf(Name, v.identity.ClientID, key), t)
	var p *problem
	if job.IsKind(err, job.NotFound) || (errors.As(err, &p) && p.code == codeIdempotency) {
		return ruleErr
	}
	return err
}

// sendIdempotent answers a request whose key was used before: with the same payload as it
// was then it is the same job, as it is now (FR-067, FR-068).
func (f *ForgeRun) sendIdempotent(v *request, alias job.IdentityHash, t jobSpec) error {
	j, err := f.engine.GetByAlias(v.ctx, alias)
	if err != nil {
		return err
	}
	v.logAttr(telemetry.JobID, j.ID.Key)
	if !decodeJobSpec(j.Payload).equal(t) {
		f.metrics.idempotencyConflicts.Inc()
		return &problem{code: codeIdempotency,
			detail: "the idempotency key belongs to a job with another payload"}
	}
	f.metrics.idempotencyHits.Inc()
	return v.sendSubmitted(j.ID.Key, j.State, j.CreatedAt)
}

func (v *request) sendSubmitted(id string, s job.State, at time.Time) error {
	return v.sendObject(202, func(o *strictjson.Object) {
		o.Text("job_id", id)
		o.Text("state", string(s))
		o.Time("created_at", at)
	})
}

// GET /v1/jobs/{job_id}
func (f *ForgeRun) get(v *request) error {
	j, err := f.ownJob(v)
	if err != nil {
		return err
	}
	return v.sendObject(200, func(o *strictjson.Object) { appendJob(o, j) })
}

// maxReportTries is how often a report is read that is withdrawn while it is read.
const maxReportTries = 5

// GET /v1/jobs/{job_id}/report
func (f *ForgeRun) report(v *request) error {
	for range maxReportTries {
		j, err := f.ownJob(v)
		if err != nil {
			return err
		}
		if !final(j.State) { // FR-126, G-FR-09
			return &problem{code: codeNotFound,
				detail: "the job is " + string(j.State) + " and has no report yet"}
		}
		history, err := f.engine.History(v.ctx, j.ID)
		if err != nil {
			return notFoundAs(err, "job")
		}
		// A retry between the two looks shows in the history: both begin anew.
		if n := len(history); n > 0 && history[n-1].At.Equal(j.FinishedAt) {
			return v.sendObject(200, func(o *strictjson.Object) {
				appendReport(o, j, eventsOf(j.ID.Key, history))
			})
		}
	}
	return &job.Error{Kind: job.Unavailable, Op: "forgerun.report", Msg: "the job keeps changing"}
}

// errUnchanged ends a change that has nothing to do.
var errUnchanged = errors.New("nothing to change")

// change lets a cause happen to a client's own job. decide sees the job under its
// lock; errUnchanged means that it stays as it is, which is no error.
func (f *ForgeRun) change(v *request, on job.Cause,
	decide func(j *job.Job, now time.Time) error) (*job.Job, error) {
	id, err := v.jobID()
	if err != nil {
		return nil, err
	}
	var before job.Job
	after, err := f.engine.Change(v.ctx, id, on, func(j *job.Job, now time.Time) error {
		before = *j
		if j.Owner != v.identity.ClientID {
			return errForbidden
		}
		return decide(j, now)
	})
	if errors.Is(err, errUnchanged) {
		v.logAttr(telemetry.CurrentState, string(before.State))
		return &before, nil
	}
	if err != nil {
		return nil, notFoundAs(err, "job")
	}
	v.logTransition(before.State, after.State)
	return after, nil
}

// POST /v1/jobs/{job_id}/cancel
func (f *ForgeRun) cancel(v *request) error {
	j, err := f.change(v, job.Canceled, func(j *job.Job, _ time.Time) error {
		if err := parseObject(v.body, false); err != nil {
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
	return v.sendChanged(j, false)
}

// POST /v1/jobs/{job_id}/retry
func (f *ForgeRun) retry(v *request) error {
	j, err := f.change(v, job.Retried, func(j *job.Job, now time.Time) error {
		if err := parseObject(v.body, false); err != nil {
			return err
		}
		if err := f.prepareRetry(j, now); err != nil {
			return err
		}
		if trace := telemetry.Carrier(v.ctx); trace != "" { // what follows is part of this (FR-243)
			j.Trace = trace
		}
		return nil
	})
	if err != nil {
		return err
	}
	return v.sendChanged(j, true)
}

// again decides on the retry of a job and prepares it (G-FR-07, G-FR-64). It may
// be asked again.
func (f *ForgeRun) prepareRetry(j *job.Job, now time.Time) error {
	switch {
	case j.State == failed && j.MaxAttempts > 0 && j.FailedAttempts >= j.MaxAttempts: // FR-142
		return conflict("the job is FAILED and its " + strconv.Itoa(j.MaxAttempts-1) +
			" retries are used up")
	case j.State == failed:
		random := f.Random()
		j.DueAt = now.Add(job.Jittered(f.BackoffBase, f.BackoffMax, 2, attempt(j)+1,
			binary.BigEndian.Uint64(random[:8])))
		j.Failure = nil
		return nil
	case !final(j.State) && attempt(j) > 0: // FR-145
		return errUnchanged
	}
	return conflict("only a FAILED job can be retried, and this one is " + string(j.State))
}

// sendChanged answers a cancel or a retry with the state there is.
func (v *request) sendChanged(j *job.Job, withAttempt bool) error {
	return v.sendObject(200, func(o *strictjson.Object) {
		o.Text("job_id", j.ID.Key)
		o.Text("state", string(j.State))
		o.Time("updated_at", updatedAt(j))
		if withAttempt {
			o.Int("attempt", int64(attempt(j)))
		}
	})
}

// jobsList is the letter of this list's cursors.
const jobsList = "j"

// GET /v1/jobs?state=&cursor=&limit= (G-FR-43): the client's own, newest first.
func (f *ForgeRun) list(v *request) error {
	p, err := readPage(v.call, jobsList)
	if err != nil {
		return err
	}
	filter := store.Filter{Contract: Name, Owner: v.identity.ClientID, NewestFirst: true,
		Limit: p.limit + 1}
	if filter.Before, err = p.number(); err != nil {
		return err
	}
	text, given, err := v.call.Query("state")
	if err != nil {
		return err
	}
	if given {
		if !slices.Contains(states, job.State(text)) {
			return invalid("state must be one of " + stateNames + ", not " + quote(text))
		}
		filter.States = []job.State{job.State(text)}
	}
	jobs, err := f.engine.List(v.ctx, filter)
	if err != nil {
		return err
	}
	return sendPage(v, p, jobs, func(j *job.Job) string {
		return strconv.FormatInt(j.Seq, 10)
	}, appendJob)
}

var stateNames = func() string {
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}()
