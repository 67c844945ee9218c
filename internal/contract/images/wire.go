package images

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
	"github.com/millrace/millrace/internal/webhook"
)

// jobInput is the definition of a job: what was uploaded, and the sizes to make of it.
type jobInput struct {
	MIME   string `json:"mime_type"` // as declared
	Bytes  int64  `json:"size_bytes"`
	UserID string `json:"user_id,omitempty"`
	Sizes  []int  `json:"sizes,omitempty"` // of process_file
}

// encode returns what the store keeps as the definition of the job.
func (u *jobInput) encode() []byte {
	text, _ := json.Marshal(u) // strings and numbers: it cannot fail
	return text
}

// uploadOf reads what encode wrote; members that cannot be read stay empty.
func uploadOf(j *job.Job) (u jobInput) {
	_ = json.Unmarshal(j.Definition, &u)
	return u
}

// processResult is the result of a completed process_file job, also as remote workers send it.
type processResult struct {
	MIME     string    `json:"mime_type"` // of the original, detected
	Width    int       `json:"width"`
	Height   int       `json:"height"`
	Variants []variant `json:"variants"`
}

// variant is one variant of a file: the size that was requested, and what was made for it.
type variant struct {
	Size   int    `json:"size"`
	Width  int    `json:"width"`
	Height int    `json:"height"`
	Bytes  int64  `json:"bytes"`
	Key    string `json:"key"`
}

// encode returns what the store keeps as the result of the job.
func (m *processResult) encode() []byte {
	text, _ := json.Marshal(m)
	return text
}

// failure says why an attempt failed, as it is stored with the job.
type failure struct {
	Error string `json:"error"`
	Type  string `json:"error_type"`
	// Failures counts the failed attempts of the job, with this one. If the job has more, a later
	// attempt was lost or released, which stores no failure.
	Failures int `json:"failures"`
}

// encode returns what the store keeps as the failure of the job.
func (f *failure) encode() []byte {
	text, _ := json.Marshal(f)
	return text
}

const (
	textWorkerLost = "the worker was lost or released the job"
	textCanceled   = "the job was canceled"
)

// lastFailure is the latest failure of a job (IP-057), nil if there was none. A lost or released
// attempt stores no failure, but the engine counts it: so the count of the stored failure is then
// behind that of the job.
func lastFailure(j *job.Job) *failure {
	var f failure
	if j.Failure != nil {
		_ = json.Unmarshal(j.Failure, &f)
	}
	if j.FailedAttempts > f.Failures {
		return &failure{Error: textWorkerLost, Type: typeWorkerLost, Failures: j.FailedAttempts}
	}
	if j.Failure == nil {
		return nil
	}
	return &f
}

// The keys of objects.
const keyPrefix = "images/"

// The prefix ends with a slash, so that of one file is never the beginning of another one's.
func filePrefix(fileID string) string  { return keyPrefix + fileID + "/" }
func originalKey(fileID string) string { return filePrefix(fileID) + "original" }

// variantStem is the key of a variant without its extension, which depends on the type.
func variantStem(fileID string, size int) string { return filePrefix(fileID) + strconv.Itoa(size) }

// variantExtensions are the extensions of variants, by type.
var variantExtensions = map[string]string{"image/jpeg": ".jpg", "image/png": ".png"}

// variantMIME is the type of a variant by its key; "" if the key is not that of a file's variant of
// this size.
func variantMIME(key, fileID string, size int) string {
	for mime, ext := range variantExtensions {
		if key == variantStem(fileID, size)+ext {
			return mime
		}
	}
	return ""
}

// workerPayload is the payload of a job in the worker API: the members of its message (IP-008), and
// the keys that its objects must have.
func workerPayload(j *job.Job) []byte {
	o := strictjson.NewObject(make([]byte, 0, 512))
	appendMessage(&o, j)
	if j.Queue == processFile {
		u := uploadOf(j)
		stems := make([]string, len(u.Sizes))
		for i, size := range u.Sizes {
			stems[i] = variantStem(j.Owner, size)
		}
		o.Texts("variantKeys", stems) // without .jpg or .png
	} else {
		o.Text("prefix", filePrefix(j.Owner))
	}
	return o.End()
}

