package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// FetchBoxStatus is the status of a job (FB-054).
type FetchBoxStatus string

// The statuses of a job (FB-055).
const (
	FetchBoxStatusQueued     FetchBoxStatus = "queued"      // no download has started
	FetchBoxStatusInProgress FetchBoxStatus = "in_progress" // not all downloads have finished
	FetchBoxStatusCompleted  FetchBoxStatus = "completed"   // all downloads succeeded
	FetchBoxStatusFailed     FetchBoxStatus = "failed"      // all have finished, not all succeeded
)

// Final reports whether all downloads of the job have finished.
func (s FetchBoxStatus) Final() bool {
	return s == FetchBoxStatusCompleted || s == FetchBoxStatusFailed
}

// FetchBoxSpec is a manifest as it is submitted. Type and Manifest are required.
type FetchBoxSpec struct {
	// Type is a job type of the server's settings.
	Type string
	// Tenant is recorded with the job and its downloads; empty for none.
	Tenant string
	// IdempotencyKey makes a submit repeatable: within the server's window, the same tenant, type
	// and key return the same job (FB-047, FB-050). Empty means a random one.
	IdempotencyKey string
	// CallbackURL receives a request when the job is completed or failed (WH-005); empty for none.
	// Requests are signed with the secret that `millrace operator secret fetchbox` prints;
	// [VerifyWebhook] checks them.
	CallbackURL string
	// Manifest is the JSON of a manifest, which travels byte for byte (FB-013).
	// [FetchBoxManifest.Encode] makes one.
	Manifest json.RawMessage
}

// FetchBoxManifest is a manifest of version v1.
type FetchBoxManifest struct {
	// Metadata is a JSON object that is kept byte for byte. Nil means {}.
	Metadata json.RawMessage
	// Resources are the downloads, 1 to 1000 unless the server's settings say otherwise.
	Resources []FetchBoxResource
	// Attributes is a JSON object for handlers; nil for none.
	Attributes json.RawMessage
}

// FetchBoxResource is one download. ID and URL are required.
type FetchBoxResource struct {
	// ID has at most 128 characters and is unique within the manifest (FB-015).
	ID string
	// URL begins with http:// or https://.
	URL string
	// Headers are sent with the request and override those of the job type (FB-023): at most 10,
	// with values of at most 1024 bytes.
	Headers map[string]string
	// Tags are passed to the handler and the storage, within the same limits.
	Tags map[string]string
}

// Encode encodes the manifest for [FetchBoxSpec]. It does not use encoding/json for metadata and
// attributes, so that they stay as they are, byte for byte.
//
// Its error says which resource has no id or URL, or which value is not JSON.
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

// appendMap appends a member that is an object of strings, unless it is empty.
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

// FetchBoxReceipt is the answer to a submitted manifest, which is stored and queued (FB-027).
type FetchBoxReceipt struct {
	// JobID is a UUID.
	JobID string `json:"job_id"`
	// ManifestKey is the URI of the stored manifest (FB-029).
	ManifestKey string `json:"manifest_key"`
	// Resources is the number of resources in the manifest.
	Resources int `json:"resource_count"`
	// IdempotencyKey is the key that was sent. It is also set beside an error.
	IdempotencyKey string `json:"-"`
}

// FetchBoxFailure is why a download failed. Code is HTTP_ and a status, or begins with DOWNLOAD_,
// UPLOAD_, HANDLER_ or SYSTEM_ (G-FB-24), or is [FetchBoxCodeCanceled].
type FetchBoxFailure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// FetchBoxLogPosition is a position in a stream.
type FetchBoxLogPosition struct {
	Stream string `json:"stream"`
	Offset uint64 `json:"offset"`
}

