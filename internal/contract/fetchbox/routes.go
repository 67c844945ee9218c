package fetchbox

import (
	"net/http"
	"strings"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
)

const (
	submitPath      = "/jobs"
	operatorsPath   = "/operators/"
	jobsPath        = operatorsPath + "jobs"
	jobPath         = jobsPath + "/{job_id}"
	deadLettersPath = operatorsPath + "dlq"
)

// submitRoutes is what clients use.
func (f *FetchBox) submitRoutes() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodPost, Pattern: submitPath, Action: "submit", Handle: f.submit,
			ReadsBody: true},
	}
}

// operatorRoutes are the three of the document, lists, and dead letters.
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

// Mount makes FetchBox serve its paths by an engine. It is called once. Clients and operators have
// a table each, as each has a token of its own.
func (f *FetchBox) Mount(e *engine.Engine) httpapi.PrefixHandler {
	f.engine = e
	clients := httpapi.Router{Name: Name, Prefixes: []string{submitPath}, Routes: f.submitRoutes(),
		Token:     f.Token,
		BodyLimit: f.MaxManifest + gzipOverhead(f.MaxManifest), WriteError: f.sendError, Log: f.Log,
		Tracing: f.Tracing}
	operators := httpapi.Router{Name: Name, Prefixes: []string{operatorsPath},
		Routes: f.operatorRoutes(), Token: f.OperatorToken,
		BodyLimit: maxOperatorBody, WriteError: f.sendError, Log: f.Log, Tracing: f.Tracing}
	for _, routes := range [][]httpapi.Route{clients.Routes, operators.Routes} {
		for i := range routes {
			if routes[i].Action != "health" {
				routes[i].Handle = f.Shared.Guard(routes[i].Handle)
			}
		}
	}
	f.metrics.observe(clients.Routes)
	f.metrics.observe(operators.Routes)
	submit, operate := clients.MustMount(), operators.MustMount()
	return httpapi.PrefixHandler{Name: Name, Prefixes: append(submit.Prefixes, operate.Prefixes...),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, operatorsPath) {
				operate.Handler.ServeHTTP(w, r)
				return
			}
			submit.Handler.ServeHTTP(w, r)
		})}
}

// maxOperatorBody is the body that an operator's request may have; nothing reads it.
const maxOperatorBody = 64 << 10
