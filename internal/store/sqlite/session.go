package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

var dialect = sqlstore.Dialect{
	RunEnd: "0",

	In: "IN (SELECT value FROM json_each($n))",
	// Of a pair of columns that is IN a select the planner looks up the first one alone, which is
	// the same for all keys that begin alike. A join has it look up both.
	Identities: "j.seq IN (SELECT k.seq FROM json_each($n) AS v CROSS JOIN jobs AS k " +
		"ON k.key_start=v.value->>0 AND k.identity=unhex(v.value->>1))",
	BlobIn: "IN (SELECT unhex(value) FROM json_each($n))",
	TextIn: "IN (SELECT value FROM json_each($n))",

	EachText: "SELECT value FROM json_each($n)",
	Among:    "IN ($n)",

	// The planner reads the value of a bare parameter and would prepare the statement again for
	// every new value. The cast hides it.
	Limit: "LIMIT CAST($n AS INTEGER)",
	// Where an index could be looked up, the planner would prepare the statement again too.
	Unindexed:    "+$n",
	Within:       "$n=$5 AND seq>$1 AND seq<$2",
	After:        "$n=$1 AND id>$2 ORDER BY id",
	Between:      "$n=$1 AND id>$2 AND id<=$3",
	EachPriority: eachPriority(),
}

// eachPriority returns one select for each priority and for none. SQLite merges them in the order
// of their index and reads no more of each than it needs.
func eachPriority() string {
	var each []string
	for p := job.NoPriority; p <= store.MaxPriority; p++ {
		each = append(each,
			fmt.Sprintf("SELECT seq,listed,key FROM $n AND priority=%d AND %d BETWEEN "+
				"$6 AND $7", p, p))
	}
	return strings.Join(each, " UNION ALL ")
}

// seqBlockSize is how many job numbers are taken from the table numbers at a time.
const seqBlockSize = 10_000

// session is one connection with its prepared statements, each of which is prepared once. It
// serves one transaction at a time, on one goroutine at a time. Its database has no other
// connection.
type session struct {
	// ctx is the context of the statements: the caller's in a view, and none in an update, as a
	// caller that leaves must not break a transaction that others share.
	ctx      context.Context
	db       *sql.DB
	conn     *sql.Conn
	observe  sqlstore.Observer
	clock    func() time.Time
	prepared map[any]*sql.Stmt // by *Statement, or by text
	bulks    map[bulkKey]*sql.Stmt
	now      time.Time
	seqs     seqBlock
	cache    *jobCache // nil in a reader
	version  int64     // of the data, when the cache was checked
}

// seqBlock is the block of job numbers that is in use: those from next to end-1 are free. A
// transaction that is rolled back restores the block from before it. Numbers that were not used
// when the process ends are lost, which leaves gaps of up to seqBlockSize.
type seqBlock struct{ next, end int64 }

// takeNumbers takes $1 numbers and returns the one after the last of them. It is part of the
// transaction that needs them.
var takeNumbers = &sqlstore.Statement{Name: "take_numbers",
	SQL: "UPDATE numbers SET next=next+$1 WHERE name='jobs' RETURNING next"}

// newSession takes the one connection of db, and closes db if that fails. The session owns db
// from then on.
func newSession(ctx context.Context, db *sql.DB, c Config) (*session, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		db.Close()
		return nil, err
	}
	return &session{ctx: context.Background(), db: db, conn: conn, observe: c.Observe, clock: c.Now,
		prepared: map[any]*sql.Stmt{}, bulks: map[bulkKey]*sql.Stmt{}}, nil
}

// close closes the statements, the connection and the database. Errors do not matter: what was
// committed is on the disk already.
func (s *session) close() {
	for _, p := range s.prepared {
		p.Close()
	}
	s.closeBulks()
	s.conn.Close()
	s.db.Close()
}

// begin opens a transaction: IMMEDIATE for the writer, DEFERRED for a reader.
func (s *session) begin(kind string) error {
	s.readClock()
	return s.run("BEGIN " + kind)
}

// beginWrite opens a transaction of the writer.
func (s *session) beginWrite() error {
	if err := s.begin("IMMEDIATE"); err != nil {
		return err
	}
	s.cache.begin()
	return s.checkCache()
}

// checkCache clears the cache if another connection has written to the database since the last
// transaction. None should: the lock of the file keeps other processes of Millrace out, where the
// system has such locks, but not an operator's shell.
func (s *session) checkCache() error {
	const text = "PRAGMA data_version"
	p, err := s.prepare(text, text)
	if err != nil {
		return err
	}
	var version int64
	if err := p.QueryRowContext(s.ctx).Scan(&version); err != nil {
		return err
	}
	if version != s.version {
		s.cache.clear()
		s.version = version
	}
	return nil
}

// savepoint is a point of a transaction, for what the session remembers of it.
type savepoint struct {
	seqs  seqBlock
	cache int
}

// savepoint returns the present point of the transaction.
func (s *session) savepoint() savepoint { return savepoint{s.seqs, s.cache.mark()} }

// restore forgets what the transaction has done since a savepoint.
func (s *session) restore(p savepoint) {
	s.seqs = p.seqs
	s.cache.rollback(p.cache)
}

// readClock fixes the time of an update or a view.
func (s *session) readClock() { s.now = s.clock().UTC().Truncate(time.Microsecond) }

