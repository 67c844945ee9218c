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
	document(t).HoldsRoutes(t, fetchbox.Routes(), 7)
}
