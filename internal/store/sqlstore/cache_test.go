package sqlstore

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/internal/job"
)

// The cache stays within its limit, whatever its jobs grow by, and is empty when they are gone.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	const limit, jobs = 50_000, 1000
	c := NewJobCache(limit)
	sum := func() (bytes int64) {
		for _, j := range c.jobs {
			bytes += sizeOf(&j.Job)
		}
		return bytes
	}
	most := 0
	for seq := range int64(jobs) {
		j := &job.Job{Seq: seq, ID: job.ID{Key: fmt.Sprint(seq)}, Payload: make([]byte, seq)}
		c.keepRead([]*job.Job{j})
		j.Worker, j.Result = fmt.Sprint("worker of ", seq), make([]byte, 2*seq)
		u := stateWriters[stateWrite{body: job.Result}]
		if err := c.set(seq, u.columns, setOfJobs(u.update, u.columns, []*job.Job{j}),
			0); err != nil {
			t.Fatal(err)
		}
		if c.bytes > limit || c.bytes != sum() {
			t.Fatalf("%d bytes of %d, counted as %d", sum(), limit, c.bytes)
		}
		most = max(most, len(c.jobs))
	}
	if most < 10 || len(c.jobs) == 0 {
		t.Errorf("%d jobs at most, %d in the end", most, len(c.jobs))
	}
	for seq := range int64(jobs) {
		c.drop(seq)
	}
	if c.bytes != 0 || len(c.jobs) != 0 {
		t.Errorf("%d bytes of %d jobs are left", c.bytes, len(c.jobs))
	}
}
