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
	// Guard, unless nil, is called before Handle and before anything of the request is
	// checked. It authenticates the caller and only then calls CheckQuery and reads the
	// body, also where Handle needs none: an unauthenticated caller so learns nothing about
	// either. Handle finds what it has learned in the call's Identity and Content.
	Guard Handler
	// Action is the route's name in the log and in traces, in one word.
	Action string
	// ReadsBody says that Handle reads the body. The body of any other route is
	// discarded before Handle is called.
	ReadsBody bool
	// BodyLimit is the route's own limit in bytes; 0 means the router's.
	BodyLimit int64
	// Query names the query parameters that the route supports. A route that changes
	// something refuses all others.
	Query []string
	// Mutates says that a GET changes something. Every method but GET and HEAD does.
	Mutates bool
	// NoStore forbids caches to store the answer.
	NoStore bool
	// DecodePathValue decodes one member of the path; false means that the path
	// matches no route. Nil means the function DecodePathValue.
	DecodePathValue func(escaped string) (member string, ok bool)
	// Observe, unless nil, is called once for every request of the route.
	Observe func(status int, took time.Duration)

	pathValueNames []string
}

// Router serves a contract's API. Its exported fields are set once, before Mount.
type Router struct {
	Name      string
	Prefixes  []string
	Routes    []Route
	Token     setting.Secret // required of every request as a bearer token, unless empty
	BodyLimit int64          // bytes, for routes without a limit of their own
	// WriteError answers an error. No other code of a contract writes errors.
	WriteError func(*Call, error)
	Log        *slog.Logger
	// ObserveUnmatched, unless nil, is called for every request that matches no route, as
	// Route.Observe is for the others. The method is one of HTTP's or "other", so that
	// callers cannot create metric labels without end.
	ObserveUnmatched func(method string, status int, took time.Duration)

	// Timeout bounds Handle; a request that takes longer is answered with job.Timeout.
	// Answers are then buffered until they are complete, so no route may stream. 0
	// means no bound.
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
	token           bearer
}

type routeKey struct{ method, pattern string }

// Mount checks the router and returns it as the handler of its prefixes.
func (t *Router) Mount() (PrefixHandler, error) {
	if t.Name == "" || len(t.Prefixes) == 0 || t.WriteError == nil || t.BodyLimit <= 0 ||
		t.Log == nil {
		return PrefixHandler{},
			fmt.Errorf("httpapi: router %q needs Name, Prefixes, WriteError, BodyLimit and Log",
				t.Name)
	}
	t.mux, t.routes = chi.NewRouter(), map[routeKey]*Route{}
	t.requestIDPrefix = rand.Text()[:12]
	t.routeContexts.New = func() any { return chi.NewRouteContext() }
	t.token = newBearer(t.Token)
	for i := range t.Routes {
		if err := t.add(&t.Routes[i]); err != nil {
			return PrefixHandler{}, err
		}
	}
	slices.Sort(t.methods)
	return PrefixHandler{Name: t.Name, Prefixes: t.Prefixes, Handler: t}, nil
}

// add checks a route and makes it findable.
func (t *Router) add(r *Route) error {
	key := routeKey{r.Method, r.Pattern}
	inside := slices.ContainsFunc(t.Prefixes, func(prefix string) bool {
		return prefixMatches(prefix, r.Pattern)
	})
	if r.Handle == nil || t.routes[key] != nil || !inside {
		return fmt.Errorf("httpapi: %s %s is a duplicate, has no handler or lies outside the prefixes",
			r.Method, r.Pattern)
	}
	if r.DecodePathValue == nil {
		r.DecodePathValue = DecodePathValue
	}
	if r.pathValueNames = pathValueNames(r.Pattern); len(r.pathValueNames) > maxPathValues {
		return fmt.Errorf("httpapi: %s has more than %d members", r.Pattern, maxPathValues)
	}
	t.routes[key] = r
	t.mux.Method(r.Method, r.Pattern, http.NotFoundHandler()) // chi only finds; it never serves
	if !slices.Contains(t.methods, r.Method) {
		t.methods = append(t.methods, r.Method)
	}
	return nil
}

// MustMount is Mount for routers written in code. A wrong one is a defect that the first test
// of it finds.
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
func (t *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := newCall(t, w, r)
	t.serveCall(c)
	if c.err != nil {
		c.linger()
	}
}

// serveCall answers a call, then records it in metrics, log and trace.
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

// dispatch checks the token, finds the route and calls its handler.
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

// handle checks the query and the size of the body, unless the route has a guard that does, and
// calls the handler of the route.
func (t *Router) handle(c *Call) error {
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

var noStore = []string{"no-store"}

// maxPathValues bounds the members of a pattern.
const maxPathValues = 4

// match finds the route of a path and the values of its members; nil if there is none.
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

// unmatched answers 405 where another method has a route at the path, and 404 elsewhere.
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
