package images

import (
	"context"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/message"
	"github.com/millrace/millrace/internal/worker"
)

// Routes lists the table for the comparison with the document.
func Routes() (all []string) {
	for _, route := range (&Images{}).routes() {
		all = append(all, route.Method+" "+route.Pattern)
	}
	return all
}

// The tables.
var (
	Machine      = machine
	PurgeMachine = purgeMachine
	StatusOf     = statusOf
	ErrorTable   = errorTable
	ProposedJob  = proposedJob
)

// ClaimProposed claims the job of a message as a worker does.
func (m *Images) ClaimProposed(ctx context.Context, body []byte, worker string) (j *job.Job,
	acked bool, err error) {
	j, err = m.claimProposed(ctx, message.Delivery{Body: body, Ack: func() {
		acked = true
	}, Nak: func() {}}, worker)
	return j, acked, err
}

// Handle makes the attempt of a job that was claimed.
func (m *Images) Handle(ctx context.Context, j *job.Job) engine.Outcome {
	return attempts{m}.Handle(ctx, &worker.ClaimedJob{Job: j})
}

// Attempt is Handle, and ends it.
func (m *Images) Attempt(ctx context.Context, j *job.Job) (*job.Job, error) {
	return m.Engine.Finish(ctx, engine.Run{ID: j.ID, Run: j.Run}, m.Handle(ctx, j))
}

// Propose hands a message to the workers.
func (m *Images) Propose(ctx context.Context, d message.Delivery) {
	select {
	case m.proposals <- d:
	case <-ctx.Done():
	}
}

// FailureOutcome is how an attempt ends that failed.
var FailureOutcome = failureOutcome

// Sweeper is what looks for the forgotten.
func (m *Images) Sweeper() func(context.Context) error { return newSweeper(m).sweep }

// ReadSizes reads sizes as uploads have them.
func ReadSizes(text string) ([]int, error) { return readSizes(text) }
