package httpapi

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// SendContent answers GET and HEAD with content: all of it, the requested range, or 304 when the
// caller has it already. It is http.ServeContent with two differences: slow readers are served, and
// errors are returned instead of written. Content-Type and ETag are taken from the header that the
// caller of SendContent has set.
//
// Errors: a StatusError for a range that does not exist and for a failed precondition, and the
// errors of content.
func (c *Call) SendContent(modified time.Time, content io.ReadSeeker) error {
	w, r := &contentWriter{Call: c}, &contentReader{ReadSeeker: content}
	http.ServeContent(w, withSingleRange(c.Request), "", modified, r)
	if r.err != nil {
		return r.err
	}
	if w.refusedStatus != 0 {
		return &StatusError{w.refusedStatus, strings.ToLower(http.StatusText(w.refusedStatus))}
	}
	return nil
}

// withSingleRange returns the request without a Range header that is to be ignored: one of
// another method or unit (RFC 9110, section 14.2), and one with several ranges, each of which
// may cost a request to a remote object store.
func withSingleRange(r *http.Request) *http.Request {
	given := r.Header.Get("Range")
	single := strings.HasPrefix(given, "bytes=") && !strings.Contains(given, ",")
	if given == "" || (single && r.Method == http.MethodGet) {
		return r
	}
	r = r.Clone(r.Context())
	r.Header.Del("Range")
	return r
}

// contentWriter extends the deadlines as the content moves, and keeps the status of an error for
// SendContent instead of writing it.
type contentWriter struct {
	*Call
	refusedStatus int
	written       int
}

func (w *contentWriter) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		w.refusedStatus = status
		return
	}
	w.Call.WriteHeader(status)
}

func (w *contentWriter) Write(p []byte) (int, error) {
	if w.refusedStatus != 0 {
		return len(p), nil
	}
	if w.written += len(p); w.written >= chunkSize {
		w.written = 0
		w.extendDeadlines()
	}
	return w.Call.Write(p)
}

// contentReader remembers the error that ended the reading.
type contentReader struct {
	io.ReadSeeker
	err error
}

func (r *contentReader) Read(p []byte) (int, error) {
	n, err := r.ReadSeeker.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
