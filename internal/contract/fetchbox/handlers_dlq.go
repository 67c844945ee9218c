package fetchbox

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
)

// GET /operators/dlq
func (f *FetchBox) deadLetters(c *httpapi.Call) error {
	limit, err := readNumber(c, "limit", defaultPage, 1, maxPage)
	if err != nil {
		return err
	}
	var before uint64
	if text, given, err := c.Query("cursor"); err != nil {
		return err
	} else if given {
		if before, err = strconv.ParseUint(text, 10, 64); err != nil || before == 0 {
			return invalid("cursor is none that was given out")
		}
	}
	letters, err := f.Streams.Newest(c.Request.Context(), dlqStream, dlqSubject, before, limit+1)
	if err != nil {
		return err
	}
	next := ""
	if len(letters) > limit {
		letters = letters[:limit]
		next = strconv.FormatUint(letters[limit-1].Offset, 10)
	}
	c.SendPage(len(letters), next, func(i int, o *strictjson.Object) {
		for name, value := range strictjson.Members(letters[i].Data) {
			o.Raw(string(name), value)
		}
		o.Int("offset", int64(letters[i].Offset))
	})
	return nil
}

// POST /operators/dlq/{offset}/replay
func (f *FetchBox) replay(c *httpapi.Call) error {
	ctx := c.Request.Context()
	absent := &job.Error{Kind: job.NotFound, Op: Name, Msg: "there is no such dead letter"}
	offset, err := strconv.ParseUint(c.PathValue("offset"), 10, 64)
	if err != nil {
		return absent
	}
	deadLetter, err := f.Streams.Get(ctx, dlqStream, offset)
	if job.IsKind(err, job.NotFound) {
		return absent
	}
	if err != nil {
		return err
	}
	jobID, resourceID, ok := deadLetterTask(deadLetter.Data)
	if !ok {
		return conflict("the dead letter is not that of a task with a row: it was never taken " +
			"in, and whoever published it must do so again")
	}
	task, err := f.retryDead(ctx, jobID, resourceID)
	if err != nil {
		return err
	}
	o := strictjson.NewObject(nil)
	o.Text("job_id", jobID)
	o.Text("resource_id", resourceID)
	o.Text("status", string(task.State))
	c.Send(http.StatusAccepted, httpapi.JSON, o.End())
	return nil
}

// buried reads which task a dead letter is about; false where it is about none that could be taken
// in.
func deadLetterTask(deadLetter []byte) (jobID, resourceID string, ok bool) {
	for name, value := range strictjson.Members(deadLetter) {
		if string(name) == "task" {
			for name, value := range strictjson.Members(value) {
				switch string(name) {
				case "job_id":
					text, _ := strictjson.String(value)
					jobID, ok = uuids.Parse(text)
				case "resource_id":
					resourceID, _ = strictjson.String(value)
				}
			}
		}
	}
	return jobID, resourceID, ok && resourceID != ""
}

// retryDead gives a dead task as many tries as a new one. Its job follows in the same transaction.
func (f *FetchBox) retryDead(ctx context.Context, jobID, resourceID string) (*job.Job, error) {
	there, err := f.engine.GetByAlias(ctx, taskAlias(jobID, resourceID))
	if job.IsKind(err, job.NotFound) {
		return nil, conflict("the ledger does not hold the task: it was pruned, or never taken in")
	}
	if err != nil {
		return nil, err
	}
	after, err := f.engine.Change(ctx, there.ID, job.Retried,
		func(j *job.Job, now time.Time) error {
			j.MaxAttempts, j.DueAt = j.FailedAttempts+f.Tries, now
			return nil
		})
	if job.IsKind(err, job.Conflict) {
		return nil, conflict("the task is not dead: it is %s", there.State)
	}
	return after, err
}
