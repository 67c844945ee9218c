package sqlstore

import (
	"github.com/millrace/millrace/internal/store"
)

// countAhead counts the entries of the index of LockReady before a place in it: those of a higher
// priority, and those of the same one that come earlier. Each part ends after $5 entries, so its
// cost is bounded whatever the backlog.
var countAhead = &Statement{"count_ahead", `SELECT
	(SELECT count(*) FROM (SELECT 1 AS one FROM ready WHERE queue_hash=$1 AND priority>$2
		{limit $5}) AS higher) +
	(SELECT count(*) FROM (SELECT 1 AS one FROM ready WHERE queue_hash=$1 AND priority=$2
		AND (order_time,seq)<($3,$4) {limit $5}) AS earlier)`}

// countOwned counts the entries of an owner in the index of list_owned, and ends after $3.
var countOwned = &Statement{"count_owned", `SELECT count(*) FROM (SELECT 1 AS one FROM jobs
	WHERE contract=$1 AND owner=$2 AND owner<>'' {limit $3}) AS some_jobs`}

// CountUpTo is documented at the port. Queues that share a hash by chance are counted together.
func (t *Tx) CountUpTo(s store.CountSelector, limit int) (int, error) {
	var n []int64
	var err error
	if j := s.Ahead; j != nil {
		n, err = collect(t, countAhead, scanInt, int64(j.QueueHash()), j.Priority,
			Micros(j.OrderTime), j.Seq, limit)
	} else {
		n, err = collect(t, countOwned, scanInt, s.Contract, s.Owner, limit)
	}
	if err != nil {
		return 0, err
	}
	return min(limit, int(n[0])), nil
}
