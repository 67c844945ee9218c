package engine

import (
	"context"

	"github.com/millrace/millrace/internal/store"
)

// Jobs, events and other rows that are kept for a time are deleted in batches, each a short
// transaction between the others, and in this order for each job type:
//
//	1  finished jobs that are past Retention
//	2  the oldest of them, while all exceed MaxBytes
//	3  dead letters that are past their own retention
//
// A batch is of the first of these that has any, and the next one begins with the first again. So
// dead letters wait until no job is due: those of a job that is deleted go with it. Every node
// prunes, by itself.

// The most that a transaction of Prune deletes. It holds up all other verbs where the database has
// one writer, so it is short there. PostgreSQL deletes beside them, but looks for the oldest jobs
// where it has just deleted others, whose dead entries it passes over in each transaction.
const (
	pruneBatchOfOneWriter = 200
	pruneBatchOfMany      = 2000
)

func (e *Engine) pruneBatch() int {
	if e.store.Writers() == 1 {
		return pruneBatchOfOneWriter
	}
	return pruneBatchOfMany
}

// Prune deletes a batch of the rows that are past the retention of each job type and of the inbox,
// and of records that have expired, and compacts counters. It returns how much it did; it is to be
// repeated until that is 0.
func (e *Engine) Prune(ctx context.Context) (removed int, err error) {
	for _, name := range e.jobTypeNames {
		n, err := e.pruneJobType(ctx, e.jobTypes[name])
		if err != nil {
			return removed, err
		}
		removed += n
	}
	var records int
	err = e.update(ctx, func(u *unit) (err error) {
		if records, err = u.tx.PruneRecords(e.pruneBatch()); err != nil {
			return err
		}
		requests, err := u.pruneInbox()
		if err != nil {
			return err
		}
		records += requests
		emptied, err := u.tx.CompactCounts(e.pruneBatch())
		for _, q := range emptied {
			u.recordQueues(queueKey{q.JobType, q.Queue})
		}
		return err
	})
	return removed + records, err
}

func (e *Engine) pruneJobType(ctx context.Context, t *JobType) (removed int, err error) {
	if t.Retention <= 0 && t.MaxBytes <= 0 && !t.leavesDeadLetters {
		return 0, nil
	}
	var jobs int
	err = e.update(ctx, func(u *unit) error {
		finished, err := u.pruneFinished(t)
		if err != nil {
			return err
		}
		jobs, removed = finished.Jobs, finished.Jobs+finished.Children
		if removed > 0 { // their dead letters go with them, and others the next time
			for _, j := range finished.Removed {
				u.count(j, j.State, j.Phase, -1)
				u.writes.gone = append(u.writes.gone, j.Seq)
			}
			return nil
		}
		removed, err = u.pruneDeadLetters(t)
		return err
	})
	if err != nil {
		return 0, err
	}
	if jobs > 0 && t.OnPruned != nil {
		t.OnPruned(jobs)
	}
	return removed, nil
}

// pruneFinished deletes finished jobs by their age and, when none is too old, by their size.
func (u *unit) pruneFinished(t *JobType) (store.Pruned, error) {
	if t.Retention > 0 {
		old, err := u.tx.PruneFinished(t.Name, u.now.Add(-t.Retention), 0, u.e.pruneBatch())
		if err != nil || len(old.Removed) > 0 {
			return old, err
		}
	}
	if t.MaxBytes <= 0 {
		return store.Pruned{}, nil
	}
	size, err := u.tx.Size(t.Name)
	if err != nil || size <= t.MaxBytes {
		return store.Pruned{}, err
	}
	return u.tx.PruneFinished(t.Name, u.now, size-t.MaxBytes, u.e.pruneBatch())
}
