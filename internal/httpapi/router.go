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
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/telemetry"
)

// Handler serves one route. An error it returns is answered by the router's WriteError; the
// handler must not have written anything before.
type Handler func(*Call) error

// Route is one method and path of a Router. Pattern has members in braces:
// "/v2/queues/{queue}/jobs".
type Route struct {
	Method  string
	Pattern string
	Handle  Handler
	// Guard, unless nil, is called before Handle and before anything of the request is checked. It
	// authenticates the caller and only then calls CheckQuery and reads the body, also where Handle
	// needs none: an unauthenticated caller so learns nothing about either. Handle finds what it
	// has learned in the call's Identity and Content.
	Guard Handler
	// Action is the route's name in the log and in traces, in one word.
	Action string
	// ReadsBody says that Handle reads the body. The body of any other route is discarded before
	// Handle is called.
	ReadsBody bool
	// BodyLimit is the route's own limit in bytes; 0 means the router's.
	BodyLimit int64
	// Query names the query parameters that the route supports. A route that names some refuses all
	// others, and so does one of any method but GET and HEAD; see CheckQuery.
	Query []string
	// NoStore forbids caches to store the answer.
	NoStore bool
	// DecodePathValue decodes one member of the path; false means that the path matches no route.
	// Nil means the function DecodePathValue.
	DecodePathValue func(escaped string) (member string, ok bool)

	pathValueNames []string
	observe        func(status int, took time.Duration)
}

// Router serves a contract's API. Its exported fields are set once, before Mount.
type Router struct {
	Name      string
	Prefixes  []string
	Routes    []Route
	Token     setting.Secret // required of every request as a bearer token, unless empty
	BodyLimit int64          // bytes, for routes without a limit of their own
	// Authorize, unless nil, is called for every request before anything of it is answered. The
	// call's Route is nil where none matches: whoever is refused does not learn that.
	Authorize Handler
	// StrictQuery refuses unknown query parameters also of routes that only read and name none.
	StrictQuery bool
	// WriteError answers an error. No other code of a contract writes errors.
	WriteError func(*Call, error)
	Log        *slog.Logger
	// Observe, unless nil, is called once for each route by Mount. It returns what is called once
	// for every request of the route.
	Observe func(*Route) func(status int, took time.Duration)
	// ObserveUnmatched, unless nil, is called for every request that matches no route. The method
	// is one of HTTP's or "other", so that callers cannot create metric labels without end.
	ObserveUnmatched func(method string, status int, took time.Duration)

	// Timeout bounds Handle; a request that takes longer is answered with job.Timeout. Answers are
	// then buffered until they are complete, so no route may stream. 0 means no bound.
	Timeout time.Duration
	// Info logs successful requests at info level instead of debug.
	Info bool
	// Tracing makes a span of every request, named after the route's action.
	Tracing *telemetry.Tracing

	mux             *chi.Mux
	routes          map[routeKey]*Route
	methods         []string
	routeContexts   sync.Pool
	requestIDPrefix string // random, so that ids of several processes differ
	requestCount    atomic.Uint64
	answered        atomic.Uint64
	answeredErrors  atomic.Uint64 // with a status of 500 or above
	token           bearer
}

// routeKey identifies a route by its method and pattern.
type routeKey struct{ method, pattern string }

// Mount checks the router and returns it as the handler of its prefixes.
func (r *Router) Mount() (PrefixHandler, error) {
	if r.Name == "" || len(r.Prefixes) == 0 || r.WriteError == nil || r.BodyLimit <= 0 ||
		r.Log == nil {
		return PrefixHandler{},
			fmt.Errorf("httpapi: router %q needs Name, Prefixes, WriteError, BodyLimit and Log",
				r.Name)
	}
	r.mux, r.routes = chi.NewRouter(), map[routeKey]*Route{}
	r.requestIDPrefix = rand.Text()[:12]
	r.routeContexts.New = func() any { return chi.NewRouteContext() }
	r.token = newBearer(r.Token)
	for i := range r.Routes {
		if err := r.add(&r.Routes[i]); err != nil {
			return PrefixHandler{}, err
		}
	}
	slices.Sort(r.methods)
	return PrefixHandler{Name: r.Name, Prefixes: r.Prefixes, Handler: r,
		Requests: r.counted}, nil
}

