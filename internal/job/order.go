package job

import "cmp"

// CompareClaim is the order in which ready jobs are claimed: higher priority,
// then earlier order time, then earlier insertion. Negative means a first.
func CompareClaim(a, b *Job) int {
	return cmp.Or(
		cmp.Compare(b.Priority, a.Priority),
		a.OrderTime.Compare(b.OrderTime),
		cmp.Compare(a.Seq, b.Seq),
	)
}
