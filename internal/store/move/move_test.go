package move_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/move"
)

// left are the tables of a store that a move leaves, and why.
var left = map[string]string{
	"leaders":            "terms of processes that have ended",
	"numbers":            "the numbers of jobs on SQLite, which LastNumber reads",
	"inbox":              "on PostgreSQL alone; none of it may wait",
	"inbox_transactions": "on PostgreSQL alone; they go with the requests that wait",
	"run_ends":           "on PostgreSQL alone; none of them may wait",
	"goose_db_version":   "the version of the schema",
}

// TestEveryTableIsKnown: a migration that adds a table fails here until the move copies it, or the
// list above says why it stays. Keys are as in the schema, and columns are alike on both
// databases.
func TestEveryTableIsKnown(t *testing.T) {
	t.Parallel()
	lite := newSQLite(t)
	columns := map[string][]string{}
	for _, d := range []database{lite, newPostgres(t)} {
		s := d.mustOpen(t, false)
		rows, err := s.Conn.QueryContext(t.Context(), s.Columns)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for rows.Next() {
			var table, name string
			if err := rows.Scan(&table, &name); err != nil {
				t.Fatal(err)
			}
			found[table] = true
			if _, isMoved := move.Keys()[table]; isMoved {
				columns[table+"."+name] = append(columns[table+"."+name], s.Name)
			} else if left[table] == "" {
				t.Errorf("%s: a move does not know the table %s", s.Name, table)
			}
		}
		for table := range move.Keys() {
			if !found[table] {
				t.Errorf("%s has no table %s", s.Name, table)
			}
		}
		mustClose(t, s)
	}
	for name, databases := range columns {
		if isOwn := slices.Contains(move.OwnColumns, name); isOwn == (len(databases) == 2) {
			t.Errorf("the column %s is in %v", name, databases)
		}
	}
	db := lite.db(t)
	for table, want := range move.Keys() {
		key := make([]string, len(want))
		for _, c := range columnsOf(t, db, table) {
			if c.key > 0 {
				key[c.key-1] = c.name
			}
		}
		if !slices.Equal(key, want) {
			t.Errorf("the key of %s is %v, want %v", table, key, want)
		}
	}
}

// TestThereAndBack moves every kind of value to PostgreSQL and back, and compares all rows with
// those of the first database. Numbers go on above the highest that were given.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	first, second, third := newSQLite(t), newPostgres(t), newSQLite(t)
	first.fill(t, 1, 300)
	// The highest numbers are of rows that are gone.
	first.exec(t, "UPDATE sqlite_sequence SET seq=5000 WHERE name='outbox'")
	first.exec(t, "DELETE FROM dead_letters")
	want := first.dump(t)

	all := mustRun(t, first, second)
	for _, m := range all {
		if wanted := int64(strings.Count(want[m.Table], rowEnd)); m.Rows != wanted {
			t.Errorf("%d rows of %s were moved, want %d", m.Rows, m.Table, wanted)
		}
	}
	mustRun(t, second, third)
	for table, text := range third.dump(t) {
		if text != want[table] {
			t.Errorf("%s is\n%.2000s\nwant\n%.2000s", table, text, want[table])
		}
	}
	for text, wanted := range map[string]int64{
		"SELECT next FROM numbers":                            70001,
		"SELECT seq FROM sqlite_sequence WHERE name='events'": 900,
		"SELECT seq FROM sqlite_sequence WHERE name='outbox'": 5000,
		// AUTOINCREMENT remembers the numbers of rows that are gone.
		"SELECT seq FROM sqlite_sequence WHERE name='dead_letters'": 900,
	} {
		if n := third.count(t, text); n != wanted {
			t.Errorf("%s: %d, want %d", text, n, wanted)
		}
	}
	for text, wanted := range map[string]int64{
		"SELECT nextval('job_numbers')": 70001,
		"INSERT INTO events (seq,cause,prev,next,at,reason) VALUES (1,'','','',1,'') RETURNING id": 901,
	} {
		if n := second.count(t, text); n != wanted {
			t.Errorf("PostgreSQL gives the number %d, want %d: %s", n, wanted, text)
		}
	}
}

