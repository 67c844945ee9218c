package handler

import (
	"context"
	"encoding/json"
	"time"
)

// Job is the manifest's job as a handler sees it.
type Job struct {
	ID          string
	Type        string
	Tenant      string
	ManifestKey string // the URI of the stored manifest
	TraceID     string
}

// Manifest is a valid manifest. Metadata and Attributes are as they were sent, byte for byte;
// Attributes may be empty.
type Manifest struct {
	Version    string
	Metadata   json.RawMessage
	Attributes json.RawMessage
	Resources  []Resource
}

// Resource is one thing to download.
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

// Storage says where a download goes. What is empty is what the job type says, or the default.
type Storage struct {
	Bucket   string            `json:"bucket,omitempty"`
	Key      string            `json:"key,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Task is one download, as it travels on jobs.tasks (G-FB-36).
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
	Status    string // completed or failed
	Total     int
	Completed int
	Failed    int
	CreatedAt time.Time
	SettledAt time.Time
}

// Handler is the logic of a job type. One value serves all jobs of its type, many at a time. What
// it is given is its own to change.
type Handler interface {
	// Prepare changes a manifest before tasks are made of it. The stored manifest stays as it was
	// sent. An error refuses the job.
	Prepare(ctx context.Context, j Job, m Manifest) (Manifest, error)

	// Tasks makes the tasks, at least one, each with a resource id of its own. FromResource makes
	// the plain one. What a task leaves open the job type's settings fill in: default headers,
	// proxies, bucket and key. An error refuses the job.
	Tasks(ctx context.Context, j Job, m Manifest) ([]Task, error)

	// Finalize is told once that every task of a job has ended; replaying a dead letter later tells
	// nobody again. A process that dies meanwhile calls it again when it is back. An error or a
	// panic is recorded with the job as HANDLER_FINALIZE and changes nothing else.
	Finalize(ctx context.Context, s Summary) error
}

// Adjuster is a Handler with something to do for each single task, wherever it comes from: the API
// calls Adjust on every task of a manifest, and the fetcher on every task before it is downloaded,
// so that one a direct producer published is treated like all others (FB-080). Adjusting what was
// adjusted changes nothing. An error fails the task for good.
type Adjuster interface {
	Adjust(ctx context.Context, t Task) (Task, error)
}

// FromResource is the task that a resource asks for, as it stands in the manifest.
func FromResource(j Job, r Resource) Task {
	return Task{JobID: j.ID, JobType: j.Type, ResourceID: r.ID, URL: r.URL, Headers: r.Headers,
		Tags: r.Tags, ManifestKey: j.ManifestKey, Tenant: j.Tenant, TraceID: j.TraceID}
}
