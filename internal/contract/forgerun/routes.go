package forgerun

import (
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
)

// access says who may use a route.
type access uint8

const (
	keyed     access = iota // who shows a good key
	anybody                 // whoever comes, within the limit of an address
	maybe                   // with a key or, for a client's first, without (G-FR-03)
	outOfDate               // with a key that may have expired: for its renewal (G-FR-26)
)

// action is one row of the API: what is done under which name in logs and traces.
type action struct {
	name   string
	method string
	path   string
	access access
	do     func(*ForgeRun, *visit) error
}

const (
	clientPath   = "/v1/clients/{client_id}/keys"
	jobPath      = "/v1/jobs/{job_id}"
	hookPath     = "/v1/webhooks/{webhook_id}"
	deliveryPath = hookPath + "/deliveries/{delivery_id}/replay"
)

// actions is the whole API: the document's routes, then this project's.
var actions = []action{
	{"create_client", http.MethodPost, "/v1/clients", anybody, (*ForgeRun).createClient},
	{"create_key", http.MethodPost, clientPath, maybe, (*ForgeRun).createKey},
	{"renew_key", http.MethodPost, clientPath + "/renew", outOfDate, (*ForgeRun).renewKey},
	{"revoke_key", http.MethodPost, clientPath + "/revoke", keyed, (*ForgeRun).revokeKey},
	{"submit", http.MethodPost, "/v1/jobs", keyed, (*ForgeRun).submit},
	{"cancel", http.MethodPost, jobPath + "/cancel", keyed, (*ForgeRun).cancel},
	{"retry", http.MethodPost, jobPath + "/retry", keyed, (*ForgeRun).retry},
	{"get", http.MethodGet, jobPath, keyed, (*ForgeRun).get},
	{"report", http.MethodGet, jobPath + "/report", keyed, (*ForgeRun).report},
	{"register_webhook", http.MethodPost, "/v1/webhooks", keyed, (*ForgeRun).registerHook},
	{"delete_webhook", http.MethodDelete, hookPath, keyed, (*ForgeRun).deleteHook},

	{"list_jobs", http.MethodGet, "/v1/jobs", keyed, (*ForgeRun).list},
	{"list_keys", http.MethodGet, clientPath, keyed, (*ForgeRun).listKeys},
	{"list_webhooks", http.MethodGet, "/v1/webhooks", keyed, (*ForgeRun).listHooks},
	{"list_deliveries", http.MethodGet, hookPath + "/deliveries", keyed, (*ForgeRun).listDeliveries},
	{"replay_delivery", http.MethodPost, deliveryPath, keyed, (*ForgeRun).replay},
	{"rotate_webhook_secret", http.MethodPost, hookPath + "/rotate-secret", keyed, (*ForgeRun).rotateSecret},
	{"enable_webhook", http.MethodPost, hookPath + "/enable", keyed, (*ForgeRun).enableHook},
}

// routes are the actions as the table of HTTP has them.
func (f *ForgeRun) routes() []httpapi.Route {
	routes := make([]httpapi.Route, len(actions))
	for i := range actions {
		a := &actions[i]
		routes[i] = httpapi.Route{Method: a.method, Pattern: a.path, Action: a.name, NoStore: true, TakesBody: a.method == http.MethodPost,
			Handle: func(c *httpapi.Call) error { return f.serve(c, a) }, Observe: f.metrics.route(a.method, a.path)}
	}
	return routes
}
