package fetchbox

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// Codes of failed downloads (G-FB-24). An HTTP answer without success has the code HTTP_ and its
// status.
const (
	codeURL              = "DOWNLOAD_INVALID_URL"        // it is no URL of http or https
	codeHeader           = "DOWNLOAD_INVALID_HEADER"     // a header cannot be sent
	codeRefused          = "DOWNLOAD_ADDRESS_REFUSED"    // by the guard of outbound requests
	codeRedirects        = "DOWNLOAD_TOO_MANY_REDIRECTS" // the origin redirects too often
	codeDownloadTooLarge = "DOWNLOAD_TOO_LARGE"          // above fetchbox.max_download
	codeChecksum         = "DOWNLOAD_CHECKSUM_MISMATCH"  // not the digest of the checksum_hint
	codeTimeout          = "DOWNLOAD_TIMEOUT"            // the origin was too slow
	codeUnknownHost      = "DOWNLOAD_UNKNOWN_HOST"       // the name has no address
	codeTLS              = "DOWNLOAD_TLS"                // the certificate or the handshake failed
	codeConnection       = "DOWNLOAD_CONNECTION"         // the connection failed
	codeTruncated        = "DOWNLOAD_TRUNCATED"          // the body ended before its length
	codeProxy            = "DOWNLOAD_PROXY"              // the proxy failed
	codeUnknownPool      = "DOWNLOAD_UNKNOWN_PROXY_POOL" // the pool is not in the settings

	codeUpload    = "UPLOAD_FAILED"      // the object storage failed
	codeUploadKey = "UPLOAD_INVALID_KEY" // no object can have this name

	codeHandlerTask     = "HANDLER_TASK"     // Adjust of the handler returned an error
	codeHandlerPanic    = "HANDLER_PANIC"    // Adjust of the handler panicked
	codeHandlerFinalize = "HANDLER_FINALIZE" // Finalize of the handler failed

	codeCanceled = "CANCELED" // by an operator (RT-003)

	codeWorkerLost  = "SYSTEM_WORKER_LOST"      // the lease expired without a heartbeat
	codeMalformed   = "SYSTEM_MALFORMED_TASK"   // a direct producer's message is no task
	codeUnknownType = "SYSTEM_UNKNOWN_JOB_TYPE" // its job type is not registered
	codeWorker      = "SYSTEM_WORKER_ERROR"     // a remote worker failed without a code
)

// storageCodes are counted as failures of the storage, all others as failures of the download.
var storageCodes = []string{codeUpload, codeUploadKey}

// taskError says why an attempt at a task failed. Code and message are stored with the task,
// become the last error of its job and part of its dead letter; they name neither addresses nor
// proxies of the place this server runs in. The other fields decide what happens next and are not
// stored.
type taskError struct {
	code, message string
	retryable     bool          // another attempt may succeed (FB-083)
	delay         time.Duration // before that, as the origin asks; 0 leaves it to the backoff
	storing       bool          // the object storage failed, not the origin
	cause         error         // for the log; may be nil
}

// Error implements error.
func (e *taskError) Error() string {
	if e.cause == nil {
		return e.code + ": " + e.message
	}
	return e.code + ": " + e.message + ": " + e.cause.Error()
}

// Unwrap returns the cause.
func (e *taskError) Unwrap() error { return e.cause }

// isStorageFailure reports whether the failure is counted as one of the storage.
func (e *taskError) isStorageFailure() bool { return slices.Contains(storageCodes, e.code) }

// encode returns the failure as it is stored with the task.
func (e *taskError) encode() []byte {
	o := strictjson.NewObject(make([]byte, 0, 64+len(e.message)))
	e.append(&o)
	return o.End()
}

// append writes the members of last_error (FB-057); entries of the log have the same ones.
func (e *taskError) append(o *strictjson.Object) {
	o.Text("code", e.code)
	o.Text("message", e.message)
}

// decodeTaskError reads what encode wrote; ok is false where raw holds no error.
func decodeTaskError(raw []byte) (e taskError, ok bool) {
	for name, value := range strictjson.Members(raw) {
		switch string(name) {
		case "code":
			e.code, _ = strictjson.String(value)
		case "message":
			e.message, _ = strictjson.String(value)
		}
	}
	return e, e.code != ""
}

var (
	// errWorkerLost ends an attempt whose lease expired.
	errWorkerLost = &taskError{code: codeWorkerLost,
		message: "the worker that had the task was lost"}

	// errInvalidObjectKey ends a task whose bucket or key no storage can have.
	errInvalidObjectKey = &taskError{code: codeUploadKey,
		message: "invalid bucket or object key", storing: true}
)

// statusError is the error of an HTTP answer without success. Server errors, 408 and 429 may pass;
// any other status is final (FB-083).
func statusError(status int) *taskError {
	retryable := status == http.StatusRequestTimeout || status == http.StatusTooManyRequests ||
		status >= http.StatusInternalServerError
	text := http.StatusText(status)
	if text != "" {
		text = " " + text
	}
	return &taskError{code: "HTTP_" + strconv.Itoa(status),
		message: "the answer is " + strconv.Itoa(status) + text, retryable: retryable}
}

// storageError is the error of an object that could not be stored. Its message does not repeat
// the cause, which belongs to the server's log.
func (f *FetchBox) storageError(cause error) *taskError {
	switch {
	case job.IsKind(cause, job.Invalid), job.IsKind(cause, job.Conflict):
		// The key is invalid, or lies below another object.
		return errInvalidObjectKey
	case job.IsKind(cause, job.Timeout), errors.Is(cause, context.DeadlineExceeded):
		return &taskError{code: codeTimeout, storing: true, retryable: true, cause: cause,
			message: fmt.Sprintf("it took longer than %s", f.DownloadTimeout)}
	}
	return &taskError{code: codeUpload, storing: true, retryable: true, cause: cause,
		message: "the object cannot be stored"}
}

// toTaskError classifies any error of a download. One error may match several cases, such as a
// proxy that timed out, so the specific cases come first. What none of them matches is a failed
// connection, which may pass.
func (f *FetchBox) toTaskError(err error) *taskError {
	var (
		known   *taskError
		refused *egress.RefusedError
		url     egress.InvalidURLError
		proxy   *egress.ProxyError
		dns     *net.DNSError
		timeout net.Error
		cert    *tls.CertificateVerificationError
		record  tls.RecordHeaderError
		alert   tls.AlertError
	)
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &refused):
		return &taskError{code: codeRefused,
			message: fmt.Sprintf("the address is refused: %s", refused.Class)}
	case errors.Is(err, egress.ErrRedirects):
		return &taskError{code: codeRedirects,
			message: fmt.Sprintf("there are more than %d redirects", maxRedirects)}
	case errors.As(err, &url):
		return &taskError{code: codeURL, message: "in a redirect: " + string(url)}
	case errors.As(err, &proxy):
		return &taskError{code: codeProxy, message: "no proxy works", retryable: true}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return &taskError{code: codeTimeout, retryable: true,
			message: fmt.Sprintf("it took longer than %s, or %s to connect",
				f.DownloadTimeout, f.ConnectTimeout)}
	case errors.As(err, &dns):
		return &taskError{code: codeUnknownHost, message: "unknown host", retryable: true}
	case errors.As(err, &cert), errors.As(err, &record), errors.As(err, &alert):
		return &taskError{code: codeTLS, message: "the TLS connection failed", retryable: true}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &taskError{code: codeTruncated, message: "the answer ended too early",
			retryable: true}
	}
	return &taskError{code: codeConnection, message: "the connection failed", retryable: true}
}
