package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

var dialect = sqlstore.Dialect{
	ForUpdate: "FOR UPDATE",
	ShortLockTimeout: " CROSS JOIN set_config('lock_timeout','" + shortLockTimeout +
		"',true) AS lock_timeout",
	SkipLocked:     "FOR UPDATE SKIP LOCKED",
	SkipLockedJobs: "FOR UPDATE OF j SKIP LOCKED FOR UPDATE OF s SKIP LOCKED",
	ForLeaseUpdate: "FOR NO KEY UPDATE",
	RunEnd: "coalesce((SELECT 1 FROM run_ends AS e " +
		"WHERE e.seq=$n.seq AND e.run_id=$n.run_id),0)",
	In:           "= ANY($n::int8[])",
	Identities:   "j.identity = ANY($n::bytea[])",
	BlobIn:       "= ANY($n::bytea[])",
	TextIn:       "= ANY($n::text[])",
	EachText:     "SELECT unnest($n::text[]) AS value",
	Among:        "= ANY(ARRAY($n))",
	Limit:        "LIMIT $n",
	Unindexed:    "$n+0",
	Within:       "($n,seq)>($5,$1) AND ($n,seq)<($5,$2)",
	After:        "($n,id)>($1,$2) AND $n<=$1 ORDER BY $n,id",
	Between:      "($n,id)>($1,$2) AND ($n,id)<=($1,$3)",
	EachPriority: eachPriority(),
}

// eachPriority returns one select for each priority and for none, in the order of its index and
// with a limit of its own, so that the planner merges them instead of sorting all jobs. The
// priorities are computed from a parameter: with constants the planner might choose an index of
// another order.
func eachPriority() string {
	var each []string
	for i := range store.MaxPriority - job.NoPriority + 1 {
		each = append(each,
			fmt.Sprintf("(SELECT seq,listed,key FROM $n AND priority=$6::int8+%d AND "+
				"$6::int8+%d<=$7::int8 ORDER BY listed,key LIMIT $5)", i, i))
	}
	return strings.Join(each, " UNION ALL ")
}

var lockName = &sqlstore.Statement{Name: "lock_name",
	SQL: "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"}

// readState is sent with BEGIN.
const readState = "SELECT (extract(epoch FROM now())*1000000)::int8, " +
	"current_setting('transaction_read_only'), " + selectServer

// session is one transaction on a connection of its own. Its statements end with ctx, its COMMIT
// and ROLLBACK do not.
type session struct {
	ctx           context.Context
	conn          *sql.Conn
	link          *connection // of conn
	observe       sqlstore.Observer
	local         string // see route
	conflicts     *conflictWindow
	watermarks    *watermarks
	abandoned     *abandonedSlots
	endChecks     *endChecks
	now           time.Time
	beganAt       time.Time // now by the clock of the server, whatever a test has set
	slot          int64
	countedQueues []int64 // the queues that were asked for by Slot

	readOnly  bool // the transaction cannot write
	isNewConn bool // the connection was not used before
}

// begin opens the transaction and in the same round trip reads when it began, by the clock of
// the database, so that all nodes agree. Behind a pooler the same statement makes the settings
// of the transaction.
func (s *session) begin(text string, clock func() time.Time) error {
	results, err := s.simple(s.ctx, "BEGIN", text+"; "+readState+s.local)
	if err != nil {
		return s.Translate("store.begin", err)
	}
	row := results[1].Rows[0]
	s.readOnly = string(row[1]) == "on"
	s.link.identify(string(row[2]))
	us, err := strconv.ParseInt(string(row[0]), 10, 64)
	s.beganAt = time.UnixMicro(us).UTC()
	if s.now = s.beganAt; clock != nil {
		s.now = clock().UTC().Truncate(time.Microsecond)
	}
	return s.Translate("store.begin", err)
}

// commit continues when the caller leaves, so that its outcome is known. The server answers
// COMMIT with ROLLBACK, and no error, where a statement had failed before.
func (s *session) commit() error {
	ctx, cancel := sqlstore.WithDeadline(context.WithoutCancel(s.ctx))
	defer cancel()
	results, err := s.simple(ctx, "COMMIT", "COMMIT")
	if err != nil {
		return translate("store.commit", err)
	}
	if results[0].CommandTag.String() != "COMMIT" {
		return &job.Error{Kind: job.Unavailable, Op: "store.commit",
			Msg: "the database rolled the transaction back"}
	}
	return nil
}

// rollback ends the transaction. A connection on which that fails is not used again: the pool
// finds it closed or inside a transaction.
func (s *session) rollback() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 5*time.Second)
	defer cancel()
	s.simple(ctx, "ROLLBACK", "ROLLBACK")
}

// discard closes the connection instead of returning it to the pool. The pool then opens another
// one when it needs it.
func (s *session) discard() {
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
}

// simple runs several statements in one round trip, by the simple query protocol. It has no
// parameters, so nothing that a request brings may stand in text. It marks a connection that it
// meets for the first time, see session.isNewConn.
func (s *session) simple(ctx context.Context, name, text string) (results []*pgconn.Result,
	err error) {
	started := time.Now()
	err = s.conn.Raw(func(c any) error {
		pg := c.(*stdlib.Conn).Conn().PgConn()
		if used := pg.CustomData(); used["millrace"] == nil {
			used["millrace"], s.isNewConn = true, true
		}
		s.link = connectionOf(pg)
		results, err = pg.Exec(ctx, text).ReadAll()
		return err
	})
	s.observe(name, time.Since(started), err)
	return results, err
}

