package httpapi

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// A large body or answer is moved in pieces of chunkSize, and each may take
// chunkTimeout: slow links are served, silent ones are not.
const (
	chunkSize    = 1 << 20
	chunkTimeout = 60 * time.Second
)

// extendDeadlines lets the connection have chunkTimeout from now on. Writers without
// deadlines, as in tests, do without.
func (c *Call) extendDeadlines() {
	deadline := telemetry.Deadline(chunkTimeout)
	rc := http.NewResponseController(c.ResponseWriter)
	_ = rc.SetReadDeadline(deadline)
	_ = rc.SetWriteDeadline(deadline)
}

// drainTimeout is how long the rest of a body is waited for that nobody wants any
// more: the connection serves the next request if it comes, and ends if not.
const drainTimeout = time.Second

// shortenReadDeadline is for an answer that does not wait for the body: without it the server
// would read some of that first, however long it takes to come.
func (c *Call) shortenReadDeadline() {
	if c.HasBody() {
		_ = http.NewResponseController(c.ResponseWriter).SetReadDeadline(
			telemetry.Deadline(drainTimeout))
	}
}

func (c *Call) bodyLimit() int64 {
	if c.Route != nil && c.Route.BodyLimit > 0 {
		return c.Route.BodyLimit
	}
	return c.router.BodyLimit
}

func (c *Call) tooLargeError() error {
	c.Header().Set("Connection", "close") // there may be no end of it
	return &StatusError{http.StatusRequestEntityTooLarge,
		fmt.Sprintf("the body is larger than %d bytes", c.bodyLimit())}
}

// Body reads the whole body. What is over the limit is a Refusal with
// 413, as soon as it is known; memory grows with what has come, not with what
// was announced.
func (c *Call) Body() ([]byte, error) {
	contentLength := c.Request.ContentLength
	if contentLength == 0 {
		return nil, nil
	}
	if contentLength > c.bodyLimit() {
		return nil, c.tooLargeError()
	}
	if contentLength < 0 {
		contentLength = 4 << 10
	}
	body := make([]byte, 0, min(contentLength, chunkSize)+1)
	for extendedAt := 0; ; {
		n, err := c.Request.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if int64(len(body)) > c.bodyLimit() {
			return nil, c.tooLargeError()
		}
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return nil, c.bodyError(err)
		}
		if len(body)-extendedAt >= chunkSize {
			extendedAt = len(body)
			c.extendDeadlines()
		}
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)] // grow
		}
	}
}

// Reader is the body as a stream, for what need not be in memory whole: the limit is
// that of Body, and so are its errors.
func (c *Call) Reader() io.Reader { return &bodyReader{call: c} }

type bodyReader struct {
	call             *Call
	read, extendedAt int64
}

func (r *bodyReader) Read(p []byte) (int, error) {
	n, err := r.call.Request.Body.Read(p)
	r.read += int64(n)
	switch {
	case r.read > r.call.bodyLimit():
		return 0, r.call.tooLargeError()
	case err != nil && err != io.EOF:
		return n, r.call.bodyError(err)
	}
	if r.read-r.extendedAt >= chunkSize {
		r.extendedAt = r.read
		r.call.extendDeadlines()
	}
	return n, err
}

// discardBody reads a body nobody wants up to the limit, which holds for every body.
func (c *Call) discardBody() error {
	n, err := io.Copy(io.Discard, io.LimitReader(c.Request.Body, c.bodyLimit()+1))
	if err != nil {
		return c.bodyError(err)
	}
	if n > c.bodyLimit() {
		return c.tooLargeError()
	}
	return nil
}

func (c *Call) bodyError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.Header().Set("Connection", "close")
		return &StatusError{http.StatusRequestTimeout, "the body came too slowly"}
	}
	return &job.Error{Kind: job.Malformed, Op: "httpapi.body",
		Msg: "the body could not be read to its end", Err: err}
}

// HasJSONContentType reports whether the request declares its body as JSON, sent as it is.
func (c *Call) HasJSONContentType() bool {
	given := c.Request.Header["Content-Type"]
	if len(given) != 1 || HasContentEncoding(c.Request.Header) {
		return false
	}
	if given[0] == JSON[0] {
		return true
	}
	kind, _, err := mime.ParseMediaType(given[0])
	return err == nil && (kind == JSON[0] ||
		(strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")))
}

// ErrNotJSON is the answer to a body that does not say it is JSON.
var ErrNotJSON = &StatusError{http.StatusUnsupportedMediaType,
	"the body's Content-Type must be application/json, and no Content-Encoding is taken"}

// HasContentEncoding reports whether a body comes in another form than its own, such as gzip.
// Whoever does not undo that must not take it.
func HasContentEncoding(h http.Header) bool {
	return slices.ContainsFunc(h["Content-Encoding"], func(encoding string) bool {
		return encoding != "" && !strings.EqualFold(encoding, "identity")
	})
}

// ErrContentEncoding is the answer to such a body.
var ErrContentEncoding = &StatusError{http.StatusUnsupportedMediaType,
	"no Content-Encoding is taken here"}

// JSONBody is Body for routes that take nothing but JSON. It does not look at
// what the body says.
func (c *Call) JSONBody() ([]byte, error) {
	if !c.HasJSONContentType() {
		return nil, ErrNotJSON
	}
	return c.Body()
}

// Stream sends a piece of an answer that goes on for as long as somebody reads
// it, and the header with the first, which may be empty: neither this server nor a
// proxy buffers any of it. Between pieces the connection may be silent.
func (c *Call) Stream(chunk []byte) error {
	if c.status == 0 {
		c.Header().Set("X-Accel-Buffering", "no") // nginx would buffer the answer
		c.WriteHeader(http.StatusOK)
	}
	rc := http.NewResponseController(c.ResponseWriter)
	_ = rc.SetReadDeadline(time.Time{})
	_ = rc.SetWriteDeadline(telemetry.Deadline(chunkTimeout))
	if _, err := c.Write(chunk); err != nil {
		return err
	}
	err := rc.Flush()
	_ = rc.SetWriteDeadline(time.Time{})
	return err
}
