package main

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	driver "modernc.org/sqlite"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// A curve needs millions of jobs before anything is measured. Of each fill the first are submitted
// to the engine, as a server does it; the database itself makes the rows of all others from those
// of the last of these:
//
//	engine.Submit ─▶ rows of a job ─▶ INSERT INTO jobs … SELECT … FROM jobs ─▶ counts of its queue
//
// A copy has a number, a key, the hash of its identity and a payload of its own; all else, its
// times among it, is as the engine has stored it. TestCopies compares the tables with those that
// the engine fills. The index of identities is built when all rows are there: one by one, its
// entries go to random pages. Those of the others are in the order of the rows.

const (
	// submittedFirst is how many jobs of a fill are submitted.
	submittedFirst = 1000
	// copiesInStatement is how many copies one statement makes, which is a transaction.
	copiesInStatement = 250_000
	// identityIndex is the index whose entries are in another order than the rows: that of hashes
	// on PostgreSQL, that of keys as texts on SQLite.
	identityIndex = "jobs_identity"
)

// jobFill stores jobs, which are ready or done when they are submitted.
type jobFill struct {
	store  store.Store
	engine *engine.Engine
	pg     *Postgres // nil: SQLite
	path   string    // of its file
	id     job.ID    // of the jobs, without a key
	queue  string
}

// run stores the jobs from..to-1, whose keys are these numbers.
func (f *jobFill) run(ctx context.Context, from, to int) error {
	if from >= to {
		return nil
	}
	first := from + min(to-from, submittedFirst)
	last, err := f.submit(ctx, from, first)
	if err != nil || first == to {
		return err
	}
	if err := f.copy(ctx, last, first, to); err != nil {
		return err
	}
	count := job.QueueCount{JobType: last.ID.JobType, Queue: last.Queue}
	switch last.Phase {
	case job.Ready:
		count.Ready = int64(to - first)
	case job.Done:
		count.Done = int64(to - first)
	default:
		return fmt.Errorf("a copy is neither ready nor done: %v", last.Phase)
	}
	return f.store.Update(ctx, func(tx store.Tx) error {
		return tx.Apply(store.Changes{Counts: []job.QueueCount{count}})
	})
}

// submit submits jobs in one batch and returns the last of them as it was stored.
func (f *jobFill) submit(ctx context.Context, from, to int) (*job.Job, error) {
	var batch []engine.Submission
	for num := from; num < to; num++ {
		id := f.id
		id.Key = strconv.Itoa(num)
		batch = append(batch, engine.Submission{Job: job.Job{ID: id, Queue: f.queue,
			Lease: time.Hour, Payload: appendPayload(nil, num)}})
	}
	result, err := f.engine.Submit(ctx, engine.Unique, batch)
	if err != nil {
		return nil, err
	}
	return result.Jobs[len(result.Jobs)-1], nil
}

// copy makes the rows of the jobs from..to-1 from those of one that is stored.
func (f *jobFill) copy(ctx context.Context, of *job.Job, from, to int) (err error) {
	c := &copier{dialect: copiesOnSQLite, table: sqlstore.PhaseTable(of.Phase), of: of}
	source := (&url.URL{Scheme: "file", Opaque: f.path, RawQuery: copyPragmas}).String()
	if f.pg != nil {
		c.dialect, source = copiesOnPostgres, f.pg.DSN()
	}
	if c.db, err = sql.Open(c.dialect.driver, source); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.db.Close()) }()
	c.db.SetMaxOpenConns(1)
	return c.run(ctx, from, to)
}

// copyDialect is what the databases say differently.
type copyDialect struct {
	driver string
	// columns and indexes list those of a table, the indexes with their statements.
	columns, indexes string
	// numbers takes so many numbers of jobs and returns the first.
	numbers string
	// blob is the bytes of a text, and literal what the text of a statement has for a value.
	blob, literal string
	// identity is the hash of an identity with another key.
	identity func(of job.ID, key string) string
	// afterwards is what the database does by itself where it is filled slowly.
	afterwards string
}

var copiesOnSQLite = copyDialect{
	driver:  "sqlite_copies",
	columns: "SELECT name FROM pragma_table_info('%s')",
	indexes: "SELECT name,sql FROM sqlite_schema WHERE type='index' AND sql IS NOT NULL " +
		"AND tbl_name='%s'",
	numbers: "UPDATE numbers SET next=next+%[1]d WHERE name='jobs' RETURNING next-%[1]d",
	identity: func(of job.ID, key string) string {
		return fmt.Sprintf("identity_of('%s','%s',%s)", of.JobType, of.Scope, key)
	},
	blob:       "CAST(%s AS BLOB)",
	literal:    "quote(%s)",
	afterwards: "PRAGMA wal_checkpoint(TRUNCATE)",
}

// copyPragmas are the pragmas of a fill. What it writes is synced as what the server writes.
var copyPragmas = url.Values{"_pragma": {"busy_timeout(10000)", "synchronous(FULL)",
	"cache_size(-65536)", "wal_autocheckpoint(8000)", "journal_size_limit(67108864)"}}.Encode()

