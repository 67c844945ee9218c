package fetchbox

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/telemetry"
)

// Codes of what goes wrong with a download (G-FB-24). An answer of HTTP has HTTP_ and its status.
const (
	codeURL              = "DOWNLOAD_INVALID_URL"
	codeHeader           = "DOWNLOAD_INVALID_HEADER"
	codeRefused          = "DOWNLOAD_ADDRESS_REFUSED" // by the guard
	codeRedirects        = "DOWNLOAD_TOO_MANY_REDIRECTS"
	codeDownloadTooLarge = "DOWNLOAD_TOO_LARGE"
	codeChecksum         = "DOWNLOAD_CHECKSUM_MISMATCH"
	codeTimeout          = "DOWNLOAD_TIMEOUT"
	codeUnknownHost      = "DOWNLOAD_UNKNOWN_HOST"
	codeTLS              = "DOWNLOAD_TLS"
	codeConnection       = "DOWNLOAD_CONNECTION"
	codeTruncated        = "DOWNLOAD_TRUNCATED"
	codeProxy            = "DOWNLOAD_PROXY"
	codeUnknownPool      = "DOWNLOAD_UNKNOWN_PROXY_POOL"

	codeUpload    = "UPLOAD_FAILED"
	codeUploadKey = "UPLOAD_INVALID_KEY"

	codeHandlerTask     = "HANDLER_TASK"     // Adjust refused it
	codeHandlerPanic    = "HANDLER_PANIC"    // or broke
	codeHandlerFinalize = "HANDLER_FINALIZE" // Finalize failed
)

// fetchError is a try that failed.
type fetchError struct {
	code, message string
	retryable     bool          // another try may do better (FB-083)
	delay         time.Duration // that the other end asks for; 0 leaves it to the backoff
	fromStorage   bool
}

func (f *fetchError) Error() string { return f.code + ": " + f.message }

// storageError is an error of the storage.
type storageError struct{ error }

func (s *storageError) Unwrap() error { return s.error }

// errInvalidObjectKey says that a task's object can be nowhere.
var errInvalidObjectKey = &fetchError{code: codeUploadKey,
	message: "the object's bucket or key is not one", fromStorage: true}

// statusError is an answer that is no success.
func statusError(status int) *fetchError {
	retryable := status == http.StatusRequestTimeout || status == http.StatusTooManyRequests ||
		status >= http.StatusInternalServerError
	text := http.StatusText(status)
	if text != "" {
		text = " " + text
	}
	return &fetchError{code: "HTTP_" + strconv.Itoa(status),
		message: "the answer is " + strconv.Itoa(status) + text, retryable: retryable}
}

// toFetchError makes a fault of any error. Messages name nothing of where this runs: neither
// addresses nor proxies.
func (f *FetchBox) toFetchError(err error) *fetchError {
	var (
		known   *fetchError
		storage *storageError
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
	case errors.As(err, &storage):
		return f.storageFetchError(storage.error)
	case errors.As(err, &refused):
		return &fetchError{code: codeRefused,
			message: fmt.Sprintf("the address is refused: %s", refused.Class)}
	case errors.Is(err, egress.ErrRedirects):
		return &fetchError{code: codeRedirects,
			message: fmt.Sprintf("there are more than %d redirects", maxRedirects)}
	case errors.As(err, &url):
		return &fetchError{code: codeURL, message: "in a redirect: " + string(url)}
	case errors.As(err, &proxy):
		return &fetchError{code: codeProxy, message: "no proxy works", retryable: true}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return &fetchError{code: codeTimeout,
			message: fmt.Sprintf("it took longer than %s, or %s to connect", f.DownloadTimeout,
				f.ConnectTimeout), retryable: true}
	case errors.As(err, &dns):
		return &fetchError{code: codeUnknownHost, message: "the host is not known", retryable: true}
	case errors.As(err, &cert), errors.As(err, &record), errors.As(err, &alert):
		return &fetchError{code: codeTLS, message: "there is no secure connection", retryable: true}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &fetchError{code: codeTruncated, message: "the answer ended too early",
			retryable: true}
	}
	return &fetchError{code: codeConnection, message: "the connection failed", retryable: true}
}

// storageFetchError says what is wrong with the storage; the server's log says more.
func (f *FetchBox) storageFetchError(err error) *fetchError {
	switch {
	case job.IsKind(err, job.Invalid), job.IsKind(err, job.Conflict):
		// not a key, or one that lies below an object
		return errInvalidObjectKey
	case job.IsKind(err, job.Timeout), errors.Is(err, context.DeadlineExceeded):
		return &fetchError{code: codeTimeout,
			message: fmt.Sprintf("it took longer than %s", f.DownloadTimeout), retryable: true}
	}
	f.Log.Log(context.Background(), outage.Level(slog.LevelWarn, err),
		"a download cannot be stored", telemetry.ErrorMessage, err)
	return &fetchError{code: codeUpload, message: "the object cannot be stored", retryable: true,
		fromStorage: true}
}
