package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// FetchBoxStatus is where a job is (FB-054).
type FetchBoxStatus string

// The statuses of a job (FB-055).
const (
	FetchQueued     FetchBoxStatus = "queued"      // no download has begun
	FetchInProgress FetchBoxStatus = "in_progress" // not all are settled
	FetchCompleted  FetchBoxStatus = "completed"   // all succeeded
	FetchFailed     FetchBoxStatus = "failed"      // all are settled, not all succeeded
)

// Final reports whether nothing of the job is open.
func (s FetchBoxStatus) Final() bool { return s == FetchCompleted || s == FetchFailed }

// FetchBoxSpec is a manifest as it is submitted. Type and Manifest are needed.
type FetchBoxSpec struct {
	// Type is a job type that is registered in the server's settings.
	Type string
	// Tenant is recorded with the job and its downloads; empty for none.
	Tenant string
	// IdempotencyKey makes a submit repeatable: within the server's window the
	// same tenant, type and key are the same job (FB-047, FB-050). Empty means a
	// random one.
	IdempotencyKey string
	// Manifest is the JSON of a manifest and travels byte for byte (FB-013).
	// [FetchBoxManifest.Encode] writes one.
	Manifest json.RawMessage
}

// FetchBoxManifest is a manifest of version v1.
type FetchBoxManifest struct {
	// Metadata is a JSON object that is kept verbatim. Nil means {}.
	Metadata json.RawMessage
	// Resources are 1 to 1000, unless the server is set otherwise.
	Resources []FetchBoxResource
	// Attributes is a JSON object for handlers; nil for none.
	Attributes json.RawMessage
}

// FetchBoxResource is one thing to download. ID and URL are needed.
type FetchBoxResource struct {
	// ID has at most 128 characters and is unique in the manifest (FB-015).
	ID string
	// URL is http or https.
	URL string
	// Headers are sent over those of the job type (FB-023): at most 10, their
	// values of at most 1024 bytes.
	Headers map[string]string
	// Tags are handed on to handler and storage, within the same bounds.
	Tags map[string]string
}

// Encode writes the manifest as it is submitted. It is put together by hand so
// that metadata and attributes stay as they are, byte for byte.
func (m FetchBoxManifest) Encode() (json.RawMessage, error) {
	metadata := m.Metadata
	if metadata == nil {
		metadata = json.RawMessage("{}")
	}
	err := checkJSON("metadata", metadata)
	if m.Attributes != nil {
		err = errors.Join(err, checkJSON("attributes", m.Attributes))
	}
	if err != nil {
		return nil, err
	}
	b := append([]byte(`{"manifest_version":"v1","metadata":`), metadata...)
	b = append(b, `,"resources":[`...)
	for i, r := range m.Resources {
		if i > 0 {
			b = append(b, ',')
		}
		if err := errors.Join(checkName("id", r.ID), checkName("url", r.URL)); err != nil {
			return nil, fmt.Errorf("resource %d: %w", i, err)
		}
		b = appendString(append(b, `{"id":`...), r.ID)
		b = appendString(append(b, `,"url":`...), r.URL)
		b = appendMap(b, "headers", r.Headers)
		b = append(appendMap(b, "tags", r.Tags), '}')
	}
	b = append(b, ']')
	if m.Attributes != nil {
		b = append(append(b, `,"attributes":`...), m.Attributes...)
	}
	return append(b, '}'), nil
}

// appendMap writes a member that is an object of texts; none for an empty one.
func appendMap(b []byte, name string, texts map[string]string) []byte {
	if len(texts) == 0 {
		return b
	}
	b = append(b, `,"`+name+`":`...)
	begin := byte('{')
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		b = append(appendString(append(b, begin), key), ':')
		b = appendString(b, texts[key])
		begin = ','
	}
	return append(b, '}')
}

// FetchBoxReceipt is the acknowledgement of a manifest, which is stored and
// queued by then (FB-027).
type FetchBoxReceipt struct {
	// JobID is a UUID.
	JobID string `json:"job_id"`
	// ManifestKey is the URI of the stored manifest (FB-029).
	ManifestKey string `json:"manifest_key"`
	// Resources is how many the manifest has.
	Resources int `json:"resource_count"`
	// IdempotencyKey is the one that was sent, also beside an error.
	IdempotencyKey string `json:"-"`
}

// FetchBoxFailure says why a download failed: Code is HTTP_ and a status, or
// begins with DOWNLOAD_, UPLOAD_, HANDLER_ or SYSTEM_ (G-FB-24).
type FetchBoxFailure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// FetchBoxCursor is a place in a stream.
type FetchBoxCursor struct {
	Stream string `json:"stream"`
	Offset uint64 `json:"offset"`
}

