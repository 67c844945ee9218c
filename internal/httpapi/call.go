package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/telemetry"
)

// Call is one request on its way through a table, and its answer.
type Call struct {
	http.ResponseWriter
	Request *http.Request
	Route   *Route // nil until one matched

	router     *Router
	pathValues [maxPathValues]string
	stopwatch  telemetry.Stopwatch
	id         string
	status     int // of the answer; 0 while there is none
	err        error
	attrList   *attrList
	span       trace.Span // nil when there is none
}

func newCall(t *Router, w http.ResponseWriter, r *http.Request) *Call {
	return &Call{ResponseWriter: w, Request: r, router: t, stopwatch: telemetry.StartStopwatch()}
}

// Member returns a member of the path, decoded. Asking for one that the pattern
// does not have is a defect.
func (c *Call) PathValue(name string) string {
	for i, n := range c.Route.pathValueNames {
		if n == name {
			return c.pathValues[i]
		}
	}
	panic("the route has no member " + name)
}

// maxRequestID bounds what is taken over from a caller.
const maxRequestID = 128

// RequestID is the caller's X-Request-Id, if that is short and plain, or a
// number of our own.
func (c *Call) RequestID() string {
	if c.id == "" {
		if c.id = c.Request.Header.Get("X-Request-Id"); !validRequestID(c.id) {
			c.id = c.router.requestIDPrefix + "-" +
				strconv.FormatUint(c.router.requestCount.Add(1), 10)
		}
	}
	return c.id
}

func validRequestID(id string) bool {
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return id != "" && len(id) <= maxRequestID
}

// attrList are what handlers add to the line of a request. A handler that was given
// up may still add some.
type attrList struct {
	mu    sync.Mutex
	attrs []slog.Attr
}

// AddAttrs adds to the line that is logged of this request and to its span.
func (c *Call) AddAttrs(attrs ...slog.Attr) {
	if c.attrList == nil {
		c.attrList = &attrList{}
	}
	c.attrList.mu.Lock()
	defer c.attrList.mu.Unlock()
	c.attrList.attrs = append(c.attrList.attrs, attrs...)
}

// attrs returns what was noted.
func (c *Call) attrs() []slog.Attr {
	if c.attrList == nil {
		return nil
	}
	c.attrList.mu.Lock()
	defer c.attrList.mu.Unlock()
	return slices.Clone(c.attrList.attrs)
}

// WriteHeader notes the status.
func (c *Call) WriteHeader(status int) {
	if c.status == 0 && status >= http.StatusOK {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write notes the status.
func (c *Call) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	return c.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (c *Call) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Send answers with a body. The header is shared: contentType is not copied.
func (c *Call) Send(status int, contentType []string, body []byte) {
	h := c.Header()
	h["Content-Type"] = contentType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	c.WriteHeader(status)
	c.write(body)
}

// write sends a body in pieces, so that a slow reader has its time for each.
func (c *Call) write(body []byte) {
	for len(body) > chunkSize {
		c.extendDeadlines()
		if _, err := c.Write(body[:chunkSize]); err != nil {
			return // the caller went away
		}
		body = body[chunkSize:]
	}
	_, _ = c.Write(body)
}

// Content types as header values.
var (
	JSON = []string{"application/json"}
	Text = []string{"text/plain; charset=utf-8"}
)

// fail answers an error through the table, unless an answer has begun: then the
// connection is cut, so that nobody takes half an answer for a whole one.
func (c *Call) fail(err error) {
	c.err = err
	if c.status != 0 {
		c.log(slog.LevelError)
		c.err = nil
		panic(http.ErrAbortHandler)
	}
	h := c.Header()
	h.Set("X-Request-Id", c.RequestID())
	h.Set("X-Content-Type-Options", "nosniff")
	c.shortenReadDeadline()
	c.router.WriteError(c, err)
}

// finish closes the books on a call: a panic is answered, the route observed, the
// line logged.
func (c *Call) finish() {
	if p := recover(); p != nil {
		if e, ok := p.(error); ok && errors.Is(e, http.ErrAbortHandler) {
			panic(http.ErrAbortHandler)
		}
		c.logPanic(p)
		c.fail(errPanic)
	}
	if c.status == 0 {
		c.status = http.StatusOK // as net/http does
	}
	c.observe()
	c.log(c.level())
}

func (c *Call) observe() {
	switch {
	case c.Route == nil && c.router.ObserveUnmatched != nil:
		c.router.ObserveUnmatched(methodLabel(c.Request.Method), c.status, c.stopwatch.Elapsed())
	case c.Route != nil && c.Route.Observe != nil:
		c.Route.Observe(c.status, c.stopwatch.Elapsed())
	}
}

// methodLabel is a method of a request, or "other" if it is none of HTTP's.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

func (c *Call) logPanic(p any) {
	c.router.Log.Error("a handler panicked", telemetry.RequestID, c.RequestID(),
		telemetry.ErrorMessage, fmt.Sprint(p), telemetry.Stack, string(debug.Stack()))
}

// level is how much an answer matters to whoever runs the server.
func (c *Call) level() slog.Level {
	normal := slog.LevelDebug
	if c.router.Info {
		normal = slog.LevelInfo
	}
	switch {
	case c.err == nil || c.err == errPanic || outage.Is(c.err) || c.Request.Context().Err() != nil:
		return normal // a part that is away tells of itself
	case c.status == http.StatusServiceUnavailable:
		return slog.LevelWarn
	case c.status >= http.StatusInternalServerError:
		return slog.LevelError
	}
	return normal
}

func (c *Call) log(level slog.Level) {
	ctx := c.Request.Context()
	if !c.router.Log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String(telemetry.RequestID, c.RequestID()),
		slog.String(telemetry.Method, c.Request.Method),
		slog.Int(telemetry.Status, c.status),
		slog.Duration(telemetry.Duration, c.stopwatch.Elapsed()),
		slog.String(telemetry.Remote, c.Request.RemoteAddr),
	}
	if c.Route != nil {
		attrs = append(attrs, slog.String(telemetry.Route, c.Route.Pattern))
		if c.Route.Action != "" {
			attrs = append(attrs, slog.String(telemetry.Action, c.Route.Action))
		}
	}
	attrs = append(attrs, c.attrs()...)
	if c.err != nil {
		attrs = append(attrs, slog.String(telemetry.ErrorMessage, c.err.Error()))
	}
	c.router.Log.LogAttrs(ctx, level, "request", attrs...)
}
