package sqlstore

import (
	"bytes"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// JobCache has jobs as the database has them, so that a transaction need not read rows which its
// session has written or read before. A session may have one if its connection alone writes to the
// database:
//
//	insert, LockReady   Put                   a job with all its columns
//	update              MarkWritten, then Put     the columns that were written
//	delete              Remove
//	Load, LockReady     Job                   of which the caller gets a copy
//
// A job of the cache is made of the values of its columns, by the functions that read a row: it is
// the job that a read would return. What becomes of the jobs of a transaction that is rolled back
// is the concern of the session.
type JobCache interface {
	// Job returns a job, which nobody changes, or nil.
	Job(seq int64) *job.Job
	// MarkWritten notes that the transaction writes a job and returns the one in the cache, which
	// is then changed and put, or nil.
	MarkWritten(seq int64) *job.Job
	// Put adds a job or replaces it. One with a body out of line is not cached.
	Put(j *job.Job)
	// Remove removes a job.
	Remove(seq int64)
}

// WithCache returns the methods over the same session, with a cache of its jobs.
func (t *Tx) WithCache(c JobCache) *Tx {
	t.cache = c
	return t
}

// SizeOf returns how many bytes the texts and bodies of a job have.
func SizeOf(j *job.Job) (size int64) {
	for _, text := range textFields {
		size += int64(len(text(j)))
	}
	for p := range job.Bodies {
		size += int64(len(*j.Body(p)))
	}
	return size
}

// cachedJob returns a copy of a job in the cache, with bodies as Load has them, or nil.
func (t *Tx) cachedJob(seq int64, bodies store.Bodies) *job.Job {
	stored := t.cache.Job(seq)
	if stored == nil {
		return nil
	}
	j := *stored
	if bodies == store.OnlyBodies {
		j = job.Job{Seq: seq, Definition: j.Definition, Payload: j.Payload, Progress: j.Progress,
			Result: j.Result, Failure: j.Failure}
	}
	copyBodies(&j, bodies)
	return &j
}

// copyBodies gives a job copies of its bodies, or none, as Load does.
func copyBodies(j *job.Job, bodies store.Bodies) {
	for p := range job.Bodies {
		body := j.Body(p)
		if bodySets[bodies]&(1<<p) == 0 {
			*body = nil
		} else {
			*body = bytes.Clone(*body)
		}
	}
}

// cacheNew caches jobs that were inserted with the values of insertedDefinitions and
// insertedStates, those with a Seq.
func (t *Tx) cacheNew(jobs []*job.Job, definitions, states *BulkValues) error {
	if t.cache == nil {
		return nil
	}
	var common job.Job
	if err := setBoth(&common, definitions, states, 0, true); err != nil {
		return err
	}
	for i, inserted := range jobs {
		if inserted.Seq == 0 {
			continue
		}
		t.cache.MarkWritten(inserted.Seq)
		j := common
		j.Seq, j.Phase = inserted.Seq, inserted.Phase
		if err := setBoth(&j, definitions, states, i, false); err != nil {
			return err
		}
		t.cache.Put(&j)
	}
	return nil
}

// setBoth is Set.setFields for the definitions and the state of a new job.
func setBoth(j *job.Job, definitions, states *BulkValues, row int, common bool) error {
	if err := definitions.setFields(j, insertedDefinitions, row, common); err != nil {
		return err
	}
	return states.setFields(j, insertedStates, row, common)
}

// cacheRead caches copies of jobs that were read with all their columns.
func (t *Tx) cacheRead(jobs []*job.Job) {
	if t.cache == nil {
		return
	}
	for _, j := range jobs {
		if j.OutOfLine == 0 {
			read := *j
			copyBodies(&read, store.AllBodies)
			t.cache.Put(&read)
		}
	}
}

// cacheWritten changes columns of a job to the values that were written as a row of a set. The job
// is now in the table of a phase.
func (t *Tx) cacheWritten(seq int64, phase job.Phase, columns []jobColumn, set *BulkValues,
	row int) error {
	if t.cache == nil {
		return nil
	}
	j := t.cache.MarkWritten(seq)
	if j == nil {
		return nil
	}
	j.Phase = phase
	for _, common := range []bool{true, false} {
		if err := set.setFields(j, columns, row, common); err != nil {
			return err
		}
	}
	t.cache.Put(j)
	return nil
}
