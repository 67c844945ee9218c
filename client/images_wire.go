package client

import (
	"io"
	"time"
)

// The types of jobs (IP-006).
const (
	ImageProcess = "process_file" // makes variants
	ImageDelete  = "delete_file"  // removes the file and its variants
)

// ImageStatus is where a job is (IP-009).
type ImageStatus string

// The statuses of a job.
const (
	ImageQueued     ImageStatus = "queued"
	ImageProcessing ImageStatus = "processing"
	ImageCompleted  ImageStatus = "completed"
	ImageRetryable  ImageStatus = "failed_retryable" // an attempt failed, another follows
	ImageFailed     ImageStatus = "failed"           // no attempt follows; a dead letter
)

// Final reports whether no attempt follows.
func (s ImageStatus) Final() bool { return s == ImageCompleted || s == ImageFailed }

// ImageFileStatus is where a file is (G-IP-19).
type ImageFileStatus string

// The statuses of a file.
const (
	ImageFileProcessing ImageFileStatus = "processing" // its first variants are to come
	ImageFileReady      ImageFileStatus = "ready"      // it has variants; more may come
	// there will be none, unless a replay makes them
	ImageFileFailed  ImageFileStatus = "failed"
	ImageFileDeleted ImageFileStatus = "deleted" // also while its objects are being removed
)

// ImageUpload is a picture as it is uploaded: JPEG, PNG, GIF or WebP, by what it
// says it is (G-IP-17). Body is needed, and Type or Name.
type ImageUpload struct {
	// Body is streamed: memory does not grow with it. One that is an
	// [io.Seeker], such as a file, is read again from where it stands when a try
	// fails; for any other there is only one try. It is not closed. A read of it
	// that hangs holds the call up.
	Body io.Reader
	// Type is the media type, such as "image/png". Empty means that of Name.
	Type string
	// Name is a file name, for its extension alone: it is not sent.
	Name string
	// Sizes are the longer sides of the variants: at most 20, from 1 to 8192
	// (G-IP-18). Nil means those of the server's settings.
	Sizes []int
	// UserID is shown with the jobs of the file; empty for none (G-IP-20).
	UserID string
	// IdempotencyKey makes an upload repeatable: the same key is the same file.
	// Empty means a random one.
	IdempotencyKey string
}

// ImageReceipt is the acknowledgement of an upload, which is stored by then.
type ImageReceipt struct {
	FileID string `json:"file_id"`
	// JobID is that of the job that makes the variants.
	JobID  string      `json:"job_id"`
	Status ImageStatus `json:"status"` // of the job
	// IdempotencyKey is the one that was sent, also beside an error.
	IdempotencyKey string `json:"-"`
}

// ImageFile is a picture and its variants.
type ImageFile struct {
	ID     string          `json:"file_id"`
	Status ImageFileStatus `json:"status"`
	// Type is what the upload said, and what it really is once that is known.
	Type  string `json:"mime_type"`
	Bytes int64  `json:"size_bytes"`
	// Width and Height are 0 until the file is ready.
	Width  int `json:"width"`
	Height int `json:"height"`
	// Variants are in the order of their sizes.
	Variants []ImageVariant `json:"variants"`
	// JobID is that of the file's latest job.
	JobID string `json:"job_id"`
}

// ImageVariant is a picture whose longer side is Size, or that of the original
// where that is shorter (G-IP-18).
type ImageVariant struct {
	Size   int   `json:"size"`
	Width  int   `json:"width"`
	Height int   `json:"height"`
	Bytes  int64 `json:"bytes"`
	// Key is where it is in the object storage; it ends in .jpg or .png.
	Key string `json:"key"`
	// URL is its path on the server.
	URL string `json:"url"`
}

// ImageJob is a job of a file (IP-007, G-IP-20).
type ImageJob struct {
	ID     string      `json:"job_id"`
	Type   string      `json:"job_type"`
	Status ImageStatus `json:"status"`
	FileID string      `json:"file_id"`
	// UserID is that of the upload; empty for none.
	UserID      string `json:"user_id"`
	Attempts    int    `json:"attempt_count"`
	MaxAttempts int    `json:"max_attempts"`
	// LastError and LastErrorType say why the latest attempt failed; empty where
	// none did (IP-057).
	LastError     string `json:"last_error"`
	LastErrorType string `json:"last_error_type"`
	// CreatedAt and UpdatedAt are in UTC; LockedAt is nil but while processing.
	CreatedAt time.Time  `json:"created_at"`
	UpdatedAt time.Time  `json:"updated_at"`
	LockedAt  *time.Time `json:"locked_at"`
}

// ImageDeadLetter is a job that failed for good (G-IP-08).
type ImageDeadLetter struct {
	JobID     string    `json:"job_id"`
	Type      string    `json:"job_type"`
	FileID    string    `json:"file_id"`
	Error     string    `json:"error"`
	ErrorType string    `json:"error_type"`
	Attempts  int       `json:"attempts"`
	FailedAt  time.Time `json:"failed_at"`
}
