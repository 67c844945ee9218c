package postgres

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// A worker may end its run in a transaction of its own (millrace.complete and millrace.fail of the
// migrations). That locks the rows of the job in jobs and in leases, weakly, and inserts a row of
// run_ends:
//
//	the worker:  jobs FOR KEY SHARE ─▶ leases FOR KEY SHARE ─▶ insert run_ends ─▶ COMMIT
//	any other:   jobs FOR UPDATE ────▶ states, and whether run_ends has the run ─▶ Job.End
//
// The two locks exclude each other, and the states are read after the lock. So a transaction that
// has locked a job knows whether an end is recorded, and none is recorded until it ends. The lock
// of a heartbeat, which moves no job, does not wait for that of a worker.
var (
	listRunEnds = &sqlstore.Statement{Name: "list_run_ends", SQL: `SELECT e.seq,e.run_id,
		coalesce(octet_length(e.result),0),l.seq IS NOT NULL FROM run_ends AS e
		LEFT JOIN leases AS l ON l.seq=e.seq AND l.run_id=e.run_id
		WHERE e.seq>$1 ORDER BY e.seq LIMIT $2`}
	getRunEnds = &sqlstore.Statement{Name: "get_run_ends", SQL: `SELECT run_id,succeeded,result,
		error,error_type,retryable FROM run_ends WHERE seq {in $1}`}
	deleteRunEnds = &sqlstore.Statement{Name: "delete_run_ends",
		SQL: "DELETE FROM run_ends WHERE seq {in $1} AND run_id {blob in $2}"}

	// nextDueOrEnd is sqlstore.NextDue and, in a second row, whether an end is recorded.
	nextDueOrEnd = &sqlstore.Statement{Name: "next_due_or_end", SQL: `(SELECT due_at,0 AS ended
		FROM waiting WHERE has_open_deps IS NULL AND due_at<=$1 ORDER BY due_at LIMIT 1)
		UNION ALL (SELECT recorded_at,1 FROM run_ends WHERE seq>0
		ORDER BY seq LIMIT 1)`}
)

// ListRunEnds is documented at sqlstore.Session, as are RunEnds and DeleteRunEnds.
func (s *session) ListRunEnds(after int64, n int) ([]*job.Job, error) {
	all, _, err := readRows(s, listRunEnds, scanListedEnd, after, n)
	return all, err
}

func (s *session) RunEnds(seqs []int64) ([]job.RunEnd, error) {
	all, _, err := readRows(s, getRunEnds, scanRunEnd, s.Ints(seqs))
	return all, err
}

func (s *session) DeleteRunEnds(runs []job.RunID) error {
	seqs, ids := make([]int64, len(runs)), make([]job.IdentityHash, len(runs))
	for i, run := range runs {
		seqs[i], ids[i] = run.Seq(), job.IdentityHash(run)
	}
	_, err := s.Exec(deleteRunEnds, s.Ints(seqs), s.IdentityHashes(ids))
	return err
}

// scanRunEnd reads a row of getRunEnds. A result that is missing is nil, and an empty one is not.
func scanRunEnd(rows *sql.Rows) (e job.RunEnd, err error) {
	var run []byte
	var result sql.Null[[]byte]
	var text, kind sql.NullString
	var retryable sql.NullBool
	err = rows.Scan(&run, &e.Succeeded, &result, &text, &kind, &retryable)
	if e.Run = runOf(run); result.Valid {
		e.Result = append([]byte{}, result.V...)
	}
	e.Error, e.ErrorType, e.Retryable = text.String, kind.String, retryable.Bool
	return e, err
}

// scanListedEnd reads a row of listRunEnds.
func scanListedEnd(rows *sql.Rows) (*job.Job, error) {
	j := &job.Job{End: &job.RunEnd{}}
	var run []byte
	isCurrent := false
	err := rows.Scan(&j.Seq, &run, &j.Size, &isCurrent)
	if j.End.Run = runOf(run); isCurrent {
		j.Run = j.End.Run
	}
	return j, err
}

// runOf returns a run id that was read; bytes of another length are none.
func runOf(data []byte) (r job.RunID) {
	if len(data) == len(r) {
		r = job.RunID(data)
	}
	return r
}

// countRunEnds counts the recorded ends up to $1.
const countRunEnds = `SELECT count(*),coalesce(min(recorded_at),0) FROM
	(SELECT recorded_at FROM run_ends WHERE seq>0 ORDER BY seq LIMIT $1) AS e`

// RunEnds counts the ends of runs that are recorded and not carried out, up to limit, and returns
// when the oldest of these was recorded; the zero time where there is none.
func (s *Store) RunEnds(ctx context.Context, limit int) (n int, oldest time.Time, err error) {
	if err := s.connectBreaker.allow(); err != nil {
		return 0, oldest, err
	}
	var at int64
	err = s.db.QueryRowContext(ctx, countRunEnds, limit).Scan(&n, &at)
	if err != nil || n == 0 {
		return 0, oldest, translate("store.run_ends", err)
	}
	return n, sqlstore.FromMicros(at), nil
}

// endReadShare is how many times as long as a check for recorded ends the pause until the next one
// is.
const endReadShare = 20

// endChecks decides when a node checks for recorded ends again. What was removed stays in the index
// for as long as a session holds a snapshot, and a check passes over all of it. Notifications
// announce new ends meanwhile.
type endChecks struct {
	mu   sync.Mutex
	next time.Time
}

func (l *endChecks) isDue(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !now.Before(l.next)
}

// record records how long a check has taken.
func (l *endChecks) record(now time.Time, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = now.Add(endReadShare * took)
}
