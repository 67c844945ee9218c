package sqlite

import (
	"unsafe"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// jobCache is the sqlstore.JobCache of the writer: it has jobs as the database has them, as no
// other connection writes to it. What a transaction has written is forgotten when that is rolled
// back. One goroutine uses it at a time.
type jobCache struct {
	jobs    map[int64]cachedJob // by number
	bytes   int64               // the sum of their sizes
	limit   int64
	written []int64 // the jobs that the transaction has written, in that order
}

type cachedJob struct {
	*job.Job
	size int64
}

// newJobCache returns a cache of jobs that together have at most limit bytes.
func newJobCache(limit int64) *jobCache {
	return &jobCache{jobs: map[int64]cachedJob{}, limit: limit}
}

// clear forgets all jobs. It is for when something else may have written to the database.
func (c *jobCache) clear() {
	clear(c.jobs)
	c.bytes = 0
}

// begin begins a transaction.
func (c *jobCache) begin() { c.written = c.written[:0] }

// mark returns the present point of the transaction, for rollback. That of its beginning is 0.
func (c *jobCache) mark() int { return len(c.written) }

// rollback forgets the jobs that the transaction has written since a mark.
func (c *jobCache) rollback(mark int) {
	for _, seq := range c.written[mark:] {
		c.Remove(seq)
	}
	c.written = c.written[:mark]
}

// Job is documented at sqlstore.JobCache, as are the methods below.
func (c *jobCache) Job(seq int64) *job.Job { return c.jobs[seq].Job }

func (c *jobCache) MarkWritten(seq int64) *job.Job {
	c.written = append(c.written, seq)
	return c.jobs[seq].Job
}

// Put forgets other jobs where the cache is full, whichever they are: in a long queue the oldest
// are the next that are read, in a short one the newest.
func (c *jobCache) Put(j *job.Job) {
	if j.OutOfLine != 0 {
		c.Remove(j.Seq)
		return
	}
	stored := cachedJob{j, sizeOf(j)}
	c.bytes += stored.size - c.jobs[j.Seq].size
	c.jobs[j.Seq] = stored
	for seq := range c.jobs {
		if c.bytes <= c.limit {
			return
		}
		c.Remove(seq)
	}
}

func (c *jobCache) Remove(seq int64) {
	if stored, ok := c.jobs[seq]; ok {
		c.bytes -= stored.size
		delete(c.jobs, seq)
	}
}

// sizeOf returns how many bytes a job needs in the cache, about.
func sizeOf(j *job.Job) int64 {
	const entry = 64 // of the map, with its free space
	return entry + int64(unsafe.Sizeof(cachedJob{})+unsafe.Sizeof(job.Job{})) +
		sqlstore.SizeOf(j)
}
