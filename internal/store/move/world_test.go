package move_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	mathrand "math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/store/move"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// database is one that a test moves from and to.
type database struct {
	path string // of SQLite
	url  string // of PostgreSQL
}

// newSQLite makes a database file with the schema of this version.
func newSQLite(t *testing.T) database {
	t.Helper()
	d := database{path: filepath.Join(t.TempDir(), "data", "millrace.db")}
	mustClose(t, d.mustOpen(t, true))
	return d
}

// newPostgres makes a PostgreSQL schema.
func newPostgres(t *testing.T) database {
	t.Helper()
	d := database{url: pgtest.URL(t)}
	mustClose(t, d.mustOpen(t, true))
	return d
}

func mustClose(t *testing.T, s *move.Database) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// open opens the database for a move.
func (d database) open(ctx context.Context, isTarget bool) (*move.Database, error) {
	if d.url != "" {
		return postgres.OpenMove(ctx, d.url, "postgres://somewhere")
	}
	return sqlite.OpenMove(ctx, d.path, "sqlite:"+d.path, isTarget)
}

func (d database) mustOpen(t *testing.T, isTarget bool) *move.Database {
	t.Helper()
	s, err := d.open(t.Context(), isTarget)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start opens the database as a server does, and closes it.
func (d database) start(t *testing.T) error {
	t.Helper()
	if d.url != "" {
		s, err := postgres.Open(t.Context(), postgres.Config{URL: d.url, Conns: 2})
		if err != nil {
			return err
		}
		return s.Close()
	}
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: d.path, Now: time.Now})
	if err != nil {
		return err
	}
	return s.Close()
}

// db opens the database behind the store.
func (d database) db(t *testing.T) *sql.DB {
	t.Helper()
	if d.url != "" {
		return pgtest.DB(t, d.url)
	}
	db, err := sql.Open("sqlite", "file:"+d.path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// exec runs a statement.
func (d database) exec(t *testing.T, text string, args ...any) {
	t.Helper()
	db := d.db(t)
	defer db.Close()
	if _, err := db.Exec(text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// count runs a statement that counts.
func (d database) count(t *testing.T, text string, args ...any) (n int64) {
	t.Helper()
	db := d.db(t)
	defer db.Close()
	if err := db.QueryRow(text, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

// run moves; change changes the move before it begins.
func run(t *testing.T, from, to database, change func(*move.Config)) ([]move.Moved, error) {
	t.Helper()
	source, err := from.open(t.Context(), false)
	if err != nil {
		return nil, err
	}
	defer mustClose(t, source)
	target, err := to.open(t.Context(), true)
	if err != nil {
		return nil, err
	}
	defer mustClose(t, target)
	c := move.Config{From: source, To: target, SkipKinds: []string{"node", "place"},
		NodeKind: "node", ID: rand.Text(), Now: time.Now}
	if change != nil {
		change(&c)
	}
	return move.Run(t.Context(), c)
}

func mustRun(t *testing.T, from, to database) []move.Moved {
	t.Helper()
	all, err := run(t, from, to, nil)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// column is a column of a table of SQLite.
type column struct {
	name, kind string
	notNull    bool
	key        int // from 1 on; 0 is none
}

// columnsOf returns the columns of a table of SQLite.
func columnsOf(t *testing.T, db *sql.DB, table string) (all []column) {
	t.Helper()
	rows, err := db.Query("SELECT name,type,\"notnull\",pk FROM pragma_table_info($1)", table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var c column
		if err := rows.Scan(&c.name, &c.kind, &c.notNull, &c.key); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// large are columns that hold more than 16 bits on PostgreSQL.
var large = []string{"order_time", "created_at", "lease_until", "queue_hash", "at", "size", "next"}

// value returns a value of a column for the row of a number, of every kind that a store may have.
func (c column) value(r *mathrand.Rand, row int) any {
	isNull := !c.notNull && c.key == 0 && r.IntN(4) == 0
	switch {
	case isNull:
		return nil
	case c.key > 0 && c.kind == "INTEGER":
		return row * 3
	case c.name == "identity", c.name == "alias":
		return []byte(rand.Text()[:16])
	case c.kind == "INTEGER" && slices.Contains(large, c.name):
		return r.Int64() - 1<<62
	case c.kind == "INTEGER":
		return r.IntN(1<<16) - 1<<15
	case strings.EqualFold(c.kind, "TEXT"):
		text := []string{"", "plain", "ünï\ncødé 'quoted' \\ \t", "Zz", "\u0001"}[r.IntN(5)]
		if c.key > 0 || c.name == "key" {
			text += fmt.Sprint("-", row)
		}
		return text
	}
	return [][]byte{{}, {0}, []byte("{\"a\":1}"), {0xff, 0xfe, 0}, make([]byte, 5000)}[r.IntN(5)]
}

// fill writes rows into every table that is moved of a SQLite database, and what comes with them.
func (d database) fill(t *testing.T, seed uint64, rows int) {
	t.Helper()
	db, r := d.db(t), mathrand.New(mathrand.NewPCG(seed, 1))
	defer db.Close()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for table := range move.Keys() {
		columns := columnsOf(t, db, table)
		names := make([]string, len(columns))
		for i, c := range columns {
			names[i] = c.name
		}
		insert, err := tx.Prepare("INSERT INTO " + table + " (" + strings.Join(names, ",") +
			") VALUES (?" + strings.Repeat(",?", len(columns)-1) + ")")
		if err != nil {
			t.Fatal(err)
		}
		for row := 1; row <= rows; row++ {
			values := make([]any, len(columns))
			for i, c := range columns {
				values[i] = c.value(r, row)
			}
			if _, err := insert.Exec(values...); err != nil {
				t.Fatalf("%s %v: %v", table, values, err)
			}
		}
	}
	if _, err := tx.Exec("UPDATE numbers SET next=70001"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// rowEnd ends a row of a dump.
const rowEnd = "\x1e\n"

// dump returns all that a SQLite database has in the tables that are moved.
func (d database) dump(t *testing.T) map[string]string {
	t.Helper()
	db, all := d.db(t), map[string]string{}
	defer db.Close()
	for table, key := range move.Keys() {
		condition := ""
		if table == "records" {
			condition = " WHERE kind<>'move'"
		}
		var quoted []string
		for _, c := range columnsOf(t, db, table) {
			quoted = append(quoted, "quote("+c.name+")")
		}
		rows, err := db.Query("SELECT " + strings.Join(quoted, "||','||") + " FROM " + table +
			condition + " ORDER BY " + strings.Join(key, ","))
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			text.WriteString(line + rowEnd)
		}
		rows.Close()
		all[table] = text.String()
	}
	return all
}
