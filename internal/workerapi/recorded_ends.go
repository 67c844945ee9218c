package workerapi

import (
	"context"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// EndsOf returns what the ends of runs lead to that remote workers have recorded in the database
// (TX-006): to what the requests complete and fail do. It returns nil where the jobs of an engine
// contract are not those of c. A run with a recorded end does not time out: what the worker has
// written beside it is committed.
func (c *Adapter) EndsOf(engineContract string) *engine.RecordedEnds {
	if c == nil || engineContract != c.jobType() {
		return nil
	}
	ends := &engine.RecordedEnds{Complete: c.completeRecorded, Fail: c.failRecorded, Check: c.Check}
	if c.VerifyResult != nil {
		ends.Verify = func(ctx context.Context, j *job.Job, result []byte) (engine.Outcome, error) {
			if err := checkResult(result); err != nil {
				return engine.Outcome{}, err
			}
			return c.VerifyResult(ctx, j, result)
		}
	}
	return ends
}

// completeRecorded is Complete for a result that no request has checked. PostgreSQL takes JSON that
// a request does not, such as an object with two members of one name.
func (c *Adapter) completeRecorded(j *job.Job, result []byte) engine.Outcome {
	if err := checkResult(result); err != nil {
		return c.Fail(j, engine.RefusedEnd(err), engine.RefusedType, false)
	}
	return c.Complete(j, result)
}

func checkResult(result []byte) error {
	if result == nil {
		return nil
	}
	if err := strictjson.Check(result); err != nil {
		return &job.Error{Kind: job.Invalid, Op: "workerapi.end", Msg: err.Error()}
	}
	return nil
}

func (c *Adapter) failRecorded(j *job.Job, message, errorType string,
	retryable bool) engine.Outcome {
	return c.Fail(j, sanitizeMessage(message), errorType, retryable)
}
