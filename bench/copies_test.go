package main

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// filledTables returns all that a fill may have changed, with of each time only whether it is set:
// the rows of jobs and of their phase by key, the counts of queues, how many rows the other tables
// have, and the indexes.
func filledTables(t *testing.T, f *jobFill, phase job.Phase) (all []string) {
	t.Helper()
	c := &copier{dialect: copiesOnSQLite, table: sqlstore.PhaseTable(phase)}
	source, quoted := f.path, "quote(%s)"
	tables := "SELECT name FROM sqlite_schema WHERE type='table' AND name NOT LIKE 'sqlite_%'"
	if f.pg != nil {
		c.dialect, source, quoted = copiesOnPostgres, f.pg.DSN(), "quote_nullable(%s)"
		tables = "SELECT tablename FROM pg_tables WHERE schemaname=current_schema()"
	}
	var err error
	if c.db, err = sql.Open(c.dialect.driver, source); err != nil {
		t.Fatal(err)
	}
	defer func() { mustSucceed(t, c.db.Close()) }()
	query := func(text string) [][]string {
		t.Helper()
		rows, err := c.query(t.Context(), text)
		mustSucceed(t, err)
		return rows
	}
	var values []string
	for _, table := range [][2]string{{"j", "jobs"}, {"p", c.table}} {
		for _, column := range query(fmt.Sprintf(c.dialect.columns, table[1])) {
			value := table[0] + "." + column[0]
			isTime := strings.HasSuffix(value, "_at") || slices.Contains([]string{"order_time",
				"lease_until", "arrived"}, column[0])
			switch {
			case column[0] == "seq":
				continue
			case isTime:
				value = "CASE WHEN " + value + " IS NULL THEN 0 ELSE 1 END"
			}
			values = append(values, "'"+table[1]+"."+column[0]+" '||"+fmt.Sprintf(quoted, value))
		}
	}
	slices.Sort(values)
	for _, row := range query("SELECT " + strings.Join(values, ",") + " FROM jobs AS j JOIN " +
		c.table + " AS p ON p.seq=j.seq ORDER BY CAST(j.key AS INTEGER)") {
		all = append(all, strings.Join(row, ", "))
	}
	counts, err := f.engine.Queues(t.Context(), f.id.JobType)
	mustSucceed(t, err)
	all = append(all, fmt.Sprintf("%+v", counts))
	for _, table := range query(tables + " ORDER BY 1") {
		all = append(all, table[0]+" "+query("SELECT CAST(count(*) AS TEXT) FROM " + table[0])[0][0])
	}
	for _, table := range []string{"jobs", c.table} {
		for _, i := range query(fmt.Sprintf(c.dialect.indexes, table) + " ORDER BY 1") {
			all = append(all, i[1])
		}
	}
	return all
}

func mustSucceed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What copies leave is what the engine leaves that is given the same jobs, in the database and
// through the engine.
func TestCopies(t *testing.T) {
	for _, database := range []string{"SQLite", "PostgreSQL"} {
		for _, phase := range []job.Phase{job.Ready, job.Done} {
			t.Run(fmt.Sprint(database, " ", phase), func(t *testing.T) { testCopies(t, database, phase) })
		}
	}
}

func testCopies(t *testing.T, database string, phase job.Phase) {
	const n = submittedFirst + 150
	var pg *Postgres
	if database == "PostgreSQL" {
		var err error
		pg, err = countsEnv(t).Postgres(t.Context(), "copies")
		skipWithout(t, err)
	}
	fills := map[bool][]string{}
	for _, copied := range []bool{false, true} {
		f, closeFill := newTestFill(t, pg, phase)
		for _, cut := range [][2]int{{0, n}, {n, n + 3}, {n + 3, 2*n + 3}, {2*n + 3, 2*n + 3}} {
			if copied {
				mustSucceed(t, f.run(t.Context(), cut[0], cut[1]))
			} else if cut[0] < cut[1] {
				_, err := f.submit(t.Context(), cut[0], cut[1])
				mustSucceed(t, err)
			}
		}
		fills[copied] = filledTables(t, f, phase)
		workFill(t, f, phase, 2*n+3)
		closeFill()
	}
	if len(fills[true]) != len(fills[false]) || len(fills[true]) < 2*n+20 {
		t.Fatalf("%d lines of copies and %d of the engine", len(fills[true]), len(fills[false]))
	}
	for i, line := range fills[false] {
		if fills[true][i] != line {
			t.Fatalf("the engine has stored\n%s\nthe copy is\n%s", line, fills[true][i])
		}
	}
}

// newTestFill makes a fill of an empty database.
func newTestFill(t *testing.T, pg *Postgres, phase job.Phase) (f *jobFill, closeFill func()) {
	t.Helper()
	if pg != nil {
		mustSucceed(t, pg.Recreate(t.Context()))
	}
	f = &jobFill{pg: pg, path: filepath.Join(t.TempDir(), "filled.db"), queue: "q",
		id: job.ID{JobType: relay.Name, Scope: "q"}}
	var err error
	f.store, err = openStore(t.Context(), pg, f.path)
	mustSucceed(t, err)
	if phase == job.Ready {
		f.engine, err = newRelayEngine(f.store)
	} else {
		f.id.JobType = "history"
		f.engine, err = newEngine(f.store)
		err = errors.Join(err, f.engine.Register(engine.JobType{Name: "history",
			Machine: machineFinished}))
	}
	mustSucceed(t, err)
	return f, func() {
		f.engine.Close()
		mustSucceed(t, f.store.Close())
	}
}

// workFill takes the jobs of a fill, of which there are n, in their order, and submits one of them
// again, which is refused, and one more.
func workFill(t *testing.T, f *jobFill, phase job.Phase, n int) {
	t.Helper()
	if _, err := f.submit(t.Context(), n-1, n); !job.IsKind(err, job.Conflict) {
		t.Errorf("a job that is stored already: %v", err)
	}
	_, err := f.submit(t.Context(), n, n+1)
	mustSucceed(t, err)
	if phase != job.Ready {
		return
	}
	for next := 0; next <= n; {
		jobs, err := f.engine.Claim(t.Context(), engine.ClaimRequest{JobType: f.id.JobType,
			Queues: []string{f.queue}, Max: 500, Worker: "w"})
		mustSucceed(t, err)
		if len(jobs) == 0 {
			t.Fatalf("%d jobs are claimed of %d", next, n+1)
		}
		for _, j := range jobs {
			want := string(appendPayload(nil, next))
			if j.ID.Key != fmt.Sprint(next) || string(j.Payload) != want {
				t.Fatalf("job %d is %s with %s", next, j.ID.Key, j.Payload)
			}
			next++
		}
	}
}
