package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/telemetry"
)

// Call is one request on its way through a Router, and the answer to it. Handlers read the
// request and write the answer through it; it is used by one goroutine at a time.
type Call struct {
	http.ResponseWriter
	Request *http.Request
	Route   *Route // nil until a route has matched

	// The route's Guard sets these for the handler.
	Identity any    // the authenticated caller, in a type of the contract's; nil: none
	Content  []byte // the body

	router     *Router
	pathValues [maxPathValues]string
	stopwatch  telemetry.Stopwatch
	id         string
	status     int         // of the answer; 0 while there is none
	err        error       // the error that was answered
	bodyEnded  atomic.Bool // it was read to its end
	outer      *Call       // whose Timeout bounds this one, see withWriter
	attrList   *attrList
	span       trace.Span // nil when there is none

	contentLength [1]string // the header's value, kept here to save an allocation
}

// newCall makes the call of one request.
func newCall(r *Router, w http.ResponseWriter, req *http.Request) *Call {
	return &Call{ResponseWriter: w, Request: req, router: r, stopwatch: telemetry.StartStopwatch()}
}

// Context returns the context of the request, which ends when the caller has left or the router's
// Timeout has passed.
func (c *Call) Context() context.Context { return c.Request.Context() }

// Elapsed returns how long the call has taken until now.
func (c *Call) Elapsed() time.Duration { return c.stopwatch.Elapsed() }

// PathValue returns a member of the path, decoded. It panics when the pattern has no member of
// that name: the handler and its route contradict each other.
func (c *Call) PathValue(name string) string {
	for i, n := range c.Route.pathValueNames {
		if n == name {
			return c.pathValues[i]
		}
	}
	panic("the route has no member " + name)
}

// maxRequestID bounds the id that is taken over from a caller.
const maxRequestID = 128

// RequestID returns the caller's X-Request-Id, if it is short and printable ASCII, and otherwise
// an id that is unique to this process.
func (c *Call) RequestID() string {
	if c.id == "" {
		if c.id = c.Request.Header.Get("X-Request-Id"); !validRequestID(c.id) {
			c.id = c.router.requestIDPrefix + "-" +
				strconv.FormatUint(c.router.requestCount.Add(1), 10)
		}
	}
	return c.id
}

// validRequestID reports whether a request id of a caller may be used in logs and answers.
func validRequestID(id string) bool {
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return id != "" && len(id) <= maxRequestID
}

// attrList holds what handlers add to the log line of a request. It has a lock because the answer
// to a timeout may add attributes while the handler does.
type attrList struct {
	mu    sync.Mutex
	attrs []slog.Attr
}

// AddAttrs adds attributes to the log line and to the span of the request.
func (c *Call) AddAttrs(attrs ...slog.Attr) {
	if c.attrList == nil {
		c.attrList = &attrList{}
	}
	c.attrList.mu.Lock()
	defer c.attrList.mu.Unlock()
	c.attrList.attrs = append(c.attrList.attrs, attrs...)
}

// attrs returns the attributes that were added.
func (c *Call) attrs() []slog.Attr {
	if c.attrList == nil {
		return nil
	}
	c.attrList.mu.Lock()
	defer c.attrList.mu.Unlock()
	return slices.Clone(c.attrList.attrs)
}

// WriteHeader implements http.ResponseWriter and records the status.
func (c *Call) WriteHeader(status int) {
	if c.status == 0 && status >= http.StatusOK {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter and records the status.
func (c *Call) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	return c.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (c *Call) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Send answers with a body. The slice contentType is shared by all answers and not copied.
func (c *Call) Send(status int, contentType []string, body []byte) {
	h := c.Header()
	h["Content-Type"] = contentType
	c.contentLength[0] = strconv.Itoa(len(body))
	h["Content-Length"] = c.contentLength[:]
	c.WriteHeader(status)
	c.write(body)
}

// write sends a body in pieces, each with deadlines of its own, for slow readers.
func (c *Call) write(body []byte) {
	for len(body) > chunkSize {
		c.extendDeadlines()
		if _, err := c.Write(body[:chunkSize]); err != nil {
			return // the request was canceled
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

// fail answers an error through the router, unless an answer has begun. Then it cuts the
// connection, so that the caller cannot take half an answer for a complete one.
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

// finish ends a call: it answers a panic, observes the route and logs the request. It is
// deferred, since it recovers.
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

// observe counts the request and reports status and duration to the metrics of the route.
func (c *Call) observe() {
	c.router.answered.Add(1)
	if c.status >= http.StatusInternalServerError {
		c.router.answeredErrors.Add(1)
	}
	switch {
	case c.Route == nil && c.router.ObserveUnmatched != nil:
		c.router.ObserveUnmatched(methodLabel(c.Request.Method), c.status, c.stopwatch.Elapsed())
	case c.Route != nil && c.Route.observe != nil:
		c.Route.observe(c.status, c.stopwatch.Elapsed())
	}
}

// methodLabel returns the method of a request, or "other" if it is none of HTTP's.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

// logPanic logs a panic of a handler with its stack. The caller gets an error that shows nothing of
// it.
func (c *Call) logPanic(p any) {
	c.router.Log.Error("a handler panicked", telemetry.RequestID, c.RequestID(),
		telemetry.ErrorMessage, fmt.Sprint(p), telemetry.Stack, string(debug.Stack()))
}

// level returns the level of the log line. Errors of this server are warnings or errors; those
// of the caller, and those of a part that is unavailable, which logs its outage itself, are not.
func (c *Call) level() slog.Level {
	normal := slog.LevelDebug
	if c.router.Info {
		normal = slog.LevelInfo
	}
	logged := errors.Is(c.err, errPanic) || outage.Is(c.err)
	switch {
	case logged, c.Context().Err() != nil:
		return normal
	case c.err != nil && c.status == http.StatusServiceUnavailable:
		return slog.LevelWarn
	case c.err != nil && c.status >= http.StatusInternalServerError:
		return slog.LevelError
	}
	return normal
}

// log writes the one line of the request.
func (c *Call) log(level slog.Level) {
	ctx := c.Context()
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
		attrs = append(attrs, slog.String(telemetry.ErrorMessage, logText(c.err)))
	}
	c.router.Log.LogAttrs(ctx, level, "request", attrs...)
}

// logText returns the text of an error for the log line of a request. That of a part that is
// unavailable has no cause: the part logs the cause once, and not every request that it fails.
func logText(err error) string {
	var e *job.Error
	if !outage.Is(err) || !errors.As(err, &e) {
		return err.Error()
	}
	return (&job.Error{Kind: e.Kind, Op: e.Op, Msg: e.Msg}).Error()
}
