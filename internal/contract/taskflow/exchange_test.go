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
	document(t).WantRoutes(t, taskflow.Routes(), 10)
}

// TestUnknownQuery: a route that changes something refuses query parameters that it does not have.
func TestUnknownQuery(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		kept := w.create(t)
		document(t).WantUnknownQueriesRefused(t, "VALIDATION_ERROR",
			func(method, path string) testkit.Reply {
				return w.Do(t, method, path, jobSpec())
			})
		w.Do(t, "DELETE", pathOf(kept.ID)+"?dry_run=true", "").WantError(t, 400, "VALIDATION_ERROR",
			"dry_run")
		assertEqual(t, "jobs", w.jobs(t), 1)
	})
}

// TestMisnamedMembers: a member that the contract has elsewhere, under another name or in
// another place, is refused with the right one and not passed over.
func TestMisnamedMembers(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		first := w.create(t)
		for member, right := range map[string]string{
			`"depends_on":["` + first.ID + `"]`: "dependencies",
			`"max_attempts":1`:                  "retry_policy.max_attempts",
			`"backoff_strategy":"FIXED"`:        "retry_policy.backoff_strategy",
			`"base_delay_seconds":1`:            "retry_policy.base_delay_seconds",
			`"max_delay_seconds":1`:             "retry_policy.max_delay_seconds",

			`"dependsOn":["` + first.ID + `"]`:   "dependencies",
			`"Depends_On":["` + first.ID + `"]`:  "dependencies",
			`"depends_on ":["` + first.ID + `"]`: "dependencies",
			`"Dependencies":[]`:                  "dependencies",
			`"parents":["` + first.ID + `"]`:     "dependencies",

			`"Priority":1`:                        "use priority",
			`"retryPolicy":{}`:                    "use retry_policy",
			`"retry-policy":{}`:                   "use retry_policy",
			`"max_retries":1`:                     "retry_policy.max_attempts",
			`"retry_policy":{"max_retries":1}`:    "retry_policy.max_attempts",
			`"retry_policy":{"maxAttempts":1}`:    "retry_policy.max_attempts",
			`"retry_policy":{"strategy":"FIXED"}`: "retry_policy.backoff_strategy",
			`"retry_policy":{"base-delay":1}`:     "retry_policy.base_delay_seconds",
		} {
			w.Do(t, "POST", jobsPath, jobSpec(member)).WantError(t, 400, "VALIDATION_ERROR", right)
			w.Do(t, "PUT", pathOf(first.ID), "{"+member+"}").WantError(t, 400, "VALIDATION_ERROR",
				right)
			if right != "dependencies" {
				w.Do(t, "POST", "/api/v1/graphs", `{"jobs":[`+jobSpec(`"ref":"a"`, member)+`]}`).
					WantError(t, 400, "VALIDATION_ERROR", "jobs[0]", right)
			}
		}
		w.Do(t, "POST", "/api/v1/graphs",
			`{"jobs":[`+jobSpec(`"ref":"a"`, dependenciesMember(first.ID))+`]}`).
			WantError(t, 400, "VALIDATION_ERROR", "jobs[0]", "depends_on")
		assertEqual(t, "jobs", w.jobs(t), 1)
		// What the contract has nowhere is passed over, and what the server sets (G-TF-15).
		w.create(t, `"other":1,"status":"READY","Status":1,"tags":[],"retry_policy":{"other":1}`)
	})
}
