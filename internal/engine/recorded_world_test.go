package engine_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// workerWorld is a world on PostgreSQL whose workers have connections of their own.
type workerWorld struct {
	*world
	db    *sql.DB
	log   testkit.StatementLog
	ended []string // what RecordedEnds.Ended was called with
}

// onPostgres runs a test in which all job types take recorded ends.
func onPostgres(t *testing.T, test func(w *workerWorld)) {
	t.Helper()
	t.Parallel()
	newWorkerWorld(t, nil, test)
}

// newWorkerWorld makes a workerWorld; change, if not nil, changes its job types.
func newWorkerWorld(t *testing.T, change func(*engine.JobType), test func(w *workerWorld)) {
	t.Helper()
	url := pgtest.URL(t)
	w := &workerWorld{}
	jobTypes := testJobTypes()
	for i := range jobTypes {
		c := &jobTypes[i]
		c.RecordedEnds = &engine.RecordedEnds{Complete: succeededWith, Fail: failedWith,
			Ended: func(j *job.Job, end *job.RunEnd) {
				w.ended = append(w.ended, fmt.Sprint(name(j.ID), " ", end.Succeeded))
			}}
		if change != nil {
			change(c)
		}
	}
	w.world = newWorldOn(t, func(_ testing.TB, now func() time.Time) func(testing.TB) store.Store {
		return func(tb testing.TB) store.Store {
			return openPostgresWith(tb, postgres.Config{URL: url, Now: now, Conns: 8,
				Observe: w.log.Observe})
		}
	}, true, jobTypes)
	w.db = pgtest.DB(t, url)
	test(w)
}

func succeededWith(_ *job.Job, result []byte) engine.Outcome {
	return engine.Outcome{On: job.Succeeded, Result: result}
}

func failedWith(_ *job.Job, message, errorType string, retryable bool) engine.Outcome {
	o := engine.Outcome{On: job.FailedForGood, Failure: []byte(errorType + ": " + message)}
	if retryable {
		o.On = job.Failed
	}
	return o
}

// begin begins a transaction of a worker.
func (w *workerWorld) begin() *sql.Tx {
	w.Helper()
	tx, err := w.db.BeginTx(w.ctx, nil)
	w.noError(err)
	return tx
}

const (
	completeSQL = "SELECT complete($1, $2)"
	failSQL     = "SELECT fail($1, $2, $3)"
)

// complete records in a transaction that a run has succeeded.
func (w *workerWorld) complete(tx *sql.Tx, r engine.Run) {
	w.Helper()
	_, err := tx.Exec(completeSQL, r.Run.String(), `{"sent": 1.0}`)
	w.noError(err)
}

// completed records it in a transaction of its own.
func (w *workerWorld) completed(r engine.Run) {
	w.Helper()
	tx := w.begin()
	w.complete(tx, r)
	w.noError(tx.Commit())
}

// failed records that a run has failed.
func (w *workerWorld) failed(r engine.Run, message string, retryable bool) {
	w.Helper()
	_, err := w.db.Exec(failSQL, r.Run.String(), message, retryable)
	w.noError(err)
}

// wantLost checks that an end of a run cannot be recorded.
func (w *workerWorld) wantLost(r engine.Run) {
	w.Helper()
	_, err := w.db.Exec(completeSQL, r.Run.String(), nil)
	w.wantState(err, "MR001")
}

// wantState checks the SQLSTATE of an error.
func (w *workerWorld) wantState(err error, want string) {
	w.Helper()
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pg.Code != want {
		w.Fatalf("got error %v, want SQLSTATE %s", err, want)
	}
}

// carryOutSome carries out want ends.
func (w *workerWorld) carryOutSome(want int) {
	w.Helper()
	n, err := w.engine.CarryOutEnds(w.ctx)
	w.noError(err)
	if n != want {
		w.Fatalf("%d ends were carried out, want %d", n, want)
	}
}

// carryOut carries out all ends, which are so many.
func (w *workerWorld) carryOut(want int) {
	w.Helper()
	w.carryOutSome(want)
	var left int
	w.noError(w.db.QueryRow("SELECT count(*) FROM run_ends").Scan(&left))
	if left != 0 {
		w.Fatalf("%d ends are left", left)
	}
}

// backend returns the process of the server that has a transaction.
func (w *workerWorld) backend(tx *sql.Tx) (pid int) {
	w.Helper()
	w.noError(tx.QueryRow("SELECT pg_backend_pid()").Scan(&pid))
	return pid
}

// awaitBlocked waits until a statement waits for the transaction of a process, or the end of a run
// is tried for the second time, or until done.
func (w *workerWorld) awaitBlocked(pid int, done <-chan error) (blocked bool) {
	w.Helper()
	w.log.Take()
	var ran []string
	for w.ctx.Err() == nil {
		select {
		case <-done:
			return false
		default:
		}
		var n int
		w.noError(w.db.QueryRow("SELECT count(*) FROM pg_stat_activity "+
			"WHERE $1 = ANY(pg_blocking_pids(pid))", pid).Scan(&n))
		ran = slices.DeleteFunc(append(ran, w.log.Take()...), func(name string) bool {
			return name != "lock_free_by_seq"
		})
		if n > 0 || len(ran) > 1 {
			return true
		}
	}
	w.Fatal(context.Cause(w.ctx))
	return false
}

// wantResult checks a result.
func (w *workerWorld) wantResult(text, want string) {
	w.Helper()
	if got := w.get(text).Result; string(got) != want || (got != nil && !json.Valid(got)) {
		w.Errorf("%s has the result %s, want %s", text, got, want)
	}
}