// FetchBoxJob is a job as the ledger has it (FB-052).
type FetchBoxJob struct {
	ID     string         `json:"job_id"`
	Type   string         `json:"job_type"`
	Status FetchBoxStatus `json:"status"`
	// CreatedAt and UpdatedAt are in UTC; UpdatedAt moves with every progress.
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	// FinishedAt is nil until the job is settled and its handler has been told.
	FinishedAt *time.Time `json:"finished_at"`
	// Total, Completed and Failed count downloads; the rest is open.
	Total     int `json:"resource_total"`
	Completed int `json:"resource_completed"`
	Failed    int `json:"resource_failed"`
	// ManifestKey is empty where a direct producer gave none.
	ManifestKey string `json:"manifest_key"`
	// Tenant is empty for none.
	Tenant string `json:"tenant"`
	// LogCursor is where the job's log begins.
	LogCursor FetchBoxCursor `json:"log_cursor"`
	// LastError is the latest failure; nil when there was none (FB-057).
	LastError *FetchBoxFailure `json:"last_error"`
}

// Remaining is how many downloads are not settled.
func (j FetchBoxJob) Remaining() int { return j.Total - j.Completed - j.Failed }

// FetchBoxTask is a download as the server has it, also as a [JobWorker] gets
// it and as a direct producer publishes it (G-FB-36).
type FetchBoxTask struct {
	JobID       string            `json:"job_id"`
	JobType     string            `json:"job_type"`
	ResourceID  string            `json:"resource_id"`
	URL         string            `json:"url"`
	Headers     map[string]string `json:"headers"`
	Tags        map[string]string `json:"tags"`
	Proxy       *FetchBoxProxy    `json:"proxy,omitempty"`
	Storage     *FetchBoxStorage  `json:"storage,omitempty"`
	ManifestKey string            `json:"manifest_key,omitempty"`
	Tenant      string            `json:"tenant,omitempty"`
	TraceID     string            `json:"trace_id,omitempty"`
	Attempt     int               `json:"attempt"`
}

// FetchBoxProxy names pools of proxies: the first until it fails, then the
// others in order.
type FetchBoxProxy struct {
	Primary   string   `json:"primary,omitempty"`
	Fallbacks []string `json:"fallbacks,omitempty"`
}

// FetchBoxStorage says where a download goes.
type FetchBoxStorage struct {
	Bucket   string            `json:"bucket,omitempty"`
	Key      string            `json:"key,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// FetchBoxDeadLetter is a download that was given up (FB-084).
type FetchBoxDeadLetter struct {
	// Offset names it, for [FetchBox.Replay].
	Offset uint64 `json:"offset"`
	// Task is a [FetchBoxTask]; or what a direct producer published in its
	// place (FB-099).
	Task     json.RawMessage `json:"task"`
	Code     string          `json:"failure_code"`
	Message  string          `json:"failure_message"`
	Attempts int             `json:"attempts"`
	FailedAt time.Time       `json:"failed_at"`
}

// FetchBoxReplay is what a replay answers.
type FetchBoxReplay struct {
	JobID      string `json:"job_id"`
	ResourceID string `json:"resource_id"`
	Status     string `json:"status"` // of the download: queued
}

// FetchBoxLogEntry is one thing that happened to a job (FB-064).
type FetchBoxLogEntry struct {
	// Offset grows along the log.
	Offset uint64 `json:"offset"`
	JobID  string `json:"job_id"`
	// ResourceID is empty where it is about the job.
	ResourceID  string         `json:"resource_id"`
	Level       string         `json:"level"` // info, warn or error
	Message     string         `json:"message"`
	Fields      map[string]any `json:"fields"`
	TimestampMS int64          `json:"timestamp_ms"` // since 1970
	TraceID     string         `json:"trace_id"`
}

// FetchBoxComponent is how one part of the server is: ok, degraded or down.
type FetchBoxComponent struct {
	Status string `json:"status"`
	Detail string `json:"detail"` // may be empty
}

// FetchBoxHealth is how the server is, as a whole and by part (G-FB-39): api,
// ledger, stream, storage and proxy_pools.
type FetchBoxHealth struct {
	Status     string                       `json:"status"`
	Components map[string]FetchBoxComponent `json:"components"`
}

// readFetchBox takes what an error of FetchBox says (FB-045).
func (e *Error) readFetchBox(body []byte) {
	var envelope struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(body, &envelope) == nil && envelope.Error.Code != "" {
		e.Code, e.Message = envelope.Error.Code, envelope.Error.Message
	}
}
