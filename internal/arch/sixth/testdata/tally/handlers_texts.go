package tally

import (
	"net/http"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// POST /tally/v1/texts stores a text. The answer goes out when the text is on the disk. Each
// request makes a text of its own, as its id is made here.
func (t *Tally) submitText(c *httpapi.Call) error {
	text, err := readText(c)
	if err != nil {
		return err
	}
	result, err := t.Engine.Submit(c.Context(), engine.Unique, []engine.Submission{{Job: job.Job{
		ID:      job.ID{JobType: Name, Key: t.ids.Next(1)[0]},
		Queue:   "texts",
		Lease:   t.Lease,
		Payload: text,
	}}})
	if err != nil {
		return err
	}
	sendText(c, http.StatusCreated, result.Jobs[0])
	return nil
}

// GET /tally/v1/texts/{id}: the text as it is now.
func (t *Tally) getText(c *httpapi.Call) error {
	j, err := t.Engine.Get(c.Context(), job.ID{JobType: Name, Key: c.PathValue("id")})
	if err != nil {
		return err
	}
	sendText(c, http.StatusOK, j)
	return nil
}
