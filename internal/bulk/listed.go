package bulk

import (
	"context"

	"github.com/millrace/millrace/internal/job"
)

// A job of a contract whose jobs do not stay when they are given up, such as Relay, is deleted
// then, and its dead letter is all that is left. A list of dead jobs has these too, as their open
// dead letters have them: after the stored ones, the first that was given up first. The cursor is
// that of find.go:
//
//	0 ──── numbers of stored jobs ────▶ firstDeleted ──── firstDeleted + IDs of dead letters ────▶
//
// Operations find the jobs that they act on by FindJobs, without these: most actions are of jobs
// that are stored.

// ListJobs returns a page of the jobs that match a filter, for those who look at them: where it
// selects dead jobs, those too that are deleted. These have the failure of their dead letter.
func (b *Bulk) ListJobs(ctx context.Context, f *JobFilter, p JobPage) (found FoundJobs, err error) {
	names, started := b.deletedWhenDead(f), b.Elapsed()
	if p.After < firstDeleted {
		found, err = b.FindJobs(ctx, f, p)
		if err != nil || found.Next > 0 || len(names) == 0 {
			return found, err
		}
		if len(found.Jobs) == p.Limit {
			found.Next = firstDeleted // where the next page begins
			return found, nil
		}
		p.After, p.Limit = firstDeleted, p.Limit-len(found.Jobs)
	}
	if p.MaxTime > 0 { // what is left of the bounds, and at least one step
		p.MaxTime = max(1, p.MaxTime-(b.Elapsed()-started))
	}
	if p.MaxJobs > 0 {
		p.MaxJobs = max(1, p.MaxJobs-found.Read)
	}
	p.After -= firstDeleted
	dead, err := b.deadLettersOf(ctx, names, f, p)
	if err != nil {
		return FoundJobs{}, err
	}
	for i := range dead.DeadLetters {
		l := &dead.DeadLetters[i]
		if l.IsOpen() && f.matchesDeleted(l, b.operatorOf(l.Job.ID.JobType)) {
			found.Jobs = append(found.Jobs, deletedJob(l))
		}
	}
	found.Read += dead.Read
	if dead.Next > 0 {
		found.Next = firstDeleted + dead.Next
		if len(dead.DeadLetters) < p.Limit {
			found.SearchedTo = dead.SearchedTo
		}
	}
	return found, nil
}

// deletedWhenDead returns the job types that a filter of dead jobs selects and whose jobs are
// deleted when they are given up.
func (b *Bulk) deletedWhenDead(f *JobFilter) (names []string) {
	for _, name := range f.JobTypes {
		if f.Dead && b.operatorOf(name).Replay != nil && !b.Engine.KeepsDeadJobs(name) {
			names = append(names, name)
		}
	}
	return names
}

// deletedJob returns a job that is deleted as its dead letter has it.
func deletedJob(l *job.DeadLetter) *job.Job {
	j := l.Job
	j.Phase, j.FinishedAt = job.Done, l.CreatedAt
	kind, text := l.Failure()
	j.Failure = job.AttemptFailure{Error: text, Type: kind, Attempt: j.Attempts}.Encode()
	return &j
}
