package forgerun_test

import (
	"net/http"
	"testing"

	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/testkit"
)

// checked is a transport that holds every exchange against openapi.yaml.
func checked(t testing.TB, next http.RoundTripper) http.RoundTripper {
	return testkit.ReadDocument(t, forgerun.OpenAPI, bodyLimit).Check(t, next)
}

func TestDocument(t *testing.T) {
	t.Parallel()
	testkit.ReadDocument(t, forgerun.OpenAPI, bodyLimit).HoldsRoutes(t, forgerun.Routes(), 18)
}
