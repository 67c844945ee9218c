package fetchbox

import (
	"context"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
)

// operators says what operators may do with jobs and tasks. A job follows its tasks: it has no
// actions of its own.
func (f *FetchBox) operators() []contract.Operator {
	path := func(j *job.Job) string { return jobsPath + "/" + j.ID.Key }
	jobs := contract.Operator{Jobs: Name, Submit: f.submitFor, Check: f.checkFor, Path: path,
		Log: f.logEntries, Answer: errorTable.Answer, Kind: "manifest", States: statuses, State: statusOf}
	tasks := contract.Operator{Jobs: Tasks, Kind: "resource", Replay: f.replayDead,
		Answer: errorTable.Answer,
		Path:   func(j *job.Job) string { return jobsPath + "/" + decodeTaskLabel(j).jobID },
		Actions: []contract.Action{
			contract.Change(f.Engine, contract.ActionRetry, job.Retried, f.prepareRetry, dead),
			contract.RunNow(f.Engine),
			contract.Release(f.Engine, downloading),
		}}
	return []contract.Operator{jobs, tasks}
}

// headersOf reads what a request of an operator has in the place of headers (G-AD-09). The owner of
// a job is its tenant.
func (f *FetchBox) headersOf(r contract.Request) (h submitHeaders, err error) {
	if err := checkType("job_type", r.Type); err != nil {
		return h, err
	}
	for _, text := range []struct{ name, value string }{{"owner", r.Owner},
		{"idempotency_key", r.Key}} {
		if len(text.value) > maxHeader {
			return h, invalid("%s must have at most %d bytes", text.name, maxHeader)
		}
	}
	h = submitHeaders{jobType: f.types[r.Type], key: r.Key, tenant: r.Owner}
	if h.jobType == nil {
		return h, invalid("the job type %q is not registered", r.Type)
	}
	if int64(len(r.Body)) > f.MaxManifest {
		return h, &job.Error{Kind: job.TooLarge, Op: Name, Msg: "the manifest is too large"}
	}
	return h, nil
}

// submitFor submits a job by the rules of POST /jobs (AD-017).
func (f *FetchBox) submitFor(ctx context.Context, r contract.Request) (*job.Job, error) {
	if err := f.Shared.Check(); err != nil {
		return nil, err
	}
	h, err := f.headersOf(r)
	if err != nil {
		return nil, err
	}
	made, size, err := f.acceptText(ctx, &h, r.Body)
	if err != nil {
		return nil, err
	}
	if !made.repeated {
		f.metrics.ingested.WithLabelValues(resultAccepted).Inc()
		f.metrics.ingestBytes.Add(float64(size))
	}
	return f.Engine.Get(ctx, engineJobID(made.jobID))
}

// checkFor checks a request as submitFor does, apart from what the handler of its job type refuses.
func (f *FetchBox) checkFor(_ context.Context, r contract.Request) error {
	if _, err := f.headersOf(r); err != nil {
		return err
	}
	_, err := readManifest(r.Body, f.MaxResources)
	return err
}

// replayDead makes a dead task ready again: it stays the same task (G-AD-14).
func (f *FetchBox) replayDead(ctx context.Context, letter *job.Job) (*job.Job, error) {
	return f.Engine.Change(ctx, letter.ID, job.Retried, f.prepareRetry)
}
