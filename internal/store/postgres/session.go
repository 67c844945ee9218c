package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
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
	ForUpdate:    "FOR UPDATE",
	SkipLocked:   "FOR UPDATE SKIP LOCKED",
	In:           "= ANY($n::int8[])",
	BlobIn:       "= ANY($n::bytea[])",
	TextIn:       "= ANY($n::text[])",
	Limit:        "LIMIT $n",
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
			fmt.Sprintf("(SELECT seq,listed,key FROM jobs WHERE $n AND priority=$6::int8+%d AND "+
				"$6::int8+%d<=$7::int8 ORDER BY listed,key LIMIT $5)", i, i))
	}
	return strings.Join(each, " UNION ALL ")
}

var lockName = &sqlstore.Statement{Name: "lock_name",
	SQL: "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"}

// readState is sent with BEGIN.
const readState = "SELECT (extract(epoch FROM now())*1000000)::int8, " +
	"current_setting('transaction_read_only')"

// session is one transaction on a connection of its own. Its statements end with ctx, its
// COMMIT and ROLLBACK do not.
type session struct {
	ctx     context.Context
	conn    *sql.Conn
	observe sqlstore.Observer
	local   string // see route
	now     time.Time
	slot    int64

	readOnly bool // the transaction cannot write
	fresh    bool // the connection was not used before
}

// begin opens the transaction and in the same round trip reads when it began, by the clock of
// the database, so that all nodes agree. Behind a pooler the same statement makes the settings
// of the transaction.
func (s *session) begin(text string, override func() time.Time) error {
	results, err := s.simple(s.ctx, "BEGIN", text+"; "+readState+s.local)
	if err != nil {
		return s.Translate("store.begin", err)
	}
	s.readOnly = string(results[1].Rows[0][1]) == "on"
	if override != nil {
		s.now = override().UTC().Truncate(time.Microsecond)
		return nil
	}
	us, err := strconv.ParseInt(string(results[1].Rows[0][0]), 10, 64)
	s.now = time.UnixMicro(us).UTC()
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

// discard closes the connection instead of returning it to the pool. The pool then opens
// another one when it needs it.
func (s *session) discard() {
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
}

// simple runs several statements in one round trip, by the simple query protocol. It has no
// parameters, so nothing that a request brings may stand in text. It marks a connection that it
// meets for the first time, see session.fresh.
func (s *session) simple(ctx context.Context, name, text string) (results []*pgconn.Result,
	err error) {
	started := time.Now()
	err = s.conn.Raw(func(c any) error {
		pg := c.(*stdlib.Conn).Conn().PgConn()
		if used := pg.CustomData(); used["millrace"] == nil {
			used["millrace"], s.fresh = true, true
		}
		results, err = pg.Exec(ctx, text).ReadAll()
		return err
	})
	s.observe(name, time.Since(started), err)
	return results, err
}

// Query is documented at sqlstore.Session, as are all exported methods below.
func (s *session) Query(st *sqlstore.Statement, args ...any) (*sql.Rows, error) {
	started := time.Now()
	rows, err := s.conn.QueryContext(s.ctx, dialect.Text(st), args...)
	s.observe(st.Name, time.Since(started), err)
	return rows, s.Translate(st.Name, err)
}

func (s *session) Exec(st *sqlstore.Statement, args ...any) (int64, error) {
	started := time.Now()
	res, err := s.conn.ExecContext(s.ctx, dialect.Text(st), args...)
	s.observe(st.Name, time.Since(started), err)
	if err != nil {
		return 0, s.Translate(st.Name, err)
	}
	return res.RowsAffected()
}

func (s *session) Bulk(b *sqlstore.Bulk, rows [][]any) error {
	text, args := parameters(b, rows)
	started := time.Now()
	_, err := s.conn.ExecContext(s.ctx, text, args...)
	s.observe(b.Name, time.Since(started), err)
	return s.Translate(b.Name, err)
}

// identColumn is where InsertValues has the identity of a job.
var identColumn = slices.IndexFunc(sqlstore.InsertJobs.Columns,
	func(c sqlstore.Column) bool { return c.Name == "ident" })

// InsertJobs reads the numbers of the jobs that were stored: those without one are taken. A
// transaction that inserts the same job waits here until the other one has ended.
func (s *session) InsertJobs(jobs []*job.Job) (taken []int, err error) {
	values := make([][]any, len(jobs))
	for i, j := range jobs {
		values[i] = sqlstore.InsertValues(j)
	}
	b := sqlstore.InsertJobs
	text, args := parameters(b, values)
	started := time.Now()
	seqs, err := s.insertedSeqs(text, args, len(jobs))
	s.observe(b.Name, time.Since(started), err)
	if err != nil {
		return nil, s.Translate(b.Name, err)
	}
	for i, j := range jobs {
		ident := job.IdentityHash(values[i][identColumn].([]byte))
		j.Seq = seqs[ident]
		if j.Seq == 0 {
			taken = append(taken, i)
		}
		delete(seqs, ident) // a later job of the set with the same identity is taken
	}
	return taken, nil
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
		var ident []byte
		var seq int64
		if err := rows.Scan(&ident, &seq); err != nil {
			return nil, err
		}
		seqs[job.IdentityHash(ident)] = seq
	}
	return seqs, rows.Err()
}

func (s *session) Now() time.Time { return s.now }

func (s *session) LockName(name string) error {
	_, err := s.Exec(lockName, name)
	return err
}

func (s *session) Slot() int64 { return s.slot }

func (s *session) Ints(seqs []int64) any {
	if seqs == nil {
		seqs = []int64{}
	}
	return seqs
}

func (s *session) IdentityHashes(idents []job.IdentityHash) any {
	list := make([][]byte, len(idents))
	for i := range idents {
		list[i] = idents[i][:]
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
