package sqlstore

import (
	"bytes"
	"unsafe"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// JobCache has jobs as the database has them, so that a transaction need not read rows which its
// session has written or read before. It is for a session whose connection alone writes to the
// database:
//
//	insert, LockReady   keep        a job with all its columns
//	update              set         the columns that were written
//	delete              drop
//	rollback            Rollback    drops what the transaction has written
//	Load, LockReady     get         a copy of the job
//
// A job of the cache is made of the values of its columns, by the functions that read a row: it is
// the job that a read would return. A job with a body out of line is not in the cache.
//
// A nil JobCache has no job and keeps none. A JobCache is used by one goroutine at a time.
type JobCache struct {
	jobs    map[int64]*cachedJob // by number
	bytes   int64                // the sum of their sizes
	limit   int64
	written []int64 // the jobs that the transaction has written, in that order
}

type cachedJob struct {
	job.Job
	size int64
}

// NewJobCache returns a cache of jobs that together have so many bytes at most.
func NewJobCache(limit int64) *JobCache {
	return &JobCache{jobs: map[int64]*cachedJob{}, limit: limit}
}

// Clear forgets all jobs. It is for when something else may have written to the database.
func (c *JobCache) Clear() {
	clear(c.jobs)
	c.bytes = 0
}

// Begin begins a transaction.
func (c *JobCache) Begin() { c.written = c.written[:0] }

// Mark returns the present point of the transaction, for Rollback. That of its beginning is 0.
func (c *JobCache) Mark() int { return len(c.written) }

// Rollback forgets the jobs that the transaction has written since a mark.
func (c *JobCache) Rollback(mark int) {
	for _, seq := range c.written[mark:] {
		c.drop(seq)
	}
	c.written = c.written[:mark]
}

// get returns a copy of a job, with bodies as Load has them, or nil.
func (c *JobCache) get(seq int64, bodies store.Bodies) *job.Job {
	if c == nil {
		return nil
	}
	stored := c.jobs[seq]
	if stored == nil {
		return nil
	}
	j := stored.Job
	if bodies == store.OnlyBodies {
		j = job.Job{Seq: seq, Definition: j.Definition, Payload: j.Payload, Progress: j.Progress,
			Result: j.Result, Failure: j.Failure}
	}
	copyBodies(&j, bodies)
	return &j
}

// copyBodies gives a job copies of its bodies, or none, as Load does.
func copyBodies(j *job.Job, bodies store.Bodies) {
	for p := range job.Parts {
		body := j.Body(p)
		if partsOf[bodies]&(1<<p) == 0 {
			*body = nil
		} else {
			*body = bytes.Clone(*body)
		}
	}
}

// keepNew keeps jobs that were inserted with the values of insertedFacts and insertedStates, those
// with a Seq.
func (c *JobCache) keepNew(jobs []*job.Job, facts, states *Set) error {
	if c == nil {
		return nil
	}
	var common job.Job
	if err := setBoth(&common, facts, states, 0, true); err != nil {
		return err
	}
	for i, inserted := range jobs {
		if inserted.Seq == 0 {
			continue
		}
		c.written = append(c.written, inserted.Seq)
		j := &cachedJob{Job: common}
		j.Seq, j.Phase = inserted.Seq, inserted.Phase
		if err := setBoth(&j.Job, facts, states, i, false); err != nil {
			return err
		}
		c.keep(j)
	}
	return nil
}

// setBoth is Set.setFields for the facts and the state of a new job.
func setBoth(j *job.Job, facts, states *Set, row int, common bool) error {
	if err := facts.setFields(j, insertedFacts, row, common); err != nil {
		return err
	}
	return states.setFields(j, insertedStates, row, common)
}

// keepRead keeps copies of jobs that were read with all their columns.
func (c *JobCache) keepRead(jobs []*job.Job) {
	for _, j := range jobs {
		if j.OutOfLine == 0 {
			read := &cachedJob{Job: *j}
			copyBodies(&read.Job, store.AllBodies)
			c.keep(read)
		}
	}
}

// set changes columns of a job to the values that were written as a row of a set.
func (c *JobCache) set(seq int64, columns []jobColumn, set *Set, row int) error {
	if c == nil {
		return nil
	}
	c.written = append(c.written, seq)
	j := c.jobs[seq]
	if j == nil {
		return nil
	}
	for _, common := range []bool{true, false} {
		if err := set.setFields(&j.Job, columns, row, common); err != nil {
			return err
		}
	}
	c.keep(j)
	return nil
}

// setState is set for the state of a job, which is now in the table of the phase of j.
func (c *JobCache) setState(j *job.Job, columns []jobColumn, set *Set, row int) error {
	if c == nil {
		return nil
	}
	if stored := c.jobs[j.Seq]; stored != nil {
		stored.Phase = j.Phase
	}
	return c.set(j.Seq, columns, set, row)
}

// keep adds a job, of which nobody else has a pointer, or counts it anew. Where the cache is full
// it forgets others, whichever they are: in a long queue the oldest are the next that are read, in
// a short one the newest.
func (c *JobCache) keep(j *cachedJob) {
	if j.OutOfLine != 0 {
		c.drop(j.Seq)
		return
	}
	if c.jobs[j.Seq] != j {
		c.drop(j.Seq)
		c.jobs[j.Seq] = j
	}
	c.bytes -= j.size
	j.size = sizeOf(&j.Job)
	c.bytes += j.size
	for seq := range c.jobs {
		if c.bytes <= c.limit {
			return
		}
		c.drop(seq)
	}
}

// drop forgets a job.
func (c *JobCache) drop(seq int64) {
	if c == nil {
		return
	}
	if j := c.jobs[seq]; j != nil {
		c.bytes -= j.size
		delete(c.jobs, seq)
	}
}

// sizeOf returns how many bytes a job needs in the cache, about.
func sizeOf(j *job.Job) int64 {
	const entry = 64 // of the map, with its free space
	size := entry + int(unsafe.Sizeof(cachedJob{}))
	for _, text := range textFields {
		size += len(text(j))
	}
	for p := range job.Parts {
		size += len(*j.Body(p))
	}
	return int64(size)
}
