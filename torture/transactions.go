package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// sqlLoad is the load by transactions of callers on PostgreSQL: they submit a job beside a row of
// their own, and workers end a run beside another one. Of both there is all or nothing.
type sqlLoad struct {
	run *run
	db  *sql.DB
}

// callerTables are the rows of the callers: an order names the request for its job, and an effect
// is what a run did.
const callerTables = `CREATE TABLE torture_orders (request uuid PRIMARY KEY, job text);
	CREATE TABLE torture_effects (job text, run text)`

// callerQueries find what must not be, by the invariant.
var callerQueries = []struct{ kind, query string }{
	{"I1 no acknowledged loss", `SELECT o.job FROM torture_orders o
		LEFT JOIN millrace.submissions s ON s.id=o.request WHERE coalesce(s.job_id, o.job)<>o.job
		OR s.id IS NULL`},
	{"I2 no phantom", `SELECT s.id::text FROM millrace.submissions s
		LEFT JOIN torture_orders o ON s.id=o.request WHERE o.request IS NULL`},
	{"I4 one outcome", "SELECT job FROM torture_effects GROUP BY job HAVING count(*)>1"},
	{"I7 liveness", "SELECT id::text FROM millrace.submissions WHERE state<>'submitted'"},
}

// hasCallers reports whether there is load by transactions of callers. Beside an older server,
// which does not know recorded ends, they are not to be used.
func (p *plan) hasCallers() bool { return p.Store == "postgres" && p.Older == "" }

// openCallers makes the tables of the callers. Their connections are disturbed as those of the
// nodes are.
func (r *run) openCallers(ctx context.Context, store string) error {
	if !r.plan.hasCallers() {
		return nil
	}
	db, err := r.openSQL()
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, callerTables); err != nil {
		return err
	}
	u, err := url.Parse(store)
	if err != nil {
		return err
	}
	q := u.Query()
	q.Set("default_query_exec_mode", "exec") // a pooler keeps no prepared statements
	u.RawQuery = q.Encode()
	r.callers = &sqlLoad{run: r}
	r.callers.db, err = sql.Open("pgx", u.String())
	return err
}

// close ends the connections, if there are any.
func (l *sqlLoad) close() error {
	if l == nil {
		return nil
	}
	return l.db.Close()
}

// load starts a producer of Relay, which submits until load ends.
func (l *sqlLoad) load(load context.Context) {
	if l == nil {
		return
	}
	a, jobs := l.run.newActor("sql-producer"), &relayLoad{run: l.run}
	jobs.prefix = "s"
	l.run.producersRunning.Go(func() {
		for a.pause(load, 200*time.Millisecond) {
			j, m := jobs.newJob(a, "")
			o := &op{Actor: a.name, Contract: relay, Verb: "submit", Made: []made{m}, Later: true}
			l.transact(o, a.random.IntN(8) == 0, "INSERT INTO torture_orders (request, job) "+
				"VALUES (millrace.submit('relay'::text, $1::json), $2)", string(encode(j)), j.ID)
		}
	})
}

// complete ends a run in a transaction of its worker, with a result unless it is empty.
func (l *sqlLoad) complete(a *actor, contract string, g claimedJob, result string) {
	o := &op{Actor: a.name, Contract: contract, Verb: "complete", Job: g.Job, Run: g.Run,
		Later: true}
	l.transact(o, false, "WITH effect AS (INSERT INTO torture_effects (job, run) "+
		"VALUES ($1, $2) RETURNING run) "+
		"SELECT millrace.complete(run::uuid, nullif($3, '')::json) FROM effect", g.Job, g.Run,
		result)
}

// transact runs a statement in a transaction, which it may roll back in the end, and records it. A
// transaction has failed unless its COMMIT was sent, and is unknown from there to the answer.
func (l *sqlLoad) transact(o *op, undo bool, statement string, args ...any) {
	l.run.ledger.begin(o)
	defer l.run.ledger.end(o)
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	o.Class = classFailed
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		o.Note = noteOf(err)
		return
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
		if o.Note = noteOf(err); isRunLost(err) {
			o.Status = http.StatusConflict
		}
		return
	}
	if undo {
		return
	}
	o.Class = classUnknown
	if err := tx.Commit(); err != nil {
		return
	}
	o.Class, o.Status = classOK, http.StatusOK
}

// isRunLost reports whether the server said that a run is not the current one.
func isRunLost(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "MR001"
}

// noteOf returns an error of the database that no fault explains; "" for all others.
func noteOf(err error) string {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	explained := []string{"08", "25", "28", "3D", "40", "53", "55", "57", "58", "MR"}
	if !ok || (slices.Contains(explained, pg.Code[:2]) && pg.Code != "MR002") {
		return ""
	}
	return err.Error()
}

// waiting counts the requests that no node has submitted yet.
func (l *sqlLoad) waiting(ctx context.Context, db *sql.DB) (n int, err error) {
	if l == nil {
		return 0, nil
	}
	err = db.QueryRowContext(ctx,
		"SELECT count(*) FROM millrace.submissions WHERE state='waiting'").Scan(&n)
	return n, err
}

// callerFault is a row that must not be.
type callerFault struct{ kind, of string }

// read reads the rows of the callers, and those that contradict what the server has.
func (l *sqlLoad) read(ctx context.Context, db *sql.DB, f *final) error {
	if l == nil {
		return nil
	}
	for _, q := range callerQueries {
		if err := eachText(ctx, db, q.query, func(of string) {
			f.Callers = append(f.Callers, callerFault{q.kind, of})
		}); err != nil {
			return fmt.Errorf("%s: %w", q.query, err)
		}
	}
	f.Committed = map[string]bool{}
	return eachText(ctx, db, "SELECT job FROM torture_orders UNION ALL "+
		"SELECT run FROM torture_effects", func(of string) { f.Committed[of] = true })
}

// eachText calls a function for each row of a query with one column.
func eachText(ctx context.Context, db *sql.DB, query string, fn func(string)) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return err
		}
		fn(text)
	}
	return rows.Err()
}

// failUncommitted marks as failed the unknown transactions that have left no row.
func (f *final) failUncommitted(ops []*op) {
	for _, o := range ops {
		if !o.Later || o.Class != classUnknown {
			continue
		}
		row := o.Run
		if o.Verb == "submit" {
			row = o.Made[0].Job
		}
		if !f.Committed[row] {
			o.Class, o.Status = classFailed, 0
		}
	}
}

// checkCallers reports rows that must not be, and ends of runs that were committed, perhaps without
// an answer, and have not come to be.
func (a *audit) checkCallers() {
	for _, fault := range a.final.Callers {
		a.add(fault.kind, "by the rows of a caller: %s", fault.of)
	}
	for _, o := range a.ops {
		isOpen := o.Class == classUnknown && a.final.Committed[o.Run]
		if !o.Later || o.Verb != "complete" || !isOpen {
			continue
		}
		j, found := a.final.Jobs[o.Job]
		if found == (o.Contract == relay) || (found && labelOfRun(j.Result) != o.Run) {
			a.add("I1 no acknowledged loss", "job %s: op %d was committed, and its run %s has not "+
				"completed the job: %+v", o.Job, o.ID, o.Run, j)
		}
	}
}
