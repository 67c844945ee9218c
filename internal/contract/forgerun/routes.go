package forgerun

import (
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
)

// The paths that several routes share.
const (
	clientKeysPath = "/v1/clients/{client_id}/keys"
	jobPath        = "/v1/jobs/{job_id}"
	webhookPath    = "/v1/webhooks/{webhook_id}"
	replayPath     = webhookPath + "/deliveries/{delivery_id}/replay"
)

// routes lists the document's routes and then this project's additions. A route without a guard
// needs a valid key. Answers are never cached, as they hold secrets and states. Only a POST has a
// body that counts; that of any other request is read and dropped.
func (f *ForgeRun) routes() []httpapi.Route {
	routes := []httpapi.Route{
		{Method: http.MethodPost, Pattern: "/v1/clients", Action: "create_client",
			Guard: f.guard(authNone), Handle: f.createClient},
		{Method: http.MethodPost, Pattern: clientKeysPath, Action: "create_key",
			Guard: f.guard(authOptional), Handle: f.createKey},
		{Method: http.MethodPost, Pattern: clientKeysPath + "/renew", Action: "renew_key",
			Guard: f.guard(authExpiredKey), Handle: f.renewKey},
		{Method: http.MethodPost, Pattern: clientKeysPath + "/revoke", Action: "revoke_key",
			Handle: f.revokeKey},
		{Method: http.MethodPost, Pattern: "/v1/jobs", Action: "submit", Handle: f.submitJob},
		{Method: http.MethodPost, Pattern: jobPath + "/cancel", Action: "cancel",
			Handle: f.cancelJob},
		{Method: http.MethodPost, Pattern: jobPath + "/retry", Action: "retry", Handle: f.retryJob},
		{Method: http.MethodGet, Pattern: jobPath, Action: "get", Handle: f.getJob},
		{Method: http.MethodGet, Pattern: jobPath + "/report", Action: "report",
			Handle: f.report},
		{Method: http.MethodPost, Pattern: "/v1/webhooks", Action: "register_webhook",
			Handle: f.registerWebhook},
		{Method: http.MethodDelete, Pattern: webhookPath, Action: "delete_webhook",
			Handle: f.deleteWebhook},

		{Method: http.MethodGet, Pattern: "/v1/jobs", Action: "list_jobs", Handle: f.listJobs,
			Query: httpapi.PageQuery("state")},
		{Method: http.MethodGet, Pattern: clientKeysPath, Action: "list_keys",
			Handle: f.listKeys, Query: httpapi.PageQuery()},
		{Method: http.MethodGet, Pattern: "/v1/webhooks", Action: "list_webhooks",
			Handle: f.listWebhooks, Query: httpapi.PageQuery()},
		{Method: http.MethodGet, Pattern: webhookPath + "/deliveries", Action: "list_deliveries",
			Handle: f.listDeliveries, Query: httpapi.PageQuery()},
		{Method: http.MethodPost, Pattern: replayPath, Action: "replay_delivery",
			Handle: f.replayDelivery},
		{Method: http.MethodPost, Pattern: webhookPath + "/replay", Action: "replay_deliveries",
			Handle: f.replayDeliveries},
		{Method: http.MethodPost, Pattern: webhookPath + "/test", Action: "test_webhook",
			Handle: f.testWebhook},
		{Method: http.MethodPost, Pattern: webhookPath + "/rotate-secret",
			Action: "rotate_webhook_secret", Handle: f.rotateWebhookSecret},
		{Method: http.MethodPost, Pattern: webhookPath + "/enable", Action: "enable_webhook",
			Handle: f.enableWebhook},
	}
	for i := range routes {
		r := &routes[i]
		r.NoStore = true
		r.ReadsBody = r.Method == http.MethodPost
		if r.Guard == nil {
			r.Guard = f.guard(authKey)
		}
	}
	return routes
}
