package relay_test

import (
	"testing"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/testkit"
)

const beyondDocument = testkit.BeyondDocument

// document is openapi.yaml, against which every exchange is held.
func document(t testing.TB) *testkit.Document {
	return testkit.ReadDocument(t, relay.OpenAPI, bodyLimit)
}

func TestDocument(t *testing.T) {
	t.Parallel()
	document(t).HoldsRoutes(t, relay.Routes(), 15)
}