// TestOneStoreServes: servers start on the target of a move that has ended, and neither on one that
// has not, nor on its source once everything is elsewhere.
func TestOneStoreServes(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) (from, to database){
		"from SQLite":     func(t *testing.T) (from, to database) { return newSQLite(t), newPostgres(t) },
		"from PostgreSQL": func(t *testing.T) (from, to database) { return newPostgres(t), newSQLite(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := open(t)
			if _, err := run(t, from, to, func(c *move.Config) {
				c.To.Insert = failAfter(c.To.Insert, 3)
			}); !errors.Is(err, errKilled) {
				t.Fatalf("the move that is cut off: %v", err)
			}
			if err := to.start(t); !job.IsKind(err, job.ReadOnly) ||
				!strings.Contains(err.Error(), "a part of what is moved") {
				t.Errorf("a server on half a store: %v", err)
			}
			if err := from.start(t); err != nil {
				t.Errorf("a server on the source of a move that was given up: %v", err)
			}
			mustRun(t, from, to)
			if err := to.start(t); err != nil {
				t.Errorf("a server on the target: %v", err)
			}
			if err := from.start(t); !job.IsKind(err, job.ReadOnly) ||
				!strings.Contains(err.Error(), "its jobs were moved") {
				t.Errorf("a server on the source: %v", err)
			}
			if _, err := run(t, from, to, nil); !job.IsKind(err, job.Conflict) {
				t.Errorf("the same move once more: %v", err)
			}
		})
	}
}

var errKilled = errors.New("cut off")

// failAfter inserts n batches, and fails then.
func failAfter(insert func(context.Context, string, []string, [][]any) error, n int) func(
	context.Context, string, []string, [][]any) error {
	return func(ctx context.Context, table string, columns []string, rows [][]any) error {
		if n--; n < 0 {
			return errKilled
		}
		return insert(ctx, table, columns, rows)
	}
}

// TestMoveGoesOn: a move that is cut off again and again, each time some batches later, goes on
// behind the last batch that was stored, and moves every row once.
func TestMoveGoesOn(t *testing.T) {
	t.Parallel()
	first, second, third := newSQLite(t), newPostgres(t), newSQLite(t)
	first.fill(t, 2, 60)
	for _, text := range []string{"INSERT INTO events (seq,cause,prev,next,at,reason) SELECT " +
		"value,'','','',1,'' FROM n", "INSERT INTO done_counts SELECT 'c' || (value%7), 'q' || value, 1 FROM n"} {
		first.exec(t, "WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value+1 FROM n "+
			"WHERE value<4500) "+text)
	}
	want := first.dump(t)
	from := first
	for _, to := range []database{second, third} {
		batches, runs := 0, 0
		for {
			runs++
			_, err := run(t, from, to, func(c *move.Config) {
				insert := failAfter(c.To.Insert, 4)
				c.To.Insert = func(ctx context.Context, table string, columns []string,
					rows [][]any) error {
					if len(rows) > move.MaxBatchRows {
						t.Errorf("a batch has %d rows", len(rows))
					}
					err := insert(ctx, table, columns, rows)
					if err == nil {
						batches++
					}
					return err
				}
			})
			if err == nil {
				break
			}
			if !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
		}
		if wanted := len(move.Keys()) + 4; batches != wanted || runs < wanted/4 {
			t.Errorf("%d batches in %d runs, want %d", batches, runs, wanted)
		}
		from = to
	}
	if got := third.dump(t); !maps.Equal(got, want) {
		t.Error("the rows differ")
	}
}

