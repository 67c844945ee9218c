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

// A large body or answer is moved in pieces of pieceSize, and each may take
// pieceTime: slow links are served, silent ones are not.
const (
	pieceSize = 1 << 20
	pieceTime = 60 * time.Second
)

// giveTime lets the connection have pieceTime from now on. Writers without
// deadlines, as in tests, do without.
func (c *Call) giveTime() {
	deadline := telemetry.Deadline(pieceTime)
	rc := http.NewResponseController(c.ResponseWriter)
	_ = rc.SetReadDeadline(deadline)
	_ = rc.SetWriteDeadline(deadline)
}

// drainTime is how long the rest of a body is waited for that nobody wants any
// more: the connection serves the next request if it comes, and ends if not.
const drainTime = time.Second

// hurry is for an answer that does not wait for the body: without it the server
// would read some of that first, however long it takes to come.
func (c *Call) hurry() {
	if c.HasBody() {
		_ = http.NewResponseController(c.ResponseWriter).SetReadDeadline(telemetry.Deadline(drainTime))
	}
}

func (c *Call) bodyLimit() int64 {
	if c.Route != nil && c.Route.BodyLimit > 0 {
		return c.Route.BodyLimit
	}
	return c.table.BodyLimit
}

func (c *Call) tooLarge() error {
	c.Header().Set("Connection", "close") // there may be no end of it
	return &Refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", c.bodyLimit())}
}

// Body reads the whole body. What is over the limit is a Refusal with
// 413, as soon as it is known; memory grows with what has come, not with what
// was announced.
func (c *Call) Body() ([]byte, error) {
	announced := c.Request.ContentLength
	if announced == 0 {
		return nil, nil
	}
	if announced > c.bodyLimit() {
		return nil, c.tooLarge()
	}
	if announced < 0 {
		announced = 4 << 10
	}
	body := make([]byte, 0, min(announced, pieceSize)+1)
	for given := 0; ; {
		n, err := c.Request.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if int64(len(body)) > c.bodyLimit() {
			return nil, c.tooLarge()
		}
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return nil, c.unreadable(err)
		}
		if len(body)-given >= pieceSize {
			given = len(body)
			c.giveTime()
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
	call        *Call
	read, given int64
}

func (r *bodyReader) Read(p []byte) (int, error) {
	n, err := r.call.Request.Body.Read(p)
	r.read += int64(n)
	switch {
	case r.read > r.call.bodyLimit():
		return 0, r.call.tooLarge()
	case err != nil && err != io.EOF:
		return n, r.call.unreadable(err)
	}
	if r.read-r.given >= pieceSize {
		r.given = r.read
		r.call.giveTime()
	}
	return n, err
}

// discard reads a body nobody wants up to the limit, which holds for every body.
func (c *Call) discard() error {
	n, err := io.Copy(io.Discard, io.LimitReader(c.Request.Body, c.bodyLimit()+1))
	if err != nil {
		return c.unreadable(err)
	}
	if n > c.bodyLimit() {
		return c.tooLarge()
	}
	return nil
}

func (c *Call) unreadable(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.Header().Set("Connection", "close")
		return &Refusal{http.StatusRequestTimeout, "the body came too slowly"}
	}
	return &job.Error{Kind: job.Malformed, Op: "httpapi.body", Msg: "the body could not be read to its end", Err: err}
}

// SaysJSON reports whether the request declares its body as JSON, sent as it is.
func (c *Call) SaysJSON() bool {
	given := c.Request.Header["Content-Type"]
	if len(given) != 1 || Encoded(c.Request.Header) {
		return false
	}
	if given[0] == JSON[0] {
		return true
	}
	kind, _, err := mime.ParseMediaType(given[0])
	return err == nil && (kind == JSON[0] || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"))
}

// ErrNotJSON is the answer to a body that does not say it is JSON.
var ErrNotJSON = &Refusal{http.StatusUnsupportedMediaType, "the body's Content-Type must be application/json, and no Content-Encoding is taken"}

// Encoded reports whether a body comes in another form than its own, such as gzip.
// Whoever does not undo that must not take it.
func Encoded(h http.Header) bool {
	return slices.ContainsFunc(h["Content-Encoding"], func(form string) bool { return form != "" && !strings.EqualFold(form, "identity") })
}

// ErrEncoded is the answer to such a body.
var ErrEncoded = &Refusal{http.StatusUnsupportedMediaType, "no Content-Encoding is taken here"}

// JSONBody is Body for routes that take nothing but JSON. It does not look at
// what the body says.
func (c *Call) JSONBody() ([]byte, error) {
	if !c.SaysJSON() {
		return nil, ErrNotJSON
	}
	return c.Body()
}

// Stream sends a piece of an answer that goes on for as long as somebody reads
// it, and the header with the first, which may be empty: neither this server nor a
// proxy buffers any of it. Between pieces the connection may be silent.
func (c *Call) Stream(piece []byte) error {
	if c.status == 0 {
		c.Header().Set("X-Accel-Buffering", "no") // nginx would buffer the answer
		c.WriteHeader(http.StatusOK)
	}
	rc := http.NewResponseController(c.ResponseWriter)
	_ = rc.SetReadDeadline(time.Time{})
	_ = rc.SetWriteDeadline(telemetry.Deadline(pieceTime))
	if _, err := c.Write(piece); err != nil {
		return err
	}
	err := rc.Flush()
	_ = rc.SetWriteDeadline(time.Time{})
	return err
}
