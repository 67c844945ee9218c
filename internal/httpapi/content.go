package httpapi

import (
	"io"
	"net/http"
	"strings"
	"time"
)

// SendContent answers GET and HEAD with content, or with the part that the request
// asks for, unless the caller has it already: http.ServeContent, for slow readers
// too, and without answers in a form of its own. The header says what content is:
// its type, its tag.
//
// Errors: Refusal for a range that is not there and for a precondition that fails,
// and those of content.
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

// withSingleRange is a request without ranges that are passed over: of another method
// or unit (RFC 9110, 14.2), and several at once, each of which may cost a look into
// a far store.
func withSingleRange(r *http.Request) *http.Request {
	given := r.Header.Get("Range")
	if given == "" || (r.Method == http.MethodGet && strings.HasPrefix(given, "bytes=") &&
		!strings.Contains(given, ",")) {
		return r
	}
	r = r.Clone(r.Context())
	r.Header.Del("Range")
	return r
}

// contentWriter gives each piece its time, and keeps a refusal for the table.
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

// contentReader keeps the error that ended it.
type contentReader struct {
	io.ReadSeeker
	err error
}

func (r *contentReader) Read(p []byte) (int, error) {
	n, err := r.ReadSeeker.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}
