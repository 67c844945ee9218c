package wordcount

import (
	"bytes"
	"context"
	"strconv"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/worker"
)

// counter counts the words of texts in the process.
type counter struct{}

// Handle implements worker.Handler. Counting cannot fail, so there is no other outcome; an attempt
// that is cut short by a crash expires and is repeated with the same result.
func (counter) Handle(_ context.Context, t *worker.ClaimedJob) engine.Outcome {
	words := len(bytes.Fields(t.Job.Payload))
	return engine.Outcome{On: job.Succeeded, Result: strconv.AppendInt(nil, int64(words), 10)}
}
