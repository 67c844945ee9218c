package taskflow

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// POST /api/v1/jobs/{job_id}/rerun copies a job that is FAILED or BLOCKED, with those of its
// ancestors and dependents that are as well (RT-001).
func (t *TaskFlow) rerunOne(c *httpapi.Call) error {
	return t.answerRerun(c, func(ctx context.Context, id job.ID, again bool) (map[string]string,
		error) {
		copies, _, err := t.rerunJob(ctx, id, again)
		return copies, err
	})
}

// POST /api/v1/jobs/{job_id}/graph/rerun copies all jobs that are connected with a job and are
// FAILED or BLOCKED (RT-001).
func (t *TaskFlow) rerunAll(c *httpapi.Call) error { return t.answerRerun(c, t.rerunGraph) }

// answerRerun answers with the ids of the copies by those of their originals.
func (t *TaskFlow) answerRerun(c *httpapi.Call,
	run func(context.Context, job.ID, bool) (map[string]string, error)) error {
	again, err := readAgain(c)
	if err != nil {
		return err
	}
	id, err := pathJobID(c)
	if err != nil {
		return err
	}
	copies, err := run(c.Context(), id, again)
	if err != nil {
		return err
	}
	o := strictjson.NewObject(make([]byte, 0, 16+80*len(copies)))
	o.Object("jobs", func(o *strictjson.Object) { appendCopies(o, copies) })
	c.Send(http.StatusCreated, httpapi.JSON, o.End())
	return nil
}

// appendCopies writes the ids of copies by those of their originals.
func appendCopies(o *strictjson.Object, copies map[string]string) {
	for _, original := range slices.Sorted(maps.Keys(copies)) {
		o.Text(original, copies[original])
	}
}

// readAgain reads the body of a rerun: nothing, or an object whose only member is again.
func readAgain(c *httpapi.Call) (again bool, err error) {
	text, err := readBody(c)
	if err != nil || len(strictjson.Trim(text)) == 0 {
		return false, err
	}
	if err := checkObject(text); err != nil {
		return false, err
	}
	for name, value := range strictjson.Members(text) {
		if string(name) != "again" {
			return false, invalid("unknown member %q; a rerun takes again", name)
		}
		if again, err = strictjson.Bool(value); err != nil {
			return false, invalid("again must be true or false")
		}
	}
	return again, nil
}