// appendMessage writes the members of a message in the order of the document (IP-008).
func appendMessage(o *strictjson.Object, j *job.Job) {
	u := uploadOf(j)
	o.Text("jobId", j.ID.Key)
	o.Text("type", j.Queue)
	o.Text("fileId", j.Owner)
	o.Optional("userId", u.UserID)
	if j.Queue == processFile {
		o.Text("storageKey", originalKey(j.Owner))
		sizes, _ := json.Marshal(u.Sizes)
		o.Raw("requestedSizes", sizes)
	}
}

// proposalMessage is the message that proposes a job.
func proposalMessage(j *job.Job) []byte {
	o := strictjson.NewObject(make([]byte, 0, 256))
	appendMessage(&o, j)
	return o.End()
}

// proposedJob is the job that a message proposes; ok is false for a message that proposes none, as
// others may write to the queue.
func proposedJob(text []byte) (job.ID, bool) {
	var m struct {
		JobID string `json:"jobId"`
	}
	if json.Unmarshal(text, &m) != nil {
		return job.ID{}, false
	}
	key, ok := uuids.Parse(m.JobID)
	return engineJobID(key), ok
}

// engineJobID returns the identity of a job by its id.
func engineJobID(key string) job.ID { return job.ID{JobType: Name, Key: key} }

// appendJob writes a job as clients see it (IP-007, G-IP-20).
func appendJob(o *strictjson.Object, j *job.Job) {
	o.Text("job_id", j.ID.Key)
	o.Text("job_type", j.Queue)
	o.Text("status", statusOf(j.State))
	o.Text("file_id", j.Owner)
	u := uploadOf(j)
	o.Optional("user_id", u.UserID)
	o.Int("attempt_count", int64(j.Attempts))
	o.Int("max_attempts", int64(j.MaxAttempts))
	if f := lastFailure(j); f != nil {
		o.Text("last_error", f.Error)
		o.Text("last_error_type", f.Type)
	} else {
		o.Null("last_error")
		o.Null("last_error_type")
	}
	o.Time("created_at", j.CreatedAt)
	o.Time("updated_at", j.UpdatedAt)
	o.Time("locked_at", lockedAt(j))
	if j.Callback != "" {
		o.Text("callback_url", webhook.DecodeCallback(j.Callback).URL)
	}
}

// lockedAt is when the lease was taken or renewed last; zero if there is none.
func lockedAt(j *job.Job) time.Time {
	switch j.State {
	case processing:
		return j.LeaseUntil.Add(-j.Lease)
	case stale:
		return j.StartedAt
	}
	return time.Time{}
}

// appendDeadLetter writes a job that failed as a dead letter (G-IP-20).
func appendDeadLetter(o *strictjson.Object, j *job.Job, r replayOf) {
	o.Text("job_id", j.ID.Key)
	o.Text("job_type", j.Queue)
	o.Text("file_id", j.Owner)
	f := lastFailure(j)
	if f == nil {
		f = &failure{Error: textCanceled, Type: typeCanceled}
	}
	o.Text("error", f.Error)
	o.Text("error_type", f.Type)
	o.Int("attempts", int64(j.Attempts))
	o.Time("failed_at", j.FinishedAt)
	o.Time("replayed_at", r.at)
	o.Optional("replayed_as", r.as)
}

// The sizes of variants (G-IP-18).
const (
	maxVariantSize  = 8192
	maxVariantSizes = 20
)

// validSizes reports whether there are 1 to maxVariantSizes sizes of 1 to maxVariantSize pixels.
func validSizes(sizes []int) bool {
	return len(sizes) > 0 && len(sizes) <= maxVariantSizes &&
		!slices.ContainsFunc(sizes, func(n int) bool {
			return n < 1 || n > maxVariantSize
		})
}

var errSizes = invalid("sizes must be 1 to 20 whole numbers from 1 to 8192, such as 100,400")

// readSizes parses a list such as 100,400. The number of words is bounded before they are sorted.
func readSizes(text string) ([]int, error) {
	var sizes []int
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || len(word) > 32 || len(sizes) > 1000 {
			return nil, errSizes
		}
		sizes = append(sizes, n)
	}
	return mergeSizes(sizes)
}

// mergeSizes sorts sizes, removes duplicates and validates the rest.
func mergeSizes(sizes []int) ([]int, error) {
	slices.Sort(sizes)
	if sizes = slices.Compact(sizes); !validSizes(sizes) {
		return nil, errSizes
	}
	return sizes, nil
}
