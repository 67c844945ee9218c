package fetchbox

import (
	"net/http"
	"strings"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/setting"
)

const (
	submitPath      = "/jobs"
	operatorsPath   = "/operators/"
	jobsPath        = operatorsPath + "jobs"
	jobPath         = jobsPath + "/{job_id}"
	deadLettersPath = operatorsPath + "dlq"
)

// submitRoutes are the routes of clients.
func (f *FetchBox) submitRoutes() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodPost, Pattern: submitPath, Action: "submit", Handle: f.submit,
			ReadsBody: true},
	}
}

// operatorRoutes are the routes of operators: the three of the document, the list of jobs and the
// dead letters.
func (f *FetchBox) operatorRoutes() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodGet, Pattern: jobsPath, Action: "list", Handle: f.list, NoStore: true},
		{Method: http.MethodGet, Pattern: jobPath, Action: "get", Handle: f.get, NoStore: true},
		{Method: http.MethodGet, Pattern: jobPath + "/logs", Action: "read_logs", Handle: f.logs,
			NoStore: true},
		{Method: http.MethodGet, Pattern: operatorsPath + "health", Action: "health",
			Handle: f.health, NoStore: true},
		{Method: http.MethodGet, Pattern: deadLettersPath, Action: "list_dead_letters",
			Handle: f.deadLetters, NoStore: true},
		{Method: http.MethodPost, Pattern: deadLettersPath + "/{offset}/replay", Action: "replay",
			Handle: f.replay},
	}
}

// Mount binds the contract to an engine and returns the handler of its paths. It is called once.
// Clients and operators have a router each, as each has a token of its own.
func (f *FetchBox) Mount(e *engine.Engine) httpapi.PrefixHandler {
	f.engine = e
	clients := f.router(submitPath, f.submitRoutes(), f.Token,
		f.MaxManifest+gzipOverhead(f.MaxManifest)).MustMount()
	operators := f.router(operatorsPath, f.operatorRoutes(), f.OperatorToken,
		maxOperatorBody).MustMount()
	return httpapi.PrefixHandler{
		Name:     Name,
		Prefixes: append(clients.Prefixes, operators.Prefixes...),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, operatorsPath) {
				operators.Handler.ServeHTTP(w, r)
				return
			}
			clients.Handler.ServeHTTP(w, r)
		}),
	}
}

// maxOperatorBody bounds the body of an operator's request, which is discarded, in bytes.
const maxOperatorBody = 64 << 10

// router is the router of one of the two groups of routes. All routes but the health check refuse
// requests on a node whose objects or streams are not those of the database.
func (f *FetchBox) router(prefix string, routes []httpapi.Route, token setting.Secret,
	bodyLimit int64) *httpapi.Router {
	for i := range routes {
		if routes[i].Action != "health" {
			routes[i].Handle = f.Shared.Guard(routes[i].Handle)
		}
	}
	f.metrics.observe(routes)
	return &httpapi.Router{
		Name:       Name,
		Prefixes:   []string{prefix},
		Routes:     routes,
		Token:      token,
		BodyLimit:  bodyLimit,
		WriteError: f.sendError,
		Log:        f.Log,
		Tracing:    f.Tracing,
	}
}
