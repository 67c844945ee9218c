package relay_test

import (
	"testing"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/testkit"
)

const beyondDocument = testkit.HeaderUndocumented

// document is openapi.yaml, against which every exchange is held.
func document(t testing.TB) *testkit.Document {
	return testkit.ReadDocument(t, relay.OpenAPI, bodyLimit)
}

func TestDocument(t *testing.T) {
	t.Parallel()
	document(t).WantRoutes(t, relay.Routes(), 19)
}

// TestUnknownQuery: a route that changes something refuses query parameters that it does not have.
// Taking jobs is a change, although it is a GET.
func TestUnknownQuery(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		document(t).WantUnknownQueriesRefused(t, "", func(method, path string) testkit.Reply {
			body := ""
			if method == "POST" || method == "PUT" {
				body = "[]"
			}
			return w.Do(t, method, path, body)
		}, "GET /v2/queues/{queue}/jobs", "GET /v1/queues/{queue}/jobs")
		w.put(t, jobBody("listed", "1"))
		for _, query := range []string{"state=dead", "num_jobs=1&state=dead", "Num_jobs=1", "%zz=1",
			"state"} {
			w.Do(t, "GET", "/v2/queues/listed/jobs?"+query, "").WantStatus(t, 400).WantErrorText(t,
				"num_jobs")
		}
		if v := w.get(t, "listed", "1"); v.RunID != nil {
			t.Error("a request that was refused took the job")
		}
		w.Do(t, "GET", "/v2/queues/listed/jobs?&num_jobs=1&", "").WantStatus(t, 200)
		// it changes nothing
		w.Do(t, "GET", jobPath("listed", "1")+"?pretty=1", "").WantStatus(t, 200)
	})
}