// FetchBoxJob is a job as the ledger has it (FB-052).
type FetchBoxJob struct {
	ID     string         `json:"job_id"`
	Type   string         `json:"job_type"`
	Status FetchBoxStatus `json:"status"`
	// CreatedAt and UpdatedAt are in UTC; UpdatedAt changes with every progress.
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	// FinishedAt is nil until all downloads have finished and the job's handler has returned.
	FinishedAt *time.Time `json:"finished_at"`
	// Total, Completed and Failed count downloads.
	Total     int `json:"resource_total"`
	Completed int `json:"resource_completed"`
	Failed    int `json:"resource_failed"`
	// ManifestKey is empty when a direct producer published the tasks without one.
	ManifestKey string `json:"manifest_key"`
	// Tenant is empty for none.
	Tenant string `json:"tenant"`
	// LogStart is where the job's log begins.
	LogStart FetchBoxLogPosition `json:"log_cursor"`
	// LastError is the latest failure; nil when there was none (FB-057).
	LastError *FetchBoxFailure `json:"last_error"`
	// CallbackURL receives a request when the job has finished; empty for none.
	CallbackURL string `json:"callback_url,omitempty"`
}

// Finished reports whether the job has finished: all of its downloads have finished and its handler
// has returned. Between the two its status may be final already, while FinishedAt is nil.
func (j FetchBoxJob) Finished() bool { return j.Status.Final() && j.FinishedAt != nil }

// Remaining is the number of downloads that have not finished.
func (j FetchBoxJob) Remaining() int { return j.Total - j.Completed - j.Failed }

// FetchBoxTask is a download as the server has it. It is the payload of a [JobWorker] for
// [ContractFetchBox], and the message that a direct producer publishes (G-FB-36).
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

// FetchBoxProxy names pools of proxies: the first is used until it fails, then the fallbacks in
// their order.
type FetchBoxProxy struct {
	Primary   string   `json:"primary,omitempty"`
	Fallbacks []string `json:"fallbacks,omitempty"`
}

// FetchBoxStorage is where a download is stored.
type FetchBoxStorage struct {
	Bucket   string            `json:"bucket,omitempty"`
	Key      string            `json:"key,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// FetchBoxDeadLetter is a download that was given up (FB-084).
type FetchBoxDeadLetter struct {
	// Offset identifies the dead letter, for [FetchBox.Replay].
	Offset uint64 `json:"offset"`
	// Task is a [FetchBoxTask], or whatever a direct producer published instead of one (FB-099).
	Task     json.RawMessage `json:"task"`
	Code     string          `json:"failure_code"`
	Message  string          `json:"failure_message"`
	Attempts int             `json:"attempts"`
	FailedAt time.Time       `json:"failed_at"`
	// ReplayedAt is when it was replayed, and ReplayedAs the resource that was ready again then.
	// Both are nil for one that was not replayed.
	ReplayedAt *time.Time `json:"replayed_at"`
	ReplayedAs *string    `json:"replayed_as"`
}

// FetchBoxReplay is the answer to a replay.
type FetchBoxReplay struct {
	JobID      string `json:"job_id"`
	ResourceID string `json:"resource_id"`
	Status     string `json:"status"` // of the download: queued
}

// FetchBoxLogEntry is one entry in the log of a job (FB-064).
type FetchBoxLogEntry struct {
	// Offset increases along the log.
	Offset uint64 `json:"offset"`
	JobID  string `json:"job_id"`
	// ResourceID is empty in an entry about the job as a whole.
	ResourceID  string         `json:"resource_id"`
	Level       string         `json:"level"` // info, warn or error
	Message     string         `json:"message"`
	Fields      map[string]any `json:"fields"`
	TimestampMS int64          `json:"timestamp_ms"` // milliseconds since 1970
	TraceID     string         `json:"trace_id"`
}

// FetchBoxComponent is the health of one part of the server: ok, degraded or down.
type FetchBoxComponent struct {
	Status string `json:"status"`
	Detail string `json:"detail"` // may be empty
}

// FetchBoxHealth is the health of the server and of its parts (G-FB-39): api, ledger, stream,
// storage and proxy_pools.
type FetchBoxHealth struct {
	Status     string                       `json:"status"`
	Components map[string]FetchBoxComponent `json:"components"`
}

// readFetchBox takes code and message from an error of FetchBox (FB-045).
func (e *Error) readFetchBox(body []byte) {
	var envelope struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(body, &envelope); err != nil || envelope.Error.Code == "" {
		return
	}
	e.Code, e.Message = envelope.Error.Code, envelope.Error.Message
}
