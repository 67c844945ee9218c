package httpapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// A large body or answer is moved in chunks, each with a timeout of its own: slow links are
// served, silent ones are not.
const (
	chunkSize    = 1 << 20
	chunkTimeout = 60 * time.Second
)

// extendDeadlines gives the connection chunkTimeout from now on. Writers without deadlines, as
// in tests, are left as they are.
func (c *Call) extendDeadlines() {
	deadline := telemetry.Deadline(chunkTimeout)
	rc := http.NewResponseController(c.ResponseWriter)
	_ = rc.SetReadDeadline(deadline)
	_ = rc.SetWriteDeadline(deadline)
}

// drainTimeout is how long the server waits for the rest of a body that is not needed. If the
// rest comes, the connection serves the next request; if not, it is closed.
const drainTimeout = time.Second

// shortenReadDeadline is called before an answer that does not need the body. Without it
// net/http would first read some of the body, however slowly that comes.
//
// A body that has ended gets no deadline: behind it net/http waits for the caller to leave, and
// would take the deadline for that. Then all further requests of the connection are canceled from
// their beginning on.
func (c *Call) shortenReadDeadline() {
	if c.HasBody() && !c.bodyEnded.Load() {
		_ = http.NewResponseController(c.ResponseWriter).SetReadDeadline(
			telemetry.Deadline(drainTimeout))
	}
}

// noteBodyEnded records that the body was read to its end.
func (c *Call) noteBodyEnded() {
	c.bodyEnded.Store(true)
	if c.outer != nil {
		c.outer.bodyEnded.Store(true)
	}
}

func (c *Call) bodyLimit() int64 {
	if c.Route != nil && c.Route.BodyLimit > 0 {
		return c.Route.BodyLimit
	}
	return c.router.BodyLimit
}

func (c *Call) tooLargeError() error {
	c.Header().Set("Connection", "close") // the rest of the body may be endless
	return &StatusError{http.StatusRequestEntityTooLarge,
		fmt.Sprintf("the body is larger than %d bytes", c.bodyLimit())}
}

// Body reads the whole body. A body over the limit is refused with 413 as soon as that is known.
// Memory grows with what was received, not with the announced length.
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
		if errors.Is(err, io.EOF) {
			c.noteBodyEnded()
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

// Reader returns the body as a stream, for bodies that need not be in memory as a whole. It has
// the limit and the errors of Body.
func (c *Call) Reader() io.Reader { return &bodyReader{call: c} }

type bodyReader struct {
	call             *Call
	read, extendedAt int64
}

func (r *bodyReader) Read(p []byte) (int, error) {
	n, err := r.call.Request.Body.Read(p)
	r.read += int64(n)
	if errors.Is(err, io.EOF) {
		r.call.noteBodyEnded()
	}
	switch {
	case r.read > r.call.bodyLimit():
		return 0, r.call.tooLargeError()
	case err != nil && !errors.Is(err, io.EOF):
		return n, r.call.bodyError(err)
	}
	if r.read-r.extendedAt >= chunkSize {
		r.extendedAt = r.read
		r.call.extendDeadlines()
	}
	return n, err
}

// discardBody reads a body that the route does not need. The limit holds for it too.
func (c *Call) discardBody() error {
	n, err := io.Copy(io.Discard, io.LimitReader(c.Request.Body, c.bodyLimit()+1))
	if err != nil {
		return c.bodyError(err)
	}
	if n > c.bodyLimit() {
		return c.tooLargeError()
	}
	c.noteBodyEnded()
	return nil
}

// bodyError translates a failed read: a deadline is 408, everything else a malformed body.
func (c *Call) bodyError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.Header().Set("Connection", "close")
		return &StatusError{http.StatusRequestTimeout, "the body came too slowly"}
	}
	return &job.Error{Kind: job.Malformed, Op: "httpapi.body",
		Msg: "the body could not be read to its end", Err: err}
}

// HasJSONContentType reports whether the request declares its body as JSON, by application/json or
// a type that ends in +json, without a content encoding.
func (c *Call) HasJSONContentType() bool {
	header := c.Request.Header["Content-Type"]
	if HasContentEncoding(c.Request.Header) {
		return false
	}
	if len(header) == 1 && header[0] == JSON[0] {
		return true // the usual case, without parsing
	}
	kind, ok := mediaType(header)
	suffixed := strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
	return ok && (kind == JSON[0] || suffixed)
}

// ErrNotJSON answers a body that is not declared as JSON.
var ErrNotJSON = &StatusError{http.StatusUnsupportedMediaType,
	"the body's Content-Type must be application/json, without a Content-Encoding"}

// HasContentEncoding reports whether a body is encoded, for example with gzip. Code that does
// not decode it must refuse it.
func HasContentEncoding(h http.Header) bool {
	return slices.ContainsFunc(h["Content-Encoding"], func(encoding string) bool {
		return encoding != "" && !strings.EqualFold(encoding, "identity")
	})
}

// ErrContentEncoding answers an encoded body.
var ErrContentEncoding = &StatusError{http.StatusUnsupportedMediaType,
	"unsupported Content-Encoding"}

// JSONBody is Body for routes that accept nothing but JSON. It checks the declared type and does
// not parse the body.
func (c *Call) JSONBody() ([]byte, error) {
	if !c.HasJSONContentType() {
		return nil, ErrNotJSON
	}
	return c.Body()
}

// OptionalJSONBody is JSONBody for routes whose body may be left out. It returns the body without
// the white space around it; of none the length is 0 and the declared type does not matter.
func (c *Call) OptionalJSONBody() ([]byte, error) {
	body, err := c.Body()
	if err != nil {
		return nil, err
	}
	body = strictjson.Trim(body)
	if len(body) > 0 && !c.HasJSONContentType() {
		return nil, ErrNotJSON
	}
	return body, nil
}

// Stream sends one chunk of an answer that goes on for as long as the caller reads it, and the
// header with the first chunk, which may be empty. Neither this server nor a proxy buffers any of
// it. Between chunks the connection may be silent.
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
