package taskflow

import (
	"context"
	"net/http"
	"net/http/httptest"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// Routes lists the table for the comparison with the document.
func Routes() (all []string) {
	for _, route := range (&TaskFlow{}).routes() {
		all = append(all, route.Method+" "+route.Pattern)
	}
	return all
}

// The tables.
var (
	Machine  = machine
	Statuses = statuses
)

// Attempt is the number of an attempt, and SuccessOutcome and FailureOutcome are how it ends.
var (
	Attempt        = attempt
	SuccessOutcome = successOutcome
	FailureOutcome = failureOutcome
)

// Meaning is what an error is in HTTP.
func Meaning(err error) (int, string) {
	a := errorTable.Answer(err)
	return a.Status, a.Code
}

// OnceOf returns the name of an idempotency key and the digest of the request that came with it.
func OnceOf(key string, body []byte) (name, digest string, err error) {
	r := httptest.NewRequest(http.MethodPost, jobsPath, nil)
	r.Header[keyHeader] = []string{key}
	once, err := (&TaskFlow{}).idempotencyOf(&httpapi.Call{Request: r}, body)
	if err != nil || once.Record == nil {
		return "", "", err
	}
	return once.Record.Key, once.Record.Digest, nil
}

// ErrorTable is the table of errors.
var ErrorTable = errorTable

// ParseCreate reads the body of a create.
func ParseCreate(body []byte) error {
	if err := checkObject(body); err != nil {
		return err
	}
	s, err := readSpec(body, &jobNames)
	if err == nil {
		err = s.complete()
	}
	return err
}

// ParseGraph reads the body of a graph.
func ParseGraph(body []byte) error {
	nodes, err := readGraph(body)
	if err == nil {
		_, err = resolveRefs(nodes, make([]string, len(nodes)))
	}
	return err
}

// Terminal is terminal.
func Terminal(s job.State) bool { return terminal(s) }

// Resubmission returns the copy of a job that a rerun submits under an id.
func (t *TaskFlow) Resubmission(j *job.Job, id string) engine.Submission {
	return (&rerun{TaskFlow: t}).resubmission(context.Background(), j, id, nil)
}
