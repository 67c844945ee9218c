package httpapi

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// Handler serves one route. An error it returns is answered by the table; it
// must not have written anything then.
type Handler func(*Call) error

// Route is one row of a table. Pattern has members in braces:
// "/v2/queues/{queue}/jobs".
type Route struct {
	Method  string
	Pattern string
	Handle  Handler
	// Action is what the route does, in one word, for the log and for traces.
	Action string
	// ReadsBody says that Handle reads the body; of any other route it is
	// discarded before.
	ReadsBody bool
	// BodyLimit is the route's own, in bytes; 0 is the table's.
	BodyLimit int64
	// Query names the parameters of the query that the route takes. One that changes
	// something refuses all others.
	Query []string
	// Mutates says that a GET changes something, as every other method but HEAD does.
	Mutates bool
	// NoStore forbids caches to keep the answer.
	NoStore bool
	// Member decodes and judges one member of the path; false means that the
	// path matches nothing. Nil is Member of this package.
	DecodePathValue func(escaped string) (member string, ok bool)
	// Observe is told of every request that came this far; nil tells nobody.
	Observe func(status int, took time.Duration)

	pathValueNames []string
}

// Router is a contract's API in HTTP.
type Router struct {
	Name      string
	Prefixes  []string
	Routes    []Route
	Token     config.Secret // of the mount; empty asks for none
	BodyLimit int64         // bytes, of every request but those whose route says otherwise
	// AuthenticatesFirst leaves query and body to the handlers, which first find out who asks:
	// each calls CheckQuery and reads its body, wanted or not, whose size does not
	// matter until then.
	AuthenticatesFirst bool
	// WriteError writes an error. It is the only place of a mount that does.
	WriteError func(*Call, error)
	Log        *slog.Logger
	// ObserveUnmatched is told of every request that no route was found for, as
	// Route.Observe is of the others. The method is one of HTTP's or "other", so that
	// callers cannot make labels without end. Nil tells nobody.
	ObserveUnmatched func(method string, status int, took time.Duration)

	// Timeout bounds Handle; what takes longer is answered as job.Timeout.
	// Answers are held back until they are whole then, so no route may stream. 0
	// is no bound.
	Timeout time.Duration
	// Info logs every request, not only those that went wrong on our side.
	Info bool
	// Tracing makes a span of every request, named by the route's action.
	Tracing *telemetry.Tracing

	mux             *chi.Mux
	routes          map[routeKey]*Route
	methods         []string
	routeContexts   sync.Pool
	requestIDPrefix string // begins the ids of requests
	requestCount    atomic.Uint64
	token           bearer
}

type routeKey struct{ method, pattern string }

// PrefixHandler checks the table and makes a mount of it.
func (t *Router) Mount() (PrefixHandler, error) {
	if t.Name == "" || len(t.Prefixes) == 0 || t.WriteError == nil || t.BodyLimit <= 0 ||
		t.Log == nil {
		return PrefixHandler{},
			fmt.Errorf("httpapi: table %q needs Name, Prefixes, Answer, BodyLimit and Log", t.Name)
	}
	t.mux, t.routes, t.requestIDPrefix = chi.NewRouter(), map[routeKey]*Route{}, rand.Text()[:12]
	t.routeContexts.New = func() any { return chi.NewRouteContext() }
	t.token = newBearer(t.Token)
	for i := range t.Routes {
		r := &t.Routes[i]
		key := routeKey{r.Method, r.Pattern}
		if r.Handle == nil || t.routes[key] != nil ||
			!slices.ContainsFunc(t.Prefixes, func(p string) bool {
				return prefixMatches(p, r.Pattern)
			}) {
			return PrefixHandler{},
				fmt.Errorf("httpapi: %s %s is there twice, has no handler or lies outside the mount", r.Method, r.Pattern)
		}
		if r.DecodePathValue == nil {
			r.DecodePathValue = DecodePathValue
		}
		if r.pathValueNames = pathValueNames(r.Pattern); len(r.pathValueNames) > maxPathValues {
			return PrefixHandler{}, fmt.Errorf("httpapi: %s has more than %d members", r.Pattern,
				maxPathValues)
		}
		t.routes[key] = r
		t.mux.Method(r.Method, r.Pattern, http.NotFoundHandler()) // chi finds; it never serves
		if !slices.Contains(t.methods, r.Method) {
			t.methods = append(t.methods, r.Method)
		}
	}
	slices.Sort(t.methods)
	return PrefixHandler{Name: t.Name, Prefixes: t.Prefixes, Handler: t}, nil
}