// add checks a route and makes it findable.
func (r *Router) add(route *Route) error {
	key := routeKey{route.Method, route.Pattern}
	inside := slices.ContainsFunc(r.Prefixes, func(prefix string) bool {
		return prefixMatches(prefix, route.Pattern)
	})
	if route.Handle == nil || r.routes[key] != nil || !inside {
		return fmt.Errorf("httpapi: %s %s is a duplicate, has no handler or lies outside the prefixes",
			route.Method, route.Pattern)
	}
	if route.DecodePathValue == nil {
		route.DecodePathValue = DecodePathValue
	}
	route.pathValueNames = pathValueNames(route.Pattern)
	if len(route.pathValueNames) > maxPathValues {
		return fmt.Errorf("httpapi: %s has more than %d members", route.Pattern, maxPathValues)
	}
	if r.Observe != nil {
		route.observe = r.Observe(route)
	}
	r.routes[key] = route
	// The router of chi finds the route, and never serves it.
	r.mux.Method(route.Method, route.Pattern, http.NotFoundHandler())
	if !slices.Contains(r.methods, route.Method) {
		r.methods = append(r.methods, route.Method)
	}
	return nil
}

// counted returns how many requests were answered, and how many of them with an error of the
// server.
func (r *Router) counted() (requests, errors uint64) {
	return r.answered.Load(), r.answeredErrors.Load()
}

// MustMount is Mount for routers written in code. A wrong one is a defect that the first test of it
// finds.
func (r *Router) MustMount() PrefixHandler {
	m, err := r.Mount()
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

// DecodePathValue decodes a member of a path. It refuses empty members, and those that are not
// UTF-8 or contain U+0000 once decoded: no database stores such a text.
func DecodePathValue(escaped string) (string, bool) {
	value, err := url.PathUnescape(escaped)
	if err != nil || value == "" || !utf8.ValidString(value) || strings.IndexByte(value, 0) >= 0 {
		return "", false
	}
	return value, true
}

// ServeHTTP implements http.Handler.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	c := newCall(r, w, req)
	r.serveCall(c)
	if c.err != nil {
		c.linger()
	}
}

// serveCall answers a call, then records it in metrics, log and trace.
func (r *Router) serveCall(c *Call) {
	if r.Tracing != nil {
		c.trace()
		defer c.endTrace()
	}
	defer c.finish()
	if err := r.dispatch(c); err != nil {
		c.fail(err)
	}
}

// dispatch checks the token, finds the route and calls its handler.
func (r *Router) dispatch(c *Call) error {
	if !r.token.matches(c.Request) {
		c.Header().Set("WWW-Authenticate", `Bearer realm="millrace"`)
		return &StatusError{http.StatusUnauthorized, "a valid bearer token is needed"}
	}
	path := escapedPath(c.Request)
	c.Route, c.pathValues = r.match(c.Request.Method, path)
	if r.Authorize != nil {
		if err := r.Authorize(c); err != nil {
			return err
		}
	}
	if c.Route == nil {
		return r.unmatched(c, path)
	}
	if r.Timeout > 0 {
		return r.handleWithTimeout(c)
	}
	return r.handle(c)
}

// handle checks the query and the size of the body, unless the route has a guard that does, and
// calls the handler of the route.
func (r *Router) handle(c *Call) error {
	if c.Route.NoStore {
		c.Header()["Cache-Control"] = noStore
	}
	if c.Route.Guard != nil {
		if err := c.Route.Guard(c); err != nil {
			return err
		}
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

// noStore is the value of Cache-Control for answers that must not be kept, such as secrets and
// claims.
var noStore = []string{"no-store"}

// maxPathValues bounds the members of a pattern.
const maxPathValues = 4

// match finds the route of a path and the values of its members; nil if there is none.
func (r *Router) match(method, path string) (*Route, [maxPathValues]string) {
	rctx := r.routeContexts.Get().(*chi.Context)
	defer r.routeContexts.Put(rctx)
	rctx.Reset()
	var values [maxPathValues]string
	route := r.routes[routeKey{method, r.mux.Find(rctx, method, path)}]
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

// unmatched answers 405 where another method has a route at the path, and 404 elsewhere.
func (r *Router) unmatched(c *Call, path string) error {
	var allowed []string
	for _, m := range r.methods {
		if route, _ := r.match(m, path); route != nil {
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
