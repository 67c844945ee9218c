package tally

import (
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// statuses maps the kinds of job.Error; every other kind is the server's.
var statuses = map[job.Kind]int{
	job.Invalid:  http.StatusBadRequest,
	job.NotFound: http.StatusNotFound,
	job.TooLarge: http.StatusRequestEntityTooLarge,
}

// httpStatuses maps the errors of httpapi.
var httpStatuses = map[int]int{
	http.StatusUnauthorized:          http.StatusUnauthorized,
	http.StatusNotFound:              http.StatusNotFound,
	http.StatusMethodNotAllowed:      http.StatusMethodNotAllowed,
	http.StatusRequestEntityTooLarge: http.StatusRequestEntityTooLarge,
}

func (t *Tally) sendError(c *httpapi.Call, err error) {
	status, msg := httpapi.MapError(err, statuses, httpStatuses, http.StatusBadRequest)
	if status == 0 {
		status = http.StatusInternalServerError
	}
	t.metrics.errors.Inc()
	o := strictjson.NewObject(nil)
	o.Text("error", msg)
	c.Send(status, httpapi.JSON, o.End())
}
