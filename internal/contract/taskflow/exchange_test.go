package taskflow_test

import (
	"testing"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/testkit"
)

// document is openapi.yaml, against which every exchange is held.
func document(t testing.TB) *testkit.Document {
	return testkit.ReadDocument(t, taskflow.OpenAPI, graphBodyLimit)
}

func TestDocument(t *testing.T) {
	t.Parallel()
	document(t).HoldsRoutes(t, taskflow.Routes(), 7)
}
