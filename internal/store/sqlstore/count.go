package sqlstore

import (
	"database/sql"
	"fmt"

	"github.com/millrace/millrace/internal/job"
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

// Each counts the entries that an index has of each of some values, $3 of each at most.
var (
	countFinished   = countEach("count_over", "finished WHERE contract=$1 AND state=o.value")
	countSearchable = countEach("count_found",
		"searchable WHERE contract=$1 AND queue=$4 AND state=o.value")
	countSearchableOfAll = countEach("count_found_of_all",
		"searchable WHERE contract=$1 AND state=o.value AND state<>''")
	countKind  = countEach("count_kind", "jobs WHERE contract=$1 AND kind=o.value AND kind<>''")
	countOwned = countEach("count_owned", "jobs WHERE contract=$1 AND owner=o.value AND owner<>''")
)

func countEach(name, rows string) *Statement {
	return &Statement{name, "SELECT o.value,0,(SELECT count(*) FROM (SELECT 1 AS one FROM " + rows +
		" {limit $3}) AS some_jobs) FROM ({each text in $2}) AS o"}
}

// The statements that group jobs, by field and phase. Each looks at $1 jobs in the order of an
// index, behind $2 others, or at those of several queues that are ready. Columns of the table jobs
// are read by the numbers of the jobs, so that no planner begins with that table.
var (
	groups = groupStatements("group_", func(p job.Phase) string {
		if p == job.Done { // by >= and <=, for the reason that messagesOf gives
			return firstRows("finished WHERE contract>=$3 AND contract<=$3", "contract,state,seq") +
				" WHERE $4='' OR (SELECT j.queue FROM jobs AS j WHERE j.seq=s.seq)=$4"
		}
		return firstRows(tables[p].name, "seq DESC") + ` CROSS JOIN jobs AS o
			WHERE o.seq=s.seq AND o.contract=$3 AND ($4='' OR o.queue=$4)`
	})
	groupsOfQueue = groupStatements("group_queue_", func(p job.Phase) string {
		return `(SELECT seq FROM jobs WHERE contract=$3 AND queue>=$4 AND queue<=$4
			AND listed IS NOT NULL AND seq>0 ORDER BY queue,seq {limit $1}
			OFFSET CAST($2 AS BIGINT)) AS o CROSS JOIN ` + tables[p].name + " AS s WHERE s.seq=o.seq"
	})
	groupsOfReady = groupStatements("group_one_", func(job.Phase) string {
		return firstRows("ready WHERE queue_hash=$3", "priority DESC,order_time,seq")
	})
	// The index has the worker.
	workersOfFinished = &Statement{"group_workers_finished", `SELECT worker,0,count(*) FROM
		(SELECT worker FROM finished WHERE contract>=$3 AND contract<=$3
		ORDER BY contract,state,seq {limit $1} OFFSET CAST($2 AS BIGINT)) AS few GROUP BY worker`}
	earlierWorkers   = earlierWorkersStatements()
	groupsOfAllReady = groupStatements("group_some_", func(job.Phase) string {
		return `(SELECT seq,state,worker,failed_deps FROM ready
			WHERE queue_hash {in $2} {limit $1}) AS s`
	})
)

// Groups are the statements that group jobs: of phases, of a queue of searchable jobs, and of one
// and of several queues of ready ones. A test reads how many rows they look at.
var Groups = [...]*[store.ByWorker + 1][len(tables)]*Statement{&groups, &groupsOfQueue,
	&groupsOfReady, &groupsOfAllReady}

// firstRows selects the first jobs of a table in an order, behind those that are skipped.
func firstRows(table, order string) string {
	return "(SELECT seq,state,worker,failed_deps FROM " + table + " ORDER BY " + order +
		" {limit $1} OFFSET CAST($2 AS BIGINT)) AS s"
}

func groupStatements(name string, from func(job.Phase) string) (
	all [store.ByWorker + 1][len(tables)]*Statement) {
	for by, column := range map[store.JobField]string{store.ByState: "s.state",
		store.ByKind:   "(SELECT k.kind FROM jobs AS k WHERE k.seq=s.seq)",
		store.ByWorker: "s.worker"} {
		failed := "0"
		if by == store.ByState {
			failed = "CASE WHEN s.failed_deps>0 THEN 1 ELSE 0 END"
		}
		for p := range tables {
			all[by][p] = &Statement{name + tables[p].name, fmt.Sprintf(`SELECT g,failed,count(*)
				FROM (SELECT %s AS g,%s AS failed FROM %s) AS some_jobs GROUP BY g,failed`,
				column, failed, from(job.Phase(p)))}
		}
	}
	return all
}

// earlierWorkersStatements groups the jobs that had a worker before, of jobs that wait and jobs
// that are ready, by an index that has no others. A job of another job type or queue has no worker
// here.
func earlierWorkersStatements() (all [len(tables)]*Statement) {
	for _, p := range []job.Phase{job.Waiting, job.Ready} {
		all[p] = &Statement{"group_workers_" + tables[p].name, fmt.Sprintf(`SELECT g,0,count(*) FROM
			(SELECT CASE WHEN EXISTS (SELECT 1 FROM jobs AS j WHERE j.seq=few.seq AND j.contract=$3
			AND ($4='' OR j.queue=$4)) THEN few.worker ELSE '' END AS g FROM
			(SELECT worker,seq FROM %s WHERE worker<>'' AND worker>'' ORDER BY worker,seq
			{limit $1} OFFSET CAST($2 AS BIGINT)) AS few) AS some_jobs GROUP BY g`, tables[p].name)}
	}
	return all
}

// CountUpTo is documented at the port. Queues that share a hash by chance are counted together.
func (t *Tx) CountUpTo(s store.CountSelector, limit int) ([]store.JobGroup, error) {
	if !isText(s.JobType, s.Queue) || !isText(s.Owners...) || !isText(s.Values...) {
		return nil, &job.Error{Kind: job.Invalid, Op: "count",
			Msg: "a text is not UTF-8 or holds a NUL character"}
	}
	each := func(st *Statement, values []string, more ...any) ([]store.JobGroup, error) {
		return collect(t, st, scanGroup, append([]any{s.JobType, t.s.Texts(values), limit},
			more...)...)
	}
	switch {
	case s.Ahead != nil:
		return t.countAhead(s.Ahead, limit)
	case len(s.Owners) > 0:
		return each(countOwned, s.Owners)
	case len(s.Values) > 0 && s.By == store.ByKind:
		return each(countKind, s.Values)
	case len(s.Values) > 0 && s.Queue != "":
		return each(countSearchable, s.Values, s.Queue)
	case len(s.Values) > 0 && s.Searchable:
		return each(countSearchableOfAll, s.Values)
	case len(s.Values) > 0:
		return each(countFinished, s.Values)
	case s.By == store.ByNothing:
		return []store.JobGroup{{}}, t.failed
	}
	st, args := groups[s.By][s.Phase], []any{limit, s.Skip, s.JobType, s.Queue}
	switch {
	case s.HadWorker:
		st = earlierWorkers[s.Phase]
	case s.By == store.ByWorker && s.Phase == job.Done && s.Queue == "":
		st, args = workersOfFinished, args[:3]
	case len(s.Ready) == 1:
		st, args = groupsOfReady[s.By][s.Phase], []any{limit, s.Skip, int64(s.Ready[0])}
	case s.Phase == job.Ready && len(s.Ready) > 0:
		st, args = groupsOfAllReady[s.By][s.Phase], []any{limit, t.s.Ints(hashesOf(s.Ready))}
	case s.Searchable:
		st = groupsOfQueue[s.By][s.Phase]
	}
	return collect(t, st, scanGroup, args...)
}

func scanGroup(rows *sql.Rows) (g store.JobGroup, err error) {
	err = rows.Scan(&g.Value, &g.FailedDeps, &g.Jobs)
	return g, err
}

// countAhead counts the ready jobs of the queue of a job that come before it.
func (t *Tx) countAhead(j *job.Job, limit int) ([]store.JobGroup, error) {
	n, err := collect(t, countAhead, scanInt, int64(j.QueueHash()), j.Priority,
		Micros(j.OrderTime), j.Seq, limit)
	if err != nil {
		return nil, err
	}
	return []store.JobGroup{{Jobs: min(limit, int(n[0]))}}, nil
}
