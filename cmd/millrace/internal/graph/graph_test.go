package graph

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// An error in a file is reported, and the file is not sent to the server as something else.
func TestGraphFiles(t *testing.T) {
	t.Parallel()
	graphOf := func(members string) string {
		return `{"jobs":[{"ref":"a","queue":"q"` + members + `}]}`
	}
	for file, want := range map[string]string{
		``:                               "EOF",
		`[]`:                             "the whole is of type array",
		graphOf(`,"name":7`):             "jobs.name is of type number",
		graphOf(`,"prio":7`):             `"prio"`,
		graphOf(`,"dependencies":["b"]`): `unknown member "dependencies"; did you mean "depends_on"?`,
		graphOf(`,"dependsOn":["b"]`):    `unknown member "dependsOn"; did you mean "depends_on"?`,
		`nobody`:                         "unexpected character at byte 2",
		graphOf(`,"prioritty":7`):        `unknown member "prioritty"; did you mean "priority"?`,
		graphOf(`,"max_retries":7`):      `did you mean "retry_policy.max_attempts"?`,
		graphOf(``) + graphOf(``):        "more behind the object",
		graphOf(``) + `]`:                "more behind the object",
		graphOf(`,"priority":0`):         `job "a": priority must be`,
		graphOf(`,"priority":null`):      "priority must be",
		graphOf(`,"priority":1.5`):       "priority must be",
		graphOf(`,"priority":"5"`):       "priority must be",
		graphOf(`,"retry_policy":{"max_attempts":0}`):        "retry_policy.max_attempts must be",
		graphOf(`,"retry_policy":{"base_delay_seconds":-1}`): "retry_policy.base_delay_seconds must be",
		// in ns it is 290 ms beyond 2⁶⁴
		graphOf(`,"retry_policy":{"base_delay_seconds":18446744074}`):   "retry_policy.base_delay_seconds must be",
		graphOf(`,"retry_policy":{"max_delay_seconds":99999999999999}`): "retry_policy.max_delay_seconds must be",
	} {
		if _, err := parseGraph([]byte(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", file, err, want)
		}
	}
	if _, err := parseGraph([]byte(graphOf(``) + " \n")); err != nil {
		t.Error(err)
	}
}

func TestGraphSpec(t *testing.T) {
	t.Parallel()
	job := fileJob{Ref: "a", Queue: "q", Priority: []byte("7")}
	job.Retry.MaxAttempts, job.Retry.BaseDelay, job.Retry.MaxDelay = []byte("5"), []byte("2"),
		[]byte("60")
	got, err := job.spec()
	want := client.TaskFlowRetryPolicy{MaxAttempts: 5, BaseDelay: 2 * time.Second,
		MaxDelay: time.Minute}
	if err != nil || got.Name != "a" || got.Priority != 7 || got.Retry != want {
		t.Errorf("got %+v, %v", got, err)
	}
}
