package images

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
)

// operators says what operators may do with jobs and purges. A release counts as a failed attempt,
// as it does for workers (G-IP-21).
func (m *Images) operators() []contract.Operator {
	jobs := contract.Operator{JobType: Name, Submit: refuseUpload,
		Check: func(ctx context.Context, r contract.Request) error {
			_, err := refuseUpload(ctx, r)
			return err
		},
		Replay: m.rerunChecked, Answer: errorTable.Answer, States: statesByStatus, Kinds: jobTypes,
		State: func(j *job.Job) string { return statusOf(j.State) }, Events: eventTypes,
		Path: func(j *job.Job) string { return jobsPath + "/" + j.ID.Key },
		Actions: []contract.Action{
			{Name: contract.ActionRerun, States: []job.State{completed, failed},
				Do: m.rerunChecked},
			contract.RunNow(m.Engine),
			contract.Change(m.Engine, contract.ActionCancel, job.Canceled, prepareCancel,
				retryable, retryDue, released),
			contract.Release(m.Engine, processing),
		}}
	purges := contract.Operator{JobType: Purges, Kind: "purge", Replay: m.replayPurge,
		Answer: errorTable.Answer,
		Actions: []contract.Action{contract.RunNow(m.Engine),
			contract.Release(m.Engine, purgeRunning)}}
	return []contract.Operator{jobs, purges}
}

// refuseUpload refuses a submission: a picture is uploaded (G-AD-09).
func refuseUpload(_ context.Context, _ contract.Request) (*job.Job, error) {
	return nil, invalid("the jobs of Images are made by uploads: POST %s", filesPath)
}

// rerunChecked is rerun on a node that has the objects which the database names.
func (m *Images) rerunChecked(ctx context.Context, j *job.Job) (*job.Job, error) {
	if err := m.Binding.Check(); err != nil {
		return nil, err
	}
	full, err := m.Engine.Get(ctx, j.ID)
	if err != nil {
		return nil, err
	}
	return m.rerun(ctx, full)
}

// replayPurge lets a failed purge begin again, with as many attempts as a new one has.
func (m *Images) replayPurge(ctx context.Context, dead *job.Job) (*job.Job, error) {
	return m.Engine.Change(ctx, dead.ID, job.Retried, func(j *job.Job, now time.Time) error {
		j.MaxAttempts = j.FailedAttempts + maxPurgeAttempts
		j.DueAt, j.Retry.FailedBefore = now, j.FailedAttempts
		return nil
	})
}

// prepareCancel says in the failure of a job that it was canceled.
func prepareCancel(j *job.Job, _ time.Time) error {
	f := failure{Error: textCanceled, Type: typeCanceled, Failures: j.FailedAttempts}
	j.Failure = f.encode()
	return nil
}