// Query is documented at sqlstore.Session, as are all exported methods below.
func (s *session) Query(st *sqlstore.Statement, args ...any) (*sql.Rows, error) {
	st, args = s.override(st, args)
	started := time.Now()
	rows, err := s.conn.QueryContext(s.ctx, dialect.Text(st), args...)
	took := time.Since(started)
	s.observe(st.Name, took, err)
	s.watermarks.record(st, args, took)
	if st == nextDueOrEnd {
		s.endChecks.record(started, took)
	}
	return rows, s.Translate(st.Name, err)
}

// override returns the statement that this database runs in the place of a shared one, and its
// arguments: claims and sweeps begin at watermarks, and the next due time includes recorded ends.
func (s *session) override(st *sqlstore.Statement, args []any) (*sqlstore.Statement, []any) {
	switch st {
	case sqlstore.LockReady:
		w := s.watermarks.readyWatermarks(args[0].(int64), s.beganAt)
		if w != nil {
			return lockReadyFrom, append(args, w.high, w.low, w.since)
		}
	case sqlstore.LockExpired:
		return lockExpiredFrom, append(args, s.watermarks.leasesWatermark(s.beganAt))
	case sqlstore.NextLease:
		return nextLeaseFrom, append(args, s.watermarks.leasesWatermark(s.beganAt))
	case sqlstore.NextDue:
		if s.endChecks.isDue(time.Now()) {
			return nextDueOrEnd, args
		}
	}
	return st, args
}

func (s *session) Exec(st *sqlstore.Statement, args ...any) (int64, error) {
	return s.exec(st.Name, dialect.Text(st), args...)
}

func (s *session) Bulk(b *sqlstore.Bulk, set *sqlstore.BulkValues) error {
	text, args := parameters(b, set)
	started := time.Now()
	_, err := s.exec(b.Name, text, args...)
	if b == sqlstore.AddCounts {
		s.abandoned.record(s.countedQueues, s.slot, s.now, time.Since(started))
	}
	return err
}

// exec runs a statement that returns no rows and reports it by its name.
func (s *session) exec(name, text string, args ...any) (affected int64, err error) {
	started := time.Now()
	res, err := s.conn.ExecContext(s.ctx, text, args...)
	s.observe(name, time.Since(started), err)
	if err != nil {
		return 0, s.Translate(name, err)
	}
	return res.RowsAffected()
}

// InsertJobs reads the numbers of the jobs that were stored: those without one are taken. A
// transaction that inserts the same job waits here until the other one has ended.
func (s *session) InsertJobs(jobs []*job.Job,
	definitions, states *sqlstore.BulkValues) (existing []int,
	err error) {
	started := time.Now()
	b := s.conflicts.statement(started)
	text, args := insertParameters(b, jobs, definitions, states)
	seqs, err := s.insertedSeqs(text, args, len(jobs))
	if b == insertNew {
		err = asIdentityExists(err)
	}
	s.observe(b.Name, time.Since(started), err)
	if errors.Is(err, errIdentityExists) {
		s.conflicts.record(started)
	}
	if err != nil {
		return nil, s.Translate(b.Name, err)
	}
	if len(seqs) < len(jobs) {
		s.conflicts.record(started)
	}
	for i, j := range jobs {
		identity := job.IdentityHash(definitions.Value(i, identityColumn).([]byte))
		j.Seq = seqs[identity]
		if j.Seq == 0 {
			existing = append(existing, i)
		}
		delete(seqs, identity) // a later job of the set with the same identity is taken
	}
	return existing, nil
}

// insertedSeqs runs an insert of jobs and returns the numbers of those that were stored.
func (s *session) insertedSeqs(text string, args []any, n int) (map[job.IdentityHash]int64,
	error) {
	rows, err := s.conn.QueryContext(s.ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	seqs := make(map[job.IdentityHash]int64, n)
	for rows.Next() {
		var identity []byte
		var seq int64
		if err := rows.Scan(&identity, &seq); err != nil {
			return nil, err
		}
		seqs[job.IdentityHash(identity)] = seq
	}
	return seqs, rows.Err()
}

// ChangePhase is one statement.
func (s *session) ChangePhase(m *sqlstore.PhaseChange, set *sqlstore.BulkValues) (int64, error) {
	args, same := arguments(nil, m.Columns, set)
	return s.exec(m.Name, phaseChangeText(m, same), args...)
}

// DeleteJobs is one statement.
func (s *session) DeleteJobs(others []string, seqs []int64) error {
	_, err := s.exec("delete_jobs", deleteText(others), seqs)
	return err
}

func (s *session) Now() time.Time { return s.now }

func (s *session) LockName(name string) error {
	_, err := s.Exec(lockName, name)
	return err
}

// Slot is the slot of the transaction unless its counters have too many versions.
func (s *session) Slot(queueHash int64) int64 {
	s.countedQueues = append(s.countedQueues, queueHash)
	return s.abandoned.slotFor(queueHash, s.slot, s.now)
}

func (s *session) Ints(seqs []int64) any {
	if seqs == nil {
		seqs = []int64{}
	}
	return seqs
}

func (s *session) Identities(ids []job.ID) any {
	list := make([][]byte, len(ids))
	for i, id := range ids {
		hash := id.IdentityHash()
		list[i] = hash[:]
	}
	return list
}

func (s *session) IdentityHashes(identities []job.IdentityHash) any {
	list := make([][]byte, len(identities))
	for i := range identities {
		list[i] = identities[i][:]
	}
	return list
}

func (s *session) Texts(texts []string) any { return texts }

// Translate gives an error its kind. After ctx has ended, an error that is not of the server is
// the end of ctx: the driver closes the connection then.
func (s *session) Translate(op string, err error) error {
	var pg *pgconn.PgError
	if err != nil && s.ctx.Err() != nil && !errors.As(err, &pg) {
		err = s.ctx.Err()
	}
	return translate(op, err)
}