// MustMount is Mount for tables written in code: a wrong one is a defect found by
// the first test that touches it.
func (t *Router) MustMount() PrefixHandler {
	m, err := t.Mount()
	if err != nil {
		panic(err)
	}
	return m
}

func pathValueNames(pattern string) (names []string) {
	for _, part := range strings.Split(pattern, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			names = append(names, strings.TrimSuffix(name, "}"))
		}
	}
	return names
}

// Member decodes a member of a path. Empty ones, and those that are no UTF-8 or
// hold U+0000 once decoded, name nothing.
func DecodePathValue(escaped string) (string, bool) {
	value, err := url.PathUnescape(escaped)
	if err != nil || value == "" || !utf8.ValidString(value) || strings.IndexByte(value, 0) >= 0 {
		return "", false
	}
	return value, true
}

// ServeHTTP implements http.Handler.
func (t *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := newCall(t, w, r)
	t.serveCall(c)
	if c.err != nil {
		c.linger()
	}
}

// serveCall answers a call and closes the books on it.
func (t *Router) serveCall(c *Call) {
	if t.Tracing != nil {
		c.trace()
		defer c.endTrace()
	}
	defer c.finish()
	if err := t.dispatch(c); err != nil {
		c.fail(err)
	}
}

func (t *Router) dispatch(c *Call) error {
	if !t.token.matches(c.Request) {
		c.Header().Set("WWW-Authenticate", `Bearer realm="millrace"`)
		return &StatusError{http.StatusUnauthorized, "a valid bearer token is needed"}
	}
	path := escapedPath(c.Request)
	c.Route, c.pathValues = t.match(c.Request.Method, path)
	if c.Route == nil {
		return t.unmatched(c, path)
	}
	if t.Timeout > 0 {
		return t.handleWithTimeout(c)
	}
	return t.handle(c)
}

// handle serves a call whose route is known.
func (t *Router) handle(c *Call) error {
	if c.Route.NoStore {
		c.Header()["Cache-Control"] = noStore
	}
	if t.AuthenticatesFirst {
		return c.Route.Handle(c)
	}
	if err := c.CheckQuery(); err != nil {
		return err
	}
	if c.Request.ContentLength > c.bodyLimit() {
		return c.tooLargeError()
	}
	if !c.Route.ReadsBody && c.Request.ContentLength != 0 {
		if err := c.discardBody(); err != nil {
			return err
		}
	}
	return c.Route.Handle(c)
}

var noStore = []string{"no-store"}

// maxPathValues is how many members a pattern may have.
const maxPathValues = 4

// match finds the route of a path and its members; nil if there is none.
func (t *Router) match(method, path string) (*Route, [maxPathValues]string) {
	rctx := t.routeContexts.Get().(*chi.Context)
	defer t.routeContexts.Put(rctx)
	rctx.Reset()
	var values [maxPathValues]string
	route := t.routes[routeKey{method, t.mux.Find(rctx, method, path)}]
	if route == nil || len(rctx.URLParams.Values) != len(route.pathValueNames) {
		return nil, values
	}
	for i, v := range rctx.URLParams.Values {
		var ok bool
		if values[i], ok = route.DecodePathValue(v); !ok {
			return nil, values
		}
	}
	return route, values
}

// unmatched tells a wrong method from a wrong path.
func (t *Router) unmatched(c *Call, path string) error {
	var allowed []string
	for _, m := range t.methods {
		if route, _ := t.match(m, path); route != nil {
			allowed = append(allowed, m)
		}
	}
	if len(allowed) == 0 {
		return &StatusError{http.StatusNotFound, notFoundText}
	}
	c.Header().Set("Allow", strings.Join(allowed, ", "))
	return &StatusError{http.StatusMethodNotAllowed,
		"this path takes " + strings.Join(allowed, ", ")}
}

// StatusError is a request turned down for what HTTP says of it; errors of the
// contract are *job.Error.
type StatusError struct {
	Status int
	Msg    string
}

func (r *StatusError) Error() string { return r.Msg }

// errPanic is what a caller is told of a panic: nothing.
var errPanic = &job.Error{Kind: job.Internal, Op: "httpapi", Msg: "panic"}
