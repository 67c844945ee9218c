package client

import (
	"io"
	"time"
)

// The types of a job (IP-006).
const (
	ImageJobTypeProcess = "process_file" // makes variants
	ImageJobTypeDelete  = "delete_file"  // removes the file and its variants
)

// ImageJobStatus is the status of a job (IP-009).
type ImageJobStatus string

// The statuses of a job.
const (
	ImageJobQueued     ImageJobStatus = "queued"
	ImageJobProcessing ImageJobStatus = "processing"
	ImageJobCompleted  ImageJobStatus = "completed"
	ImageJobRetryable  ImageJobStatus = "failed_retryable" // another attempt follows
	ImageJobFailed     ImageJobStatus = "failed"           // it is a dead letter
)

// Final reports whether no attempt follows.
func (s ImageJobStatus) Final() bool { return s == ImageJobCompleted || s == ImageJobFailed }

// ImageFileStatus is the status of a file (G-IP-19).
type ImageFileStatus string

// The statuses of a file.
const (
	ImageFileProcessing ImageFileStatus = "processing" // its first variants are being made
	ImageFileReady      ImageFileStatus = "ready"      // it has variants; more may follow
	ImageFileFailed     ImageFileStatus = "failed"     // it gets none, unless by a replay
	ImageFileDeleted    ImageFileStatus = "deleted"    // also while its objects are removed
)

// ImageUpload is a picture to upload, a JPEG, PNG, GIF or WebP according to its media type
// (G-IP-17). Body is required, and one of Type and Name.
type ImageUpload struct {
	// Body is streamed, so that memory does not grow with it. If it is an [io.Seeker], such as a
	// file, a repeated try reads it again from its present position; otherwise there is only one
	// try. Upload does not close it. A Read that blocks makes Upload block.
	Body io.Reader
	// Type is the media type, such as "image/png". Empty means that of the extension of Name.
	Type string
	// Name is a file name, used for its extension only: it is not sent.
	Name string
	// Sizes are the longer sides of the variants in pixels: at most 20, each from 1 to 8192
	// (G-IP-18). Nil means those of the server's settings.
	Sizes []int
	// UserID is listed with the jobs of the file; empty for none (G-IP-20).
	UserID string
	// CallbackURL receives a request when the job of the upload is completed or failed (WH-005);
	// empty for none. Requests are signed with the secret that `millrace operator secret images`
	// prints; [VerifyWebhook] checks them.
	CallbackURL string
	// IdempotencyKey makes an upload repeatable: the same key returns the same file. Empty means
	// a random one.
	IdempotencyKey string
}

// ImageReceipt is the answer to an upload, which the server has stored.
type ImageReceipt struct {
	FileID string `json:"file_id"`
	// JobID is the id of the job that makes the variants, and Status its status.
	JobID  string         `json:"job_id"`
	Status ImageJobStatus `json:"status"`
	// IdempotencyKey is the key that was sent. It is also set beside an error.
	IdempotencyKey string `json:"-"`
}

// ImageFile is a picture and its variants.
type ImageFile struct {
	ID     string          `json:"file_id"`
	Status ImageFileStatus `json:"status"`
	// Type is the media type of the upload, and the detected one once the file is ready.
	Type  string `json:"mime_type"`
	Bytes int64  `json:"size_bytes"`
	// Width and Height are 0 until the file is ready.
	Width  int `json:"width"`
	Height int `json:"height"`
	// Variants are in the order of their sizes.
	Variants []ImageVariant `json:"variants"`
	// JobID is the id of the file's latest job.
	JobID string `json:"job_id"`
}

// ImageVariant is a variant of a picture. Its longer side has Size pixels, or as many as that of
// the original if that is shorter (G-IP-18).
type ImageVariant struct {
	Size   int   `json:"size"`
	Width  int   `json:"width"`
	Height int   `json:"height"`
	Bytes  int64 `json:"bytes"`
	// Key is the key of its object in the object storage; it ends in .jpg or .png.
	Key string `json:"key"`
	// URL is its path on the server.
	URL string `json:"url"`
}

// ImageJob is a job of a file (IP-007, G-IP-20).
type ImageJob struct {
	ID     string         `json:"job_id"`
	Type   string         `json:"job_type"`
	Status ImageJobStatus `json:"status"`
	FileID string         `json:"file_id"`
	// UserID is the user of the upload; empty for none.
	UserID      string `json:"user_id"`
	Attempts    int    `json:"attempt_count"`
	MaxAttempts int    `json:"max_attempts"`
	// LastError and LastErrorType describe the latest failed attempt; empty when none failed
	// (IP-057).
	LastError     string `json:"last_error"`
	LastErrorType string `json:"last_error_type"`
	// CreatedAt and UpdatedAt are in UTC; LockedAt is nil unless the job is processing.
	CreatedAt time.Time  `json:"created_at"`
	UpdatedAt time.Time  `json:"updated_at"`
	LockedAt  *time.Time `json:"locked_at"`
	// CallbackURL receives a request when the job has finished; empty for none.
	CallbackURL string `json:"callback_url"`
}

// ImageJobSpec is a job for a file that is there. Type and FileID are required.
type ImageJobSpec struct {
	Type   string `json:"type"`
	FileID string `json:"file_id"`
	// Sizes are the longer sides of the variants in pixels; nil means those of the server's
	// settings.
	Sizes []int `json:"sizes,omitempty"`
	// CallbackURL is as in [ImageUpload]; a job of the type [ImageJobTypeDelete] has none.
	CallbackURL string `json:"callback_url,omitempty"`
}

// ImageDeadLetter is a job that was given up (G-IP-08).
type ImageDeadLetter struct {
	JobID     string    `json:"job_id"`
	Type      string    `json:"job_type"`
	FileID    string    `json:"file_id"`
	Error     string    `json:"error"`
	ErrorType string    `json:"error_type"`
	Attempts  int       `json:"attempts"`
	FailedAt  time.Time `json:"failed_at"`
	// ReplayedAt is when it was last replayed, and ReplayedAs the id of the job that was made then.
	// Both are nil for one that was not replayed.
	ReplayedAt *time.Time `json:"replayed_at"`
	ReplayedAs *string    `json:"replayed_as"`
}
