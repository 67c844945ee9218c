package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// countsEnv is an Env for a test, with no output.
func countsEnv(t *testing.T) *Env {
	t.Helper()
	env, err := newEnv(t.TempDir(), 1, Tuning{}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := env.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return env
}

// skipWithout skips a test whose server is missing, but where none may be.
func skipWithout(t *testing.T, err error) {
	t.Helper()
	var skip skipError
	if errors.As(err, &skip) && os.Getenv("MILLRACE_TEST_REQUIRE") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What a round writes must add up, whatever the schema is: a job that is removed when it ends, or
// pruned after that, leaves no row and no entry of an index behind.
func TestCounts(t *testing.T) {
	for _, db := range countedDatabases {
		for _, kind := range jobKinds[:2] {
			t.Run(db.name+", "+kind.name, func(t *testing.T) { testCounts(t, db, kind) })
		}
	}
}

func testCounts(t *testing.T, db countedDatabase, kind jobKind) {
	count, err := db.setup(t.Context(), countsEnv(t), countedRounds)
	skipWithout(t, err)
	costs, err := count(t.Context(), kind, 100)
	skipWithout(t, err)
	var sum cost
	for _, c := range costs {
		if got := float64(len(c.statements)); got != c.inTransaction {
			t.Errorf("%s has %v statements, want %q", c.verb, c.inTransaction, c.statements)
		}
		for f, v := range c.cost {
			if math.IsNaN(v) {
				t.Errorf("%s: figure %d is missing", c.verb, f)
			}
			sum[f] += v
		}
		for _, f := range []figure{figLog, figAllocations, figHeap} {
			if c.cost[f] <= 0 {
				t.Errorf("%s: figure %d is %v", c.verb, f, c.cost[f])
			}
		}
	}
	// The facts, and the states of a job that is ready and then leased; of one that is kept also
	// the state in which it is finished, and three events.
	want := 3.0
	if kind.kept {
		want = 7
	}
	// Counters are removed with the last job of their queue, and begin with the next.
	counters := sum[figInserted] - want
	if counters < 0 || counters > 0.01 || !isClose(sum[figInserted], sum[figDeleted]) ||
		sum[figUpdated] <= 0 {
		t.Errorf("a job is %v rows inserted, %v deleted, %v updated; want %v, as many, and some",
			sum[figInserted], sum[figDeleted], sum[figUpdated], want)
	}
	if db.name == "SQLite" && !isClose(sum[figEntries], sum[figEntriesRemoved]) {
		t.Errorf("%v entries added and %v removed", sum[figEntries], sum[figEntriesRemoved])
	}
}

// A webhook that wants all events is a message more for each change of a job of Relay, and a
// delivery of each: its facts, its state, and what makes it wait for the one before.
func TestCountsOfWebhooks(t *testing.T) {
	for _, db := range countedDatabases {
		t.Run(db.name, func(t *testing.T) {
			count, err := db.setup(t.Context(), countsEnv(t), countedRounds)
			skipWithout(t, err)
			at := slices.IndexFunc(jobKinds, func(k jobKind) bool { return k.hasWebhook })
			costs, err := count(t.Context(), jobKinds[at], 1)
			skipWithout(t, err)
			want := map[string]float64{"enqueue": 3, "claim": 2, "end": 1, "publish": 8}
			for _, c := range costs {
				inserted := c.cost[figInserted]
				if least := want[c.verb]; inserted < least || inserted > least+0.1 {
					t.Errorf("%s inserts %v rows of a job, want %v", c.verb, inserted, least)
				}
				if c.verb == "publish" && c.cost[figDeleted] < 3 {
					t.Errorf("publish deletes %v rows of a job, want its 3 messages",
						c.cost[figDeleted])
				}
				delete(want, c.verb)
			}
			if len(want) > 0 {
				t.Errorf("not counted: %v", want)
			}
		})
	}
}

func isClose(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// probedChanges are changes of a table that has a key and a partial index on b.
var probedChanges = []struct {
	name, sql                                     string
	inserted, updated, deleted, locked, hot       float64
	entriesSQLite, removedSQLite, entriesPostgres float64
}{
	// Both databases store the key as an index of its own. Its tree grows by pages that split.
	{name: "inserts", sql: `INSERT INTO probed (a,b) SELECT CAST(a AS TEXT),CASE WHEN a<=100 THEN 1 END
		FROM (WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a+1 FROM n WHERE a<2000)
		SELECT a FROM n) AS numbers`,
		inserted: 2000, entriesSQLite: 2100, entriesPostgres: 2100},
	{name: "an update of a column without index", sql: "UPDATE probed SET c=7 WHERE a='2000'",
		updated: 1, hot: 1},
	{name: "an update of an index", sql: "UPDATE probed SET b=2 WHERE a='100'",
		updated: 1, entriesSQLite: 1, removedSQLite: 1, entriesPostgres: 2},
	{name: "deletes", sql: "DELETE FROM probed WHERE a IN ('1','150')",
		deleted: 2, removedSQLite: 3},
}

const probedSchema = "CREATE TABLE probed (a TEXT PRIMARY KEY, b INTEGER, c INTEGER); " +
	"CREATE INDEX probed_b ON probed (b) WHERE b IS NOT NULL"

// probeChanges makes the changes and returns what a probe has seen of each.
func probeChanges(t *testing.T, p probe, exec func(sql string) error) (seen []cost) {
	t.Helper()
	for _, change := range probedChanges {
		var c cost
		for _, step := range []func() error{
			func() error { return p.Begin(t.Context()) },
			func() error { return exec(change.sql) },
			func() error { return p.End(t.Context(), &c) },
		} {
			if err := step(); err != nil {
				t.Fatalf("%s: %v", change.name, err)
			}
		}
		seen = append(seen, c)
	}
	return seen
}

func TestRowProbe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "probed.db")
	p, err := newRowProbe(path)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path+"?_pragma=journal_mode(wal)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(probedSchema); err != nil {
		t.Fatal(err)
	}
	seen := probeChanges(t, p, func(sql string) error {
		_, err := db.Exec(sql)
		return err
	})
	for i, change := range probedChanges {
		want := cost{figInserted: change.inserted, figUpdated: change.updated,
			figDeleted: change.deleted, figEntries: change.entriesSQLite,
			figEntriesRemoved: change.removedSQLite}
		if seen[i] != want {
			t.Errorf("%s: got %v, want %v", change.name, seen[i], want)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// What was written is read even where others have caused a checkpoint, which removes the WAL.
func TestWALProbe(t *testing.T) {
	pg, err := countsEnv(t).Postgres(t.Context(), "probed")
	skipWithout(t, err)
	pool, err := pg.Pool(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	exec := func(sql string) error {
		_, err := pool.Exec(t.Context(), sql)
		return err
	}
	if err := exec(probedSchema); err != nil {
		t.Fatal(err)
	}
	p, err := newWALProbe(t.Context(), pg)
	skipWithout(t, err)
	seen := probeChanges(t, p, func(sql string) error {
		for _, sql := range []string{sql, "SELECT pg_switch_wal()", "CHECKPOINT"} {
			if err := exec(sql); err != nil {
				return err
			}
		}
		return nil
	})
	for i, change := range probedChanges {
		want := cost{figInserted: change.inserted, figUpdated: change.updated,
			figDeleted: change.deleted, figHot: change.hot, figEntries: change.entriesPostgres}
		written := seen[i][figLog]
		if (written > 0) != (want != cost{}) {
			t.Errorf("%s: %v bytes", change.name, written)
		}
		seen[i][figLog], seen[i][figLocked] = 0, 0 // it may lock a row to find space for it
		if seen[i] != want {
			t.Errorf("%s: got %v, want %v", change.name, seen[i], want)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestReadLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	read := func(log []byte) logState {
		t.Helper()
		if err := os.WriteFile(path, log, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := readLog(path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if got := read(nil); got != (logState{}) {
		t.Errorf("an empty log is %+v", got)
	}
	frame := func(salts string) []byte {
		return slices.Concat(make([]byte, 8), []byte(salts), make([]byte, 8+512))
	}
	header := slices.Concat(make([]byte, 8), []byte{0, 0, 2, 0}, make([]byte, 4),
		[]byte("saltsnew"), make([]byte, 8))
	log := slices.Concat(header, frame("saltsnew"), frame("saltsnew"), frame("saltsold"))
	want := logState{salts: [8]byte([]byte("saltsnew")), frames: 2, frameSize: 24 + 512}
	if got := read(log); got != want {
		t.Errorf("got %+v, want %+v: the last frame is of the log before", got, want)
	}
	if got := read(log[:len(log)-536-1]); got.frames != 2 {
		t.Errorf("%d frames, want 2", got.frames)
	}
}

func TestMedianCosts(t *testing.T) {
	t.Parallel()
	round := func(log float64) []verbCost {
		return []verbCost{{verb: "claim", inTransaction: 5, cost: cost{figLog: log}}}
	}
	got := medianCosts([][]verbCost{round(30), round(math.NaN()), round(10)})
	if got[0].inTransaction != 5 || got[0].cost[figLog] != 20 || got[0].verb != "claim" {
		t.Errorf("got %+v, want the median of the rounds that have a figure", got)
	}
}

func TestCountsTable(t *testing.T) {
	t.Parallel()
	db := countedDatabase{name: "Some", columns: []costColumn{{figInserted, "rows", 2},
		{figLog, "log bytes", 0}}}
	line := func(batch int, rows float64) costLine {
		return costLine{"kept", batch, verbCost{verb: "end", inTransaction: 3,
			statements: []string{"BEGIN", "save", "COMMIT"},
			cost:       cost{figStatements: 0.03, figInserted: rows, figLog: 1500}}}
	}
	var got bytes.Buffer
	if err := db.writeLines(&got, []costLine{line(1, 1), line(100, 1.01)}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| job  | batch | verb | statements in a transaction | statements | rows | log bytes |",
		"| kept | 1     | end  | 3                           | 0.03       | 1    | 1500      |",
		"| kept | 100   | end  | 3                           | 0.03       | 1.01 | 1500      |",
		"\n- kept, end: BEGIN, save, COMMIT\n",
	} {
		if strings.Count(got.String(), want) != 1 {
			t.Errorf("the table\n%s\nhas %q not once", &got, want)
		}
	}
}

func TestCountsCommandLine(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args []string
		want int
	}{{[]string{"counts", "-h"}, 0}, {[]string{"counts", "river"}, 2},
		{[]string{"counts", "-batch", "-1"}, 2}, {[]string{"counts", "-rounds", "0"}, 2}} {
		if got := run(t.Context(), tc.args, io.Discard, io.Discard); got != tc.want {
			t.Errorf("%q answers %d, want %d", tc.args, got, tc.want)
		}
	}
}