// run runs a statement without parameters, such as COMMIT.
func (s *session) run(text string) error {
	p, err := s.prepare(text, text)
	if err != nil {
		return err
	}
	started := time.Now()
	_, err = p.ExecContext(s.ctx)
	s.observe(text, time.Since(started), err)
	return err
}

// prepare returns the statement of a key, and prepares text if the session has none yet.
func (s *session) prepare(key any, text string) (*sql.Stmt, error) {
	if p := s.prepared[key]; p != nil {
		return p, nil
	}
	p, err := s.conn.PrepareContext(s.ctx, text)
	if err != nil {
		return nil, err
	}
	s.prepared[key] = p
	return p, nil
}

// statement returns a prepared statement. Its text is not even looked up if the session has it.
func (s *session) statement(st *sqlstore.Statement) (*sql.Stmt, error) {
	if p := s.prepared[st]; p != nil {
		return p, nil
	}
	return s.prepare(st, dialect.Text(st))
}

// Query is documented at sqlstore.Session, as are all exported methods below.
func (s *session) Query(st *sqlstore.Statement, args ...any) (*sql.Rows, error) {
	started := time.Now()
	rows, err := s.query(st, args)
	s.observe(st.Name, time.Since(started), err)
	return rows, translate(st.Name, err)
}

func (s *session) query(st *sqlstore.Statement, args []any) (*sql.Rows, error) {
	p, err := s.statement(st)
	if err != nil {
		return nil, err
	}
	return p.QueryContext(s.ctx, args...)
}

func (s *session) Exec(st *sqlstore.Statement, args ...any) (int64, error) {
	started := time.Now()
	affected, err := s.exec(st, args)
	s.observe(st.Name, time.Since(started), err)
	return affected, translate(st.Name, err)
}

func (s *session) exec(st *sqlstore.Statement, args []any) (int64, error) {
	p, err := s.statement(st)
	if err != nil {
		return 0, err
	}
	return exec(s.ctx, p, args)
}

// exec runs a prepared statement and returns how many rows it changed.
func exec(ctx context.Context, p *sql.Stmt, args []any) (int64, error) {
	res, err := p.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// observed runs a bulk statement and calls the observer with its outcome.
func (s *session) observed(b *sqlstore.Bulk, run func() error) error {
	started := time.Now()
	err := run()
	s.observe(b.Name, time.Since(started), err)
	return translate(b.Name, err)
}

// nextSeq returns the next job number. It takes a block of at least so many as are needed when
// the last block is used up.
func (s *session) nextSeq(needed int) (int64, error) {
	if s.seqs.next == s.seqs.end {
		block := max(int64(needed), seqBlockSize)
		rows, err := s.Query(takeNumbers, block)
		if err != nil {
			return 0, err
		}
		defer rows.Close()
		for rows.Next() {
			if err := rows.Scan(&s.seqs.end); err != nil {
				return 0, translate(takeNumbers.Name, err)
			}
		}
		if err := rows.Err(); err != nil {
			return 0, translate(takeNumbers.Name, err)
		}
		s.seqs.next = s.seqs.end - block
	}
	s.seqs.next++
	return s.seqs.next - 1, nil
}

func (s *session) Now() time.Time { return s.now }

func (s *session) LockName(string) error { return nil } // there is one writer

func (s *session) Slot(int64) int64 { return 0 }

// ListRunEnds, RunEnds and DeleteRunEnds are for a database that workers have connections to.
func (s *session) ListRunEnds(int64, int) ([]*job.Job, error) { return nil, nil }

func (s *session) RunEnds([]int64) ([]job.RunEnd, error) { return nil, nil }

func (s *session) DeleteRunEnds([]job.RunID) error { return nil }

// Ints returns a JSON array: SQLite has no arrays, and json_each is built in.
func (s *session) Ints(seqs []int64) any {
	list := make([]byte, 0, 2+20*len(seqs))
	list = append(list, '[')
	for i, n := range seqs {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, n, 10)
	}
	return string(append(list, ']'))
}

// Identities returns a JSON array of pairs: the beginning of a key as the column key_start has it,
// and the hash of the identity as a hexadecimal text, see dialect.
func (s *session) Identities(ids []job.ID) any {
	pairs := make([][2]string, len(ids))
	for i, id := range ids {
		hash := id.IdentityHash()
		pairs[i] = [2]string{keyStart(id.Key), hex.EncodeToString(hash[:])}
	}
	list, _ := json.Marshal(pairs) // never fails for texts
	return string(list)
}

// keyStartLength is how many characters of a key the column key_start has, see its migration.
const keyStartLength = 24

// keyStart returns the column key_start of a job with a key.
func keyStart(key string) string {
	n := 0
	for i := range key {
		if n++; n > keyStartLength {
			return key[:i]
		}
	}
	return key
}

// IdentityHashes returns a JSON array of hexadecimal texts, see dialect.
func (s *session) IdentityHashes(identities []job.IdentityHash) any {
	list := make([]byte, 0, 2+35*len(identities))
	list = append(list, '[')
	for i := range identities {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, '"')
		list = hex.AppendEncode(list, identities[i][:])
		list = append(list, '"')
	}
	return string(append(list, ']'))
}

func (s *session) Texts(texts []string) any {
	list, _ := json.Marshal(texts) // never fails for texts
	return string(list)
}

func (s *session) Translate(op string, err error) error { return translate(op, err) }
