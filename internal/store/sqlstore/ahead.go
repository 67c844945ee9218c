package sqlstore

import (
	"github.com/millrace/millrace/internal/job"
)

// countAhead counts the entries of the index of LockReady before a place in it: those of a higher
// priority, and those of the same one that come earlier. Each part ends after $5 entries, so its
// cost is bounded whatever the backlog.
var countAhead = &Statement{"count_ahead", `SELECT
	(SELECT count(*) FROM (SELECT 1 AS one FROM ready WHERE queue_hash=$1 AND priority>$2
		{limit $5}) AS higher) +
	(SELECT count(*) FROM (SELECT 1 AS one FROM ready WHERE queue_hash=$1 AND priority=$2
		AND (order_time,seq)<($3,$4) {limit $5}) AS earlier)`}

// CountAhead is documented at the port. Queues that share a hash by chance are counted together.
func (t *Tx) CountAhead(j *job.Job, most int) (int, error) {
	n, err := collect(t, countAhead, scanInt, int64(j.QueueHash()), j.Priority, Micros(j.OrderTime),
		j.Seq, most)
	if err != nil {
		return 0, err
	}
	return min(most, int(n[0])), nil
}
