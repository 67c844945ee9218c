package taskflow_test

import (
	"net/http"
	"testing"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/testkit"
)

// checked is a transport that holds every exchange against openapi.yaml.
func checked(t testing.TB, next http.RoundTripper) http.RoundTripper {
	return testkit.ReadDocument(t, taskflow.OpenAPI, graphBodyLimit).Check(t, next)
}

func TestDocument(t *testing.T) {
	t.Parallel()
	testkit.ReadDocument(t, taskflow.OpenAPI, graphBodyLimit).HoldsRoutes(t, taskflow.Routes(), 7)
}
