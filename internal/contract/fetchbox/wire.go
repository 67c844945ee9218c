package fetchbox

import (
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

// receipt is the answer to a submit.
type receipt struct {
	jobID       string
	manifestKey string
	resources   int
	repeated    bool // it is the answer to an earlier submit with the same idempotency key
}

// newReceipt is the answer to a repeated submit of a job.
func newReceipt(j *job.Job) *receipt {
	details := decodeJobDetails(j)
	return &receipt{
		jobID:       j.ID.Key,
		manifestKey: details.manifestKey,
		resources:   details.resources,
		repeated:    true,
	}
}

// encode returns the body of the answer (FB-027). A repeated submit gets the same bytes as the
// first.
func (r *receipt) encode() []byte {
	o := strictjson.NewObject(make([]byte, 0, 256))
	o.Text("job_id", r.jobID)
	o.Text("manifest_key", r.manifestKey)
	o.Int("resource_count", int64(r.resources))
	return o.End()
}

// appendJob writes a job as operators see it (FB-052). The tenant and the manifest are null for a
// job whose producer has named none.
func appendJob(o *strictjson.Object, j *job.Job) {
	details := decodeJobDetails(j)
	o.Text("job_id", j.ID.Key)
	o.Text("job_type", j.Queue)
	o.Text("status", statusOf(j))
	o.Time("created_at", j.CreatedAt)
	o.Time("updated_at", j.UpdatedAt)
	if j.Phase == job.Done {
		o.Time("finished_at", j.FinishedAt)
	} else {
		o.Null("finished_at")
	}
	appendCounts(o, j)
	o.Optional("manifest_key", details.manifestKey)
	o.Optional("tenant", details.tenant)
	o.Object("log_cursor", func(o *strictjson.Object) {
		o.Text("stream", logsSubject)
		o.Int("offset", int64(details.cursor))
	})
	appendLastError(o, j)
	if j.Callback != "" {
		o.Text("callback_url", webhook.DecodeCallback(j.Callback).URL)
	}
}

// appendCounts writes how many tasks a job has, and how many of them were stored and have failed
// (G-FB-03). The engine keeps these numbers with the parent, in the transaction of each task.
func appendCounts(o *strictjson.Object, j *job.Job) {
	o.Int("resource_total", int64(j.Children))
	o.Int("resource_completed", int64(j.Children-j.OpenDeps-j.FailedDeps))
	o.Int("resource_failed", int64(j.FailedDeps))
}

// appendLastError writes the latest failure of a job's tasks (FB-057).
func appendLastError(o *strictjson.Object, j *job.Job) {
	failure, ok := decodeTaskError(j.Failure)
	if !ok {
		o.Null("last_error")
		return
	}
	o.Object("last_error", failure.append)
}
