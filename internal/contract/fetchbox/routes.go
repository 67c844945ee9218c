package fetchbox

import (
	"net/http"
	"strings"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
)

const (
	submitPath    = "/jobs"
	operatorsPath = "/operators/"
	jobsPath      = operatorsPath + "jobs"
	jobPath       = jobsPath + "/{job_id}"
	lettersPath   = operatorsPath + "dlq"
)

// submitRoutes is what clients use.
func (f *FetchBox) submitRoutes() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodPost, Pattern: submitPath, Action: "submit", Handle: f.submit, TakesBody: true},
	}
}

// operatorRoutes are the three of the document, lists, and dead letters.
func (f *FetchBox) operatorRoutes() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodGet, Pattern: jobsPath, Action: "list", Handle: f.list, NoStore: true},
		{Method: http.MethodGet, Pattern: jobPath, Action: "get", Handle: f.get, NoStore: true},
		{Method: http.MethodGet, Pattern: jobPath + "/logs", Action: "read_logs", Handle: f.logs, NoStore: true},
		{Method: http.MethodGet, Pattern: operatorsPath + "health", Action: "health", Handle: f.health, NoStore: true},
		{Method: http.MethodGet, Pattern: lettersPath, Action: "list_dead_letters", Handle: f.deadLetters, NoStore: true},
		{Method: http.MethodPost, Pattern: lettersPath + "/{offset}/replay", Action: "replay", Handle: f.replay},
	}
}

// Mount makes FetchBox serve its paths by an engine. It is called once. Clients and operators have a table each, as each
// has a token of its own.
func (f *FetchBox) Mount(e *engine.Engine) httpapi.Mount {
	f.engine = e
	clients := httpapi.Table{Name: Name, Prefixes: []string{submitPath}, Routes: f.submitRoutes(), Token: f.Token,
		BodyLimit: f.MaxManifest + slack(f.MaxManifest), Answer: f.answer, Log: f.Log, Tracing: f.Tracing}
	operators := httpapi.Table{Name: Name, Prefixes: []string{operatorsPath}, Routes: f.operatorRoutes(), Token: f.OperatorToken,
		BodyLimit: operatorBody, Answer: f.answer, Log: f.Log, Tracing: f.Tracing}
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
	return httpapi.Mount{Name: Name, Prefixes: append(submit.Prefixes, operate.Prefixes...),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, operatorsPath) {
				operate.Handler.ServeHTTP(w, r)
				return
			}
			submit.Handler.ServeHTTP(w, r)
		})}
}

// operatorBody is the body that an operator's request may have; nothing reads it.
const operatorBody = 64 << 10
