package forgerun_test

import (
	"testing"

	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/testkit"
)

// document is openapi.yaml, against which every exchange is held.
func document(t testing.TB) *testkit.Document {
	return testkit.ReadDocument(t, forgerun.OpenAPI, bodyLimit)
}

func TestDocument(t *testing.T) {
	t.Parallel()
	document(t).WantRoutes(t, forgerun.Routes(), 20)
}

// TestUnknownQuery: a route that changes something refuses query parameters that it does not have,
// after it has found out who asks.
func TestUnknownQuery(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	c := w.customer(t)
	document(t).WantUnknownQueriesRefused(t, "RFA_REQUEST_MALFORMED",
		func(method, path string) testkit.Reply {
			return c.Do(t, method, path, "")
		}, "GET /v1/jobs", "GET /v1/clients/{client_id}/keys", "GET /v1/webhooks",
		"GET /v1/webhooks/{webhook_id}/deliveries")
	c.Do(t, "GET", "/v1/jobs?status=FAILED", "").WantError(t, 400, "RFA_REQUEST_MALFORMED",
		`"status"`, "state")
	c.Do(t, "GET", "/v1/jobs?state=FAILED&limit=1", "").WantStatus(t, 200)
	w.Do(t, "GET", "/v1/jobs?status=FAILED", "").WantError(t, 401, "RFA_AUTH_INVALID_CREDENTIALS")
	w.Do(t, "POST", "/v1/jobs?filter=x", "").WantError(t, 401, "RFA_AUTH_INVALID_CREDENTIALS")
	anonymous := "/v1/clients/" + w.newClient(t) + "/keys?rotate=true"
	w.Do(t, "POST", anonymous, "").WantError(t, 400, "RFA_REQUEST_MALFORMED", "rotate")
}