// The driver of SQLite with a function for the hash of an identity.
func init() {
	d := &driver.Driver{}
	d.MustRegisterDeterministicScalarFunction("identity_of", 3,
		func(_ *driver.FunctionContext, args []sqldriver.Value) (sqldriver.Value, error) {
			var texts [3]string
			for i, arg := range args {
				text, ok := arg.(string)
				if !ok {
					return nil, fmt.Errorf("identity_of: argument %d is a %T", i, arg)
				}
				texts[i] = text
			}
			hash := job.ID{JobType: texts[0], Scope: texts[1], Key: texts[2]}.IdentityHash()
			return hash[:], nil
		})
	sql.Register(copiesOnSQLite.driver, d)
}

var copiesOnPostgres = copyDialect{
	driver: "pgx",
	columns: "SELECT column_name FROM information_schema.columns " +
		"WHERE table_schema=current_schema() AND table_name='%s' ORDER BY ordinal_position",
	indexes: "SELECT indexname,indexdef FROM pg_indexes WHERE schemaname=current_schema() " +
		"AND tablename='%s'",
	numbers: "SELECT setval('job_numbers',nextval('job_numbers')+%[1]d)-%[1]d",
	identity: func(of job.ID, key string) string {
		return "substr(sha256(" + hashedPart("'"+of.JobType+"'") + "||" +
			hashedPart("'"+of.Scope+"'") + "||" + hashedPart(key) + "),1,16)"
	},
	literal:    "quote_nullable(%s)",
	blob:       "convert_to(%s,'UTF8')",
	afterwards: "VACUUM (ANALYZE)",
}

// hashedPart is a text as job.ID hashes it: its length, which is below 128 here, and its bytes.
func hashedPart(text string) string {
	return "set_byte('\\x00'::bytea,0,octet_length(" + text + "))||convert_to(" + text + ",'UTF8')"
}

// copier makes rows of jobs and of the table of their phase.
type copier struct {
	db      *sql.DB
	dialect copyDialect
	table   string
	of      *job.Job // that is copied
}

func (c *copier) run(ctx context.Context, from, to int) error {
	var first int64
	err := c.db.QueryRowContext(ctx, fmt.Sprintf(c.dialect.numbers, to-from)).Scan(&first)
	if err != nil {
		return err
	}
	indexes, err := c.query(ctx, fmt.Sprintf(c.dialect.indexes, "jobs"))
	if err != nil {
		return err
	}
	at := slices.IndexFunc(indexes, func(i []string) bool { return i[0] == identityIndex })
	if at < 0 {
		return errors.New("there is no index " + identityIndex)
	}
	if err := c.exec(ctx, "DROP INDEX "+identityIndex); err != nil {
		return err
	}
	for _, table := range []string{"jobs", c.table} {
		if err := c.copy(ctx, table, from, to, first); err != nil {
			return err
		}
	}
	if err := c.exec(ctx, indexes[at][1]); err != nil {
		return err
	}
	return c.exec(ctx, c.dialect.afterwards)
}

// copy makes the rows of the jobs from..to-1 in a table. What they have in common is in the text of
// the statement, so that no row is read.
func (c *copier) copy(ctx context.Context, table string, from, to int, first int64) error {
	columns, values, err := c.columns(ctx, table, first-int64(from))
	if err != nil {
		return err
	}
	for _, cut := range batches(to-from, copiesInStatement) {
		err := c.exec(ctx, fmt.Sprintf("WITH RECURSIVE n(k) AS (SELECT %d UNION ALL "+
			"SELECT k+1 FROM n WHERE k<%d) INSERT INTO %s (%s) SELECT %s FROM n", from+cut[0],
			from+cut[1]-1, table, columns, values))
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) exec(ctx context.Context, text string) error {
	if _, err := c.db.ExecContext(ctx, text); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	return nil
}

// columns returns the columns of a table and what they are in a copy, whose number is its key and
// an offset.
func (c *copier) columns(ctx context.Context, table string, offset int64) (names, values string,
	err error) {
	columns, err := c.query(ctx, fmt.Sprintf(c.dialect.columns, table))
	if err != nil {
		return "", "", err
	}
	var all, literals []string
	for _, column := range columns {
		all = append(all, column[0])
		literals = append(literals, fmt.Sprintf(c.dialect.literal, column[0]))
	}
	names = strings.Join(all, ",")
	rows, err := c.query(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE seq=%d",
		strings.Join(literals, ","), table, c.of.Seq))
	if err != nil {
		return "", "", err
	}
	if len(rows) != 1 {
		return "", "", fmt.Errorf("%d rows of a job in the table %s", len(rows), table)
	}
	before, after, _ := strings.Cut(string(appendPayload(nil, 0)), "0")
	key, copied := "CAST(n.k AS TEXT)", rows[0]
	for i, name := range all {
		switch name {
		case "seq":
			copied[i] = fmt.Sprintf("n.k+(%d)", offset)
		case "key":
			copied[i] = key
		case "identity":
			copied[i] = c.dialect.identity(c.of.ID, key)
		case "payload":
			copied[i] = fmt.Sprintf(c.dialect.blob, "'"+before+"'||"+key+"||'"+after+"'")
		}
	}
	return names, strings.Join(copied, ","), nil
}

// query returns rows of texts.
func (c *copier) query(ctx context.Context, text string) (all [][]string, err error) {
	rows, err := c.db.QueryContext(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		row := make([]string, len(columns))
		to := make([]any, len(columns))
		for i := range row {
			to[i] = &row[i]
		}
		if err := rows.Scan(to...); err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}