// TestProgress: a move reports every row when it is copied and when it is verified, of a total that
// it knows from the beginning. One that goes on begins where the one before has ended.
func TestProgress(t *testing.T) {
	t.Parallel()
	from, to := newSQLite(t), newPostgres(t)
	from.fill(t, 4, 50)
	var last, whole int64
	words := map[string]bool{}
	report := func(c *move.Config) {
		isFirst := true
		c.Report = func(done, total int64, what string) {
			if whole == 0 {
				whole = total
			}
			if done < last || (isFirst && done != last) || total != whole || done > total {
				t.Errorf("%q: %d of %d are done, and %d of %d were before", what, done, total, last,
					whole)
			}
			last, isFirst, words[what] = done, false, true
		}
	}
	_, err := run(t, from, to, func(c *move.Config) {
		report(c)
		c.To.Insert = failAfter(c.To.Insert, 3)
	})
	if !errors.Is(err, errKilled) || last == 0 || last >= whole/2 {
		t.Fatalf("the move that is cut off has done %d of %d: %v", last, whole, err)
	}
	all, err := run(t, from, to, report)
	if err != nil {
		t.Fatal(err)
	}
	var rows int64
	for _, m := range all {
		rows += m.Rows
		if !words["copying "+m.Table] || !words["verifying "+m.Table] {
			t.Errorf("nothing is said of %s in %v", m.Table, words)
		}
	}
	if last != whole || whole != 2*rows {
		t.Errorf("%d of %d are done with %d rows", last, whole, rows)
	}
}

// TestDifferenceIsFound: a row that is not what it was in the source, is not there, or is there
// twice, ends the move with an error that names its table, and no server starts on the target.
func TestDifferenceIsFound(t *testing.T) {
	t.Parallel()
	const differs, refused = "the copy of bodies differs", "bodies up to the key"
	for name, c := range map[string]struct {
		want   string
		change func(rows [][]any, seq int) [][]any // of bodies, where the column seq is
	}{
		"changed": {differs, func(rows [][]any, _ int) [][]any {
			for i, v := range rows[0] {
				if b, ok := v.([]byte); ok {
					rows[0][i] = append([]byte{1}, b...)
				}
			}
			return rows
		}},
		"missing": {differs, func(rows [][]any, _ int) [][]any { return rows[1:] }},
		"twice":   {refused, func(rows [][]any, _ int) [][]any { return append(rows, rows[0]) }},
		"of two jobs": {differs, func(rows [][]any, seq int) [][]any {
			return append(rows, withKey(rows[0], seq, int64(999_999)))
		}},
		"of two jobs, twice": {differs, func(rows [][]any, seq int) [][]any {
			return append(rows, withKey(rows[0], seq, int64(999_998)), withKey(rows[0], seq, int64(999_999)))
		}},
		"in the place of another": {differs, func(rows [][]any, seq int) [][]any {
			last := len(rows) - 1
			rows[last] = withKey(rows[0], seq, rows[last][seq])
			return rows
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := newSQLite(t), newPostgres(t)
			from.fill(t, 3, 20)
			_, err := run(t, from, to, func(m *move.Config) {
				insert := m.To.Insert
				m.To.Insert = func(ctx context.Context, table string, columns []string,
					rows [][]any) error {
					if table == "bodies" {
						rows = c.change(slices.Clone(rows), slices.Index(columns, "seq"))
					}
					return insert(ctx, table, columns, rows)
				}
			})
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				(c.want == differs && !job.IsKind(err, job.Conflict)) {
				t.Errorf("got %v", err)
			}
			if err := to.start(t); !job.IsKind(err, job.ReadOnly) {
				t.Errorf("a server on the target: %v", err)
			}
		})
	}
}

// withKey is a copy of a row for another job.
func withKey(row []any, seq int, job any) []any {
	other := slices.Clone(row)
	other[seq] = job
	return other
}

