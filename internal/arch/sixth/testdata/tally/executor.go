package tally

import (
	"bytes"
	"context"
	"strconv"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/worker"
)

// Run counts words until ctx ends, and returns within the grace after that. Several nodes may run
// it on one store: each text is claimed by one of them.
func (t *Tally) Run(ctx context.Context) {
	pool := worker.MustNew(worker.Config{
		Engine:            t.Engine,
		JobType:           Name,
		Name:              t.Node,
		Workers:           t.Workers,
		HeartbeatInterval: t.Lease / 3,
		Handler:           counter{},
		Log:               t.Log,
	})
	pool.Run(ctx, t.Grace)
}

// counter counts the words of texts in the process.
type counter struct{}

// Handle implements worker.Handler. Counting cannot fail, so there is no other outcome; an attempt
// that is cut short by a crash expires and is repeated with the same result.
func (counter) Handle(_ context.Context, t *worker.Task) engine.Outcome {
	words := len(bytes.Fields(t.Job.Payload))
	return engine.Outcome{On: job.Succeeded, Result: strconv.AppendInt(nil, int64(words), 10)}
}
