package wordcount

import (
	"net/http"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// POST /wordcount/v1/texts stores a text. The answer goes out when the text is on the disk. Each
// request makes a text of its own, as its id is made here.
func (w *WordCount) submitText(c *httpapi.Call) error {
	text, err := readText(c)
	if err != nil {
		return err
	}
	result, err := w.Engine.Submit(c.Context(), engine.Unique, []engine.Submission{{Job: job.Job{
		ID:      job.ID{JobType: Name, Key: w.ids.Next(1)[0]},
		Queue:   "texts",
		Lease:   w.Lease,
		Payload: text,
	}}})
	if err != nil {
		return err
	}
	sendText(c, http.StatusCreated, result.Jobs[0])
	return nil
}

// GET /wordcount/v1/texts/{id}: the text as it is now.
func (w *WordCount) getText(c *httpapi.Call) error {
	j, err := w.Engine.Get(c.Context(), job.ID{JobType: Name, Key: c.PathValue("id")})
	if err != nil {
		return err
	}
	sendText(c, http.StatusOK, j)
	return nil
}
