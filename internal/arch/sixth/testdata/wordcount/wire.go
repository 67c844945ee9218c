package wordcount

import (
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// sendText writes a text with the number of its words, once they are counted. The result of a job
// is that number as JSON, so it is written as it is.
func sendText(c *httpapi.Call, status int, j *job.Job) {
	o := strictjson.NewObject(nil)
	o.Text("id", j.ID.Key)
	o.Text("state", string(j.State))
	if j.Result != nil {
		o.Raw("words", j.Result)
	}
	c.Send(status, httpapi.JSON, o.End())
}