// TestRefusedMoves: what a move refuses, before it has changed anything in the target.
func TestRefusedMoves(t *testing.T) {
	t.Parallel()
	const request = "INSERT INTO inbox (transaction,contract,owner,job_type,producer,created_at," +
		"state) VALUES (1,'relay','','','p',1,$1)"
	pg := func(statements ...string) func(*testing.T) (from, to database) {
		return func(t *testing.T) (from, to database) {
			from, to = newPostgres(t), newSQLite(t)
			for _, text := range statements {
				from.exec(t, text)
			}
			return from, to
		}
	}
	const node = "INSERT INTO records (kind,key,owner,body,created_at,updated_at,expires_at) SELECT " +
		"'node','host-1','','x',1,(extract(epoch FROM now())*1000000)::int8-$1,0"
	for name, c := range map[string]struct {
		make func(*testing.T) (from, to database)
		want string // "" is accepted
	}{
		"a request that waits":   {pg(strings.Replace(request, "$1", "'waiting'", 1)), "requests in its inbox"},
		"a request that is done": {pg(strings.Replace(request, "$1", "'submitted'", 1)), ""},
		"a recorded end": {pg("INSERT INTO run_ends (seq,run_id,recorded_at,succeeded) " +
			"VALUES (1,'x',1,true)"), "ends of runs"},
		"a node that runs":       {pg(strings.Replace(node, "$1", "5000000", 1)), "host-1"},
		"a node that was killed": {pg(strings.Replace(node, "$1", "16000000", 1)), ""},
		"a node that runs on the target": {func(t *testing.T) (from, to database) {
			from, to = newSQLite(t), newPostgres(t)
			to.exec(t, strings.Replace(node, "$1", "5000000", 1))
			return from, to
		}, "servers run on postgres://somewhere: host-1"},
		"a target with a row": {func(t *testing.T) (from, to database) {
			from, to = newSQLite(t), newPostgres(t)
			to.exec(t, "INSERT INTO edges VALUES (1,2)")
			return from, to
		}, "is not empty: the table edges has 1 row"},
		"a target of another move": {func(t *testing.T) (from, to database) {
			from, to = newSQLite(t), newPostgres(t)
			_, err := run(t, newSQLite(t), to, func(c *move.Config) {
				c.To.Insert = failAfter(c.To.Insert, 3)
			})
			if !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			return from, to
		}, "a part of another move"},
		"a source that is half a store": {func(t *testing.T) (from, to database) {
			from, to = newPostgres(t), newSQLite(t)
			_, err := run(t, newSQLite(t), from, func(c *move.Config) {
				c.To.Insert = failAfter(c.To.Insert, 3)
			})
			if !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			return from, to
		}, "which has not ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := c.make(t)
			_, err := run(t, from, to, nil)
			if c.want == "" && err != nil {
				t.Errorf("refused: %v", err)
			}
			if c.want != "" && (!job.IsKind(err, job.Conflict) ||
				!strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestMoveKeepsServersOut: while a move runs, neither a server nor another move gets either
// database.
func TestMoveKeepsServersOut(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]database{"SQLite": newSQLite(t), "PostgreSQL": newPostgres(t)} {
		s := d.mustOpen(t, false)
		if err := d.start(t); err == nil {
			t.Errorf("%s: a server starts", name)
		}
		if _, err := d.open(t.Context(), false); !job.IsKind(err, job.Conflict) {
			t.Errorf("%s: a second move: %v", name, err)
		}
		mustClose(t, s)
		if err := d.start(t); err != nil {
			t.Errorf("%s: when it has ended: %v", name, err)
		}
	}
	if _, err := missingSource(t); !job.IsKind(err, job.NotFound) {
		t.Errorf("a source that does not exist: %v", err)
	}
}

// missingSource opens a source that does not exist.
func missingSource(t *testing.T) (*move.Database, error) {
	return database{path: t.TempDir() + "/none/millrace.db"}.open(t.Context(), false)
}
