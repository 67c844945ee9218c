package sqlite

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/internal/job"
)

// The cache stays within its limit, whatever its jobs grow by, and is empty when they are gone.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	const limit, jobs = 50_000, 1000
	c := newJobCache(limit)
	sum := func() (bytes int64) {
		for _, j := range c.jobs {
			bytes += sizeOf(j.Job)
		}
		return bytes
	}
	peak := 0
	for seq := range int64(jobs) {
		c.Put(&job.Job{Seq: seq, ID: job.ID{Key: fmt.Sprint(seq)}, Payload: make([]byte, seq)})
		if j := c.MarkWritten(seq); j != nil {
			j.Worker, j.Result = fmt.Sprint("worker of ", seq), make([]byte, 2*seq)
			c.Put(j)
		}
		if c.bytes > limit || c.bytes != sum() {
			t.Fatalf("%d bytes of %d, counted as %d", sum(), limit, c.bytes)
		}
		peak = max(peak, len(c.jobs))
	}
	if peak < 10 || len(c.jobs) == 0 {
		t.Errorf("%d jobs at most, %d in the end", peak, len(c.jobs))
	}
	for seq := range int64(jobs) {
		c.Remove(seq)
	}
	if c.bytes != 0 || len(c.jobs) != 0 {
		t.Errorf("%d bytes of %d jobs are left", c.bytes, len(c.jobs))
	}
}
