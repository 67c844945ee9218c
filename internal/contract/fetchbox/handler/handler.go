package handler

import (
	"context"
	"encoding/json"
	"time"
)

// Job is the job of a manifest, as a handler sees it.
type Job struct {
	ID          string
	Type        string
	Tenant      string
	ManifestKey string // the URI of the stored manifest
	TraceID     string
}

// Manifest is a valid manifest. Metadata and Attributes are the bytes that were sent; Attributes
// may be empty.
type Manifest struct {
	Version    string
	Metadata   json.RawMessage
	Attributes json.RawMessage
	Resources  []Resource
}

// Resource is one file to download.
type Resource struct {
	ID      string
	URL     string
	Headers map[string]string
	Tags    map[string]string
}

// Proxy names pools of proxies: the first is used until it fails, then the others in order.
type Proxy struct {
	Primary   string   `json:"primary,omitempty"`
	Fallbacks []string `json:"fallbacks,omitempty"`
}

// Storage says where a download is stored. Empty fields have the values of the job type.
type Storage struct {
	Bucket   string            `json:"bucket,omitempty"`
	Key      string            `json:"key,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Task is one download. Its JSON form is the message on jobs.tasks (G-FB-36).
type Task struct {
	JobID       string            `json:"job_id"`
	JobType     string            `json:"job_type"`
	ResourceID  string            `json:"resource_id"`
	URL         string            `json:"url"`
	Headers     map[string]string `json:"headers"`
	Tags        map[string]string `json:"tags"`
	Proxy       *Proxy            `json:"proxy,omitempty"`
	Storage     *Storage          `json:"storage,omitempty"`
	ManifestKey string            `json:"manifest_key,omitempty"`
	Tenant      string            `json:"tenant,omitempty"`
	TraceID     string            `json:"trace_id,omitempty"`
	Attempt     int               `json:"attempt"`
}

// Summary is how a job ended.
type Summary struct {
	Job
	Status     string // completed or failed
	Total      int
	Completed  int
	Failed     int
	CreatedAt  time.Time
	FinishedAt time.Time
}

// Handler is the logic of a job type. One value serves all jobs of its type concurrently. A method
// may change its arguments. An UnavailableError says that the handler could not be asked: the
// submit or the download may be repeated, and nothing is refused. The context of a method ends when
// its result is no longer waited for; a method that only computes needs none.
type Handler interface {
	// Prepare changes a manifest before tasks are made of it. The stored manifest remains as it
	// was sent. An error refuses the job.
	Prepare(ctx context.Context, j Job, m Manifest) (Manifest, error)

	// Tasks makes the tasks, at least one, each with a different resource id; FromResource makes
	// the plain task of a resource. The settings of the job type complete them with default
	// headers, proxies, bucket and key. An error refuses the job.
	Tasks(ctx context.Context, j Job, m Manifest) ([]Task, error)

	// Adjust changes tasks in place. A submit calls it once for all tasks of its manifest, and a
	// fetcher before every download for one, so that the tasks of direct producers are adjusted
	// too (FB-080). It must be idempotent, and depend on no other task. Its error refuses the job,
	// or fails the task for good.
	Adjust(ctx context.Context, tasks []Task) error

	// Finalize is called when every task of a job has finished, and not again after a replay of a
	// dead letter. It is called once more if the process dies during the call. An error or a panic
	// is stored with the job as HANDLER_FINALIZE and changes nothing else.
	Finalize(ctx context.Context, s Summary) error
}

// UnavailableError is the error of a handler that could not be asked, or whose answer is none.
type UnavailableError struct {
	Reason string
	// Missing says that something is missing on this machine, which is no fault of the task.
	Missing bool
}

// Error implements error.
func (e *UnavailableError) Error() string { return e.Reason }

// FromResource is the task of a resource without any changes.
func FromResource(j Job, r Resource) Task {
	return Task{JobID: j.ID, JobType: j.Type, ResourceID: r.ID, URL: r.URL, Headers: r.Headers,
		Tags: r.Tags, ManifestKey: j.ManifestKey, Tenant: j.Tenant, TraceID: j.TraceID}
}

// Default uses manifests as they are (FB-038). Other handlers embed it and override some methods.
type Default struct{}

// Prepare implements Handler.
func (Default) Prepare(_ context.Context, _ Job, m Manifest) (Manifest, error) { return m, nil }

// Tasks implements Handler.
func (Default) Tasks(_ context.Context, j Job, m Manifest) ([]Task, error) {
	tasks := make([]Task, len(m.Resources))
	for i, r := range m.Resources {
		tasks[i] = FromResource(j, r)
	}
	return tasks, nil
}

// Adjust implements Handler.
func (Default) Adjust(_ context.Context, _ []Task) error { return nil }

// Finalize implements Handler.
func (Default) Finalize(_ context.Context, _ Summary) error { return nil }
