package job_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/job"
)

// G-X-05: higher priority, then earlier order time, then earlier insertion.
func TestCompareClaim(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	want := []*job.Job{
		{Priority: 2, OrderTime: at(9), Seq: 9},
		{Priority: 1, OrderTime: at(1), Seq: 8},
		{Priority: 1, OrderTime: at(2), Seq: 1},
		{Priority: 1, OrderTime: at(2), Seq: 2},
		{OrderTime: at(2), Seq: 3},
		{Priority: -1, Seq: 0},
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, job.CompareClaim)
	if !slices.Equal(got, want) {
		t.Errorf("sorted to %v", got)
	}
	if job.CompareClaim(want[0], want[0]) != 0 {
		t.Error("a job is not before itself")
	}
}

// It is an order: no two different jobs are equal, it turns with its sides, and
// it carries over.
func TestCompareClaimIsAnOrder(t *testing.T) {
	t.Parallel()
	jobs := rapid.Custom(func(t *rapid.T) *job.Job {
		small := rapid.IntRange(-1, 1)
		return &job.Job{Priority: small.Draw(t, "priority"),
			OrderTime: time.Unix(int64(small.Draw(t, "time")), 0), Seq: int64(small.Draw(t, "seq"))}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := jobs.Draw(t, "a"), jobs.Draw(t, "b"), jobs.Draw(t, "c")
		ab, ba, bc, ac := job.CompareClaim(a, b), job.CompareClaim(b, a), job.CompareClaim(b, c),
			job.CompareClaim(a, c)
		same := a.Priority == b.Priority && a.OrderTime.Equal(b.OrderTime) && a.Seq == b.Seq
		if ab != -ba || (ab == 0) != same || (ab < 0 && bc < 0 && ac >= 0) {
			t.Fatalf("%d %d %d %d", ab, ba, bc, ac)
		}
	})
}
