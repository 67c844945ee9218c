package fetchbox_test

import (
	"testing"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/testkit"
)

// document is openapi.yaml, against which every exchange is held.
func document(t testing.TB) *testkit.Document {
	return testkit.ReadDocument(t, fetchbox.OpenAPI, maxManifest)
}

func TestDocument(t *testing.T) {
	t.Parallel()
	document(t).WantRoutes(t, fetchbox.Routes(), 9)
}

// TestUnknownQuery: a route that changes something refuses query parameters that it does not have.
func TestUnknownQuery(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	document(t).WantUnknownQueriesRefused(t, "INVALID_PAYLOAD",
		func(method, path string) testkit.Reply {
			return w.Do(t, method, path, "")
		}, "GET /operators/jobs", "GET /operators/dlq")
	w.Do(t, "GET", "/operators/jobs?status=queued&limit=1&cursor=", "").WantStatus(t, 200)
}
