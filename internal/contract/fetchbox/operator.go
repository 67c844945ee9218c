package fetchbox

import (
	"context"
	"encoding/json"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
)

// operators says what operators may do with jobs and tasks. A job follows its tasks, so its actions
// are about these.
func (f *FetchBox) operators() []contract.Operator {
	path := func(j *job.Job) string { return jobsPath + "/" + j.ID.Key }
	jobs := contract.Operator{JobType: Name, Submit: f.submitFor, Check: f.checkFor,
		TakesHeaders: true, Path: path,
		Example: contract.Request{Type: "default", Body: []byte(`{"manifest_version":"v1",` +
			`"metadata":{"from":"you"},"resources":[{"id":"page","url":"https://example.org/"}]}`)},
		Log: f.logEntries, Answer: errorTable.Answer, Kind: "manifest", States: statuses, State: statusOf,
		StateBefore: statusBefore, Events: jobEventTypes,
		Actions: []contract.Action{
			{Name: contract.ActionRetry, Do: f.retryTasks,
				If: func(j *job.Job) bool { return j.FailedDeps > 0 }},
			{Name: contract.ActionCancel, Do: f.cancelTasks,
				If: func(j *job.Job) bool { return j.OpenDeps > 0 }},
		}}
	tasks := contract.Operator{JobType: Tasks, Kind: "resource", Replay: f.replayDead,
		Answer: errorTable.Answer, Events: resourceEventTypes,
		Path: func(j *job.Job) string { return jobsPath + "/" + decodeTaskLabel(j).jobID },
		Actions: []contract.Action{
			contract.Change(f.Engine, contract.ActionRetry, job.Retried, f.prepareRetry, dead),
			contract.RunNow(f.Engine),
			contract.Release(f.Engine, downloading),
		}}
	return []contract.Operator{jobs, tasks}
}

// manifestOf and resourceOf show operators what jobs and tasks are about. What cannot be read stays
// empty: direct producers and remote workers have written it.
func manifestOf(j *job.Job) contract.Manifest {
	d := decodeJobDetails(j)
	return contract.Manifest{Tenant: d.tenant, Object: d.manifestKey}
}

func resourceOf(j *job.Job) contract.Resource {
	task, _ := decodeTask(j.Payload)
	var stored struct {
		URI  string `json:"uri"`
		Type string `json:"content_type"`
		Size int64  `json:"size_bytes"`
	}
	_ = json.Unmarshal(j.Result, &stored)
	return contract.Resource{ID: decodeTaskLabel(j).resourceID, URL: task.URL, Object: stored.URI,
		Type: stored.Type, Size: stored.Size}
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
	if r.Callback != "" {
		if h.callback, err = f.readCallback("callback_url", r.Callback); err != nil {
			return h, err
		}
	}
	if h.jobType == nil {
		return h, invalid("the job type %q is not registered", r.Type)
	}
	if int64(len(r.Body)) > f.MaxManifest {
		return h, tooLarge("the manifest is larger than %d bytes", f.MaxManifest)
	}
	return h, nil
}

// submitFor submits a job by the rules of POST /jobs (AD-017).
func (f *FetchBox) submitFor(ctx context.Context, r contract.Request) (*job.Job, error) {
	if err := f.Binding.Check(); err != nil {
		return nil, err
	}
	made, err := f.countAccepted(func() (*receipt, int, error) {
		h, err := f.headersOf(r)
		if err != nil {
			return nil, 0, err
		}
		return f.acceptText(ctx, &h, r.Body)
	})
	if err != nil {
		return nil, err
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
func (f *FetchBox) replayDead(ctx context.Context, deadLetter *job.Job) (*job.Job, error) {
	return f.Engine.Change(ctx, deadLetter.ID, job.Retried, f.prepareRetry)
}
