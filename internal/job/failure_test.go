package job_test

import (
	"testing"

	"github.com/millrace/millrace/internal/job"
)

// TestFailureOf: failures of ForgeRun and Images have a code, those of FetchBox a type,
// and TaskFlow the error_type of the worker. What is none of them is its own text.
func TestFailureOf(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][2]string{
		"":                                     {},
		`{"code":"E1","message":"no"}`:         {"E1", "no"},
		`{"type":"timeout","error":"late"}`:    {"timeout", "late"},
		`{"error":"no","error_type":"resize"}`: {"resize", "no"},
		`{"error":"no","error_type":""}`:       {"", "no"},
		`{"other":1}`:                          {"", `{"other":1}`},
		"no JSON":                              {"", "no JSON"},
	} {
		if kind, text := job.FailureOf([]byte(raw)); (kind != want[0]) || (text != want[1]) {
			t.Errorf("%s is %q, %q, want %q", raw, kind, text, want)
		}
	}
}
