package forgerun

import (
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
)

// access is the API key that a route needs.
type access uint8

const (
	authKey        access = iota // a valid key
	authNone                     // no key; counted by address
	authOptional                 // a valid key or, for a client's first key, none (G-FR-03)
	authExpiredKey               // a key that may have expired, to renew it (G-FR-26)
)

// action is one route of the API. Its name stands in logs and traces.
type action struct {
	name   string
	method string
	path   string
	access access
	handle func(*ForgeRun, *request) error
}

const (
	clientKeysPath = "/v1/clients/{client_id}/keys"
	jobPath        = "/v1/jobs/{job_id}"
	webhookPath    = "/v1/webhooks/{webhook_id}"
	replayPath     = webhookPath + "/deliveries/{delivery_id}/replay"
)

// actions lists the document's routes and then this project's additions.
var actions = []action{
	{"create_client", http.MethodPost, "/v1/clients", authNone, (*ForgeRun).createClient},
	{"create_key", http.MethodPost, clientKeysPath, authOptional, (*ForgeRun).createKey},
	{"renew_key", http.MethodPost, clientKeysPath + "/renew", authExpiredKey, (*ForgeRun).renewKey},
	{"revoke_key", http.MethodPost, clientKeysPath + "/revoke", authKey, (*ForgeRun).revokeKey},
	{"submit", http.MethodPost, "/v1/jobs", authKey, (*ForgeRun).submit},
	{"cancel", http.MethodPost, jobPath + "/cancel", authKey, (*ForgeRun).cancel},
	{"retry", http.MethodPost, jobPath + "/retry", authKey, (*ForgeRun).retry},
	{"get", http.MethodGet, jobPath, authKey, (*ForgeRun).get},
	{"report", http.MethodGet, jobPath + "/report", authKey, (*ForgeRun).report},
	{"register_webhook", http.MethodPost, "/v1/webhooks", authKey, (*ForgeRun).registerWebhook},
	{"delete_webhook", http.MethodDelete, webhookPath, authKey, (*ForgeRun).deleteWebhook},

	{"list_jobs", http.MethodGet, "/v1/jobs", authKey, (*ForgeRun).list},
	{"list_keys", http.MethodGet, clientKeysPath, authKey, (*ForgeRun).listKeys},
	{"list_webhooks", http.MethodGet, "/v1/webhooks", authKey, (*ForgeRun).listWebhooks},
	{"list_deliveries", http.MethodGet, webhookPath + "/deliveries", authKey,
		(*ForgeRun).listDeliveries},
	{"replay_delivery", http.MethodPost, replayPath, authKey, (*ForgeRun).replay},
	{"rotate_webhook_secret", http.MethodPost, webhookPath + "/rotate-secret", authKey,
		(*ForgeRun).rotateSecret},
	{"enable_webhook", http.MethodPost, webhookPath + "/enable", authKey,
		(*ForgeRun).enableWebhook},
}

// routes returns the actions as routes of httpapi.
func (f *ForgeRun) routes() []httpapi.Route {
	routes := make([]httpapi.Route, len(actions))
	for i := range actions {
		a := &actions[i]
		routes[i] = httpapi.Route{
			Method:    a.method,
			Pattern:   a.path,
			Action:    a.name,
			NoStore:   true,
			ReadsBody: a.method == http.MethodPost,
			Handle:    func(c *httpapi.Call) error { return f.serve(c, a) },
			Observe:   f.metrics.route(a.method, a.path),
		}
	}
	return routes
}
