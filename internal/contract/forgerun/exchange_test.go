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
	document(t).HoldsRoutes(t, forgerun.Routes(), 18)
}
