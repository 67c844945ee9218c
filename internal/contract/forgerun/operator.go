package forgerun

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/webhook"
)

// operators says what operators may do with jobs and deliveries. A RUNNING job has no release: the
// machine fails one (G-AD-17).
func (f *ForgeRun) operators() []contract.Operator {
	e := f.Engine
	jobs := contract.Operator{JobType: Name, Submit: f.submitFor, Check: f.checkFor,
		Example: contract.Request{Owner: "CLIENT_ID", Body: []byte(
			`{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`)},
		Replay: f.replayDead, Answer: answerTo, Kinds: slices.Sorted(maps.Keys(kindByName)),
		Path:     func(j *job.Job) string { return "/v1/jobs/" + j.ID.Key },
		Hide:     hideCallback,
		Timeline: addDeliveries,
		Events:   eventTypes,
		Actions: []contract.Action{
			contract.Change(e, contract.ActionRetry, job.Retried, f.prepareRetry, failed),
			{Name: contract.ActionRerun, States: []job.State{succeeded, failed, canceled},
				Do: f.rerun},
			contract.RunNow(e),
			contract.Change(e, contract.ActionCancel, job.Canceled, nil, created, queued, assigned,
				running),
			contract.Release(e, assigned),
		}}
	jobs.Actions[0].If = func(j *job.Job) bool { return !retriesUsedUp(j) }
	return []contract.Operator{jobs, contract.DeliveryOperator(f.webhooks)}
}

// hideCallback takes the query out of the callback of a job, as of the URL of a delivery: it may be
// secret.
func hideCallback(j *job.Job) {
	j.Definition, j.Payload = withoutQuery(j.Definition), withoutQuery(j.Payload)
}

// withoutQuery takes the query out of the callback of a body. One that cannot be read is taken as a
// whole.
func withoutQuery(body []byte) []byte {
	if parseObject(body, true) != nil {
		return nil
	}
	raw := findMembers(body, "callback")["callback"]
	if raw == nil || strictjson.IsNull(raw) {
		return body
	}
	url, err := strictjson.String(raw)
	if err != nil {
		return nil
	}
	return bytes.ReplaceAll(body, raw, strictjson.AppendString(nil, webhook.WithoutQuery(url)))
}

// addDeliveries adds the deliveries of the events of a job to its timeline.
func addDeliveries(r engine.TimelineReader, f *job.TimelineInput) error {
	var refs []webhook.EventRef
	for _, e := range eventsOf(f.Job.ID.Key, f.Events) {
		refs = append(refs, webhook.EventRef{ID: e.id, Name: e.name})
	}
	d, _ := decodeDefinition(f.Job.Definition) // a definition that cannot be read has no callback
	deliveries, err := webhook.Entries(r, f.Job.Owner, d.callback, refs)
	f.More = append(f.More, deliveries...)
	return err
}

// retriesUsedUp reports whether a FAILED job cannot be retried (FR-142).
func retriesUsedUp(j *job.Job) bool {
	return j.MaxAttempts > 0 && j.FailedAttempts >= j.MaxAttempts
}

// submitFor submits a job for a client by the rules of POST /v1/jobs (AD-017). The client need not
// have a key that is valid now.
func (f *ForgeRun) submitFor(ctx context.Context, r contract.Request) (*job.Job, error) {
	s, k, now, err := f.readFor(ctx, r)
	if err != nil {
		return nil, err
	}
	once := s.once(r.Owner, cmp.Or(s.key, r.Key))
	made, err := f.store(ctx, once, f.newJob(ctx, r.Owner, s, k, now))
	if err != nil || made.Existed {
		return made.Job, err
	}
	f.metrics.idempotencyNew.Inc()
	f.scheduleCancelWindow(ctx, made.Job.ID, k, s)
	return made.Job, nil
}

// checkFor checks a request as submitFor does.
func (f *ForgeRun) checkFor(ctx context.Context, r contract.Request) error {
	_, _, _, err := f.readFor(ctx, r)
	return err
}

// readFor reads and validates a request for a client.
func (f *ForgeRun) readFor(ctx context.Context, r contract.Request) (*submission, *kind, time.Time,
	error) {
	now := f.Now()
	if r.Owner == "" {
		return nil, nil, now, invalid("owner is missing: a job of ForgeRun belongs to a client")
	}
	if _, err := f.accounts.Client(ctx, r.Owner); err != nil {
		if job.IsKind(err, job.NotFound) {
			err = invalid("owner is unknown: there is no client with this id")
		}
		return nil, nil, now, err
	}
	s, err := parseSubmission(r.Body)
	if err != nil {
		return nil, nil, now, err
	}
	if s.key != "" && r.Key != "" { // with its own, all submissions of a schedule would be one
		return nil, nil, now, invalid("idempotency_key: the request has one of its own, and each " +
			"submission is given another")
	}
	k, err := f.validateSubmission(&s, now)
	return &s, k, now, err
}

// rerun submits the request of a job once more, without its idempotency key and without an
// execution_at, which has passed.
func (f *ForgeRun) rerun(ctx context.Context, j *job.Job) (*job.Job, error) {
	full, err := f.Engine.Get(ctx, j.ID)
	if err != nil {
		return nil, err
	}
	s := submission{jobSpec: decodeJobSpec(full.Payload)}
	s.executionAt, s.kind = time.Time{}, full.Kind // also a kind that the server has chosen
	now := f.Now()
	k, err := f.validateSubmission(&s, now)
	if err != nil {
		return nil, err
	}
	made, err := f.store(ctx, engine.Idempotency{}, f.newJob(ctx, full.Owner, &s, k, now))
	return made.Job, err
}

// replayDead retries a job whose retries are used up, with as many as a new job has (G-AD-14).
func (f *ForgeRun) replayDead(ctx context.Context, dead *job.Job) (*job.Job, error) {
	return f.Engine.Change(ctx, dead.ID, job.Retried, func(j *job.Job, now time.Time) error {
		if retriesUsedUp(j) {
			j.MaxAttempts = j.FailedAttempts + f.MaxRetries + 1
		}
		j.DueAt, j.Failure = now, nil
		j.Trace = cmp.Or(telemetry.Carrier(ctx), j.Trace)
		return nil
	})
}
