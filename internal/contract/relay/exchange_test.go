package relay_test

import (
	"net/http"
	"testing"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/testkit"
)

const beyondDocument = testkit.BeyondDocument

// checked is a transport that holds every exchange against openapi.yaml.
func checked(t testing.TB, next http.RoundTripper) http.RoundTripper {
	return testkit.ReadDocument(t, relay.OpenAPI, bodyLimit).Check(t, next)
}

func TestDocument(t *testing.T) {
	t.Parallel()
	testkit.ReadDocument(t, relay.OpenAPI, bodyLimit).HoldsRoutes(t, relay.Routes(), 15)
}
