package postgres_test

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

func mustExecArgs(tb testing.TB, db *sql.DB, statement string, args ...any) {
	tb.Helper()
	if _, err := db.Exec(statement, args...); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

// asWorker returns a pool whose connections have the role of a worker: one that is a member of
// millrace_worker and nothing else.
func asWorker(t *testing.T, owner *sql.DB, database string) *sql.DB {
	t.Helper()
	role := "w_" + strings.ToLower(rand.Text())
	mustExec(t, owner, "CREATE ROLE "+role+" IN ROLE millrace_worker")
	t.Cleanup(func() { mustExec(t, owner, "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("role", role)
	u.RawQuery = q.Encode()
	return pgtest.DB(t, u.String())
}

// workerDB returns what a worker has, beside a pool of the owner, on a store with running jobs.
func workerDB(t *testing.T, n int) (worker, owner *sql.DB, schema string, jobs []*job.Job) {
	t.Helper()
	database := pgtest.URL(t)
	_, owner, jobs = leasedStoreOn(t, database, n)
	if err := owner.QueryRow("SELECT current_schema()").Scan(&schema); err != nil {
		t.Fatal(err)
	}
	return asWorker(t, owner, database), owner, schema, jobs
}

// TX-005, TX-006: the role of workers may end runs and nothing else: it reaches no table, sequence
// or other function of the store, and nothing that it can make changes what the functions do.
func TestWorkerRole(t *testing.T) {
	t.Parallel()
	worker, owner, schema, jobs := workerDB(t, 2)
	mustExecArgs(t, worker, "SELECT complete($1,'{}')", jobs[0].Run.String())
	mustExecArgs(t, worker, "SELECT fail($1,'no',true)", jobs[1].Run.String())
	denied := func(statement string, args ...any) {
		t.Helper()
		_, err := worker.Exec(statement, args...)
		pg, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || pg.Code != "42501" {
			t.Errorf("%s: got %v, want that it is denied", statement, err)
		}
	}
	for _, relation := range relations(t, owner) {
		denied("SELECT * FROM " + relation)
		denied("DELETE FROM " + relation)
		denied("INSERT INTO " + relation + " DEFAULT VALUES")
		denied("SELECT 1 FROM " + relation + " FOR UPDATE")
	}
	denied("SELECT nextval('job_numbers')")
	denied("CREATE TABLE mine (n int)")
	denied("DROP FUNCTION complete")
	denied("SELECT record_run_end($1, true, NULL, NULL, NULL, NULL)", jobs[0].Run.String())
	for name := range functions(t, owner, schema) {
		if name != "complete" && name != "fail" {
			t.Errorf("workers may execute the function %s", name)
		}
	}
}

// TX-005: what a worker puts in front of the schemas is not used by the functions.
func TestWorkerCannotShadow(t *testing.T) {
	t.Parallel()
	worker, owner, _, jobs := workerDB(t, 1)
	conn, err := worker.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range []string{
		"CREATE TEMP TABLE run_ends (n int)", "CREATE TEMP TABLE jobs (seq int8)",
		"CREATE TEMP TABLE leases (seq int8, run_id bytea)",
		"CREATE FUNCTION pg_temp.uuid_send(uuid) RETURNS bytea LANGUAGE sql AS $$SELECT ''::bytea$$",
		"CREATE FUNCTION pg_temp.record_run_end(uuid,boolean,boolean,text,text,text) " +
			"RETURNS void LANGUAGE sql AS $$SELECT NULL$$",
		"CREATE FUNCTION pg_temp.set_config(text,text,boolean) RETURNS text LANGUAGE sql " +
			"AS $$SELECT ''$$",
		fmt.Sprintf("SELECT complete('%s')", jobs[0].Run),
	} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	var ends int
	if err := owner.QueryRow("SELECT count(*) FROM run_ends").Scan(&ends); err != nil || ends != 1 {
		t.Errorf("%d ends are recorded, want 1: %v", ends, err)
	}
}

// relations returns the tables and views of the schema.
func relations(t *testing.T, db *sql.DB) []string {
	t.Helper()
	return texts(t, db, "SELECT relname FROM pg_class WHERE relkind IN ('r','v','m') "+
		"AND relnamespace=current_schema()::regnamespace")
}

// functions returns the functions of a schema that millrace_worker may execute.
func functions(t *testing.T, db *sql.DB, schema string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, name := range texts(t, db, "SELECT proname FROM pg_proc WHERE pronamespace=$1::regnamespace "+
		"AND prorettype<>'trigger'::regtype "+
		"AND has_function_privilege('millrace_worker',oid,'EXECUTE')", schema) {
		all[name] = true
	}
	return all
}

func texts(t *testing.T, db *sql.DB, query string, args ...any) (all []string) {
	t.Helper()
	rows, err := db.Query(query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// TX-006: a worker that is gone with its transaction open keeps its job locked for ten seconds at
// most, and one that sets less itself for no longer.
func TestIdleTransactionsOfWorkers(t *testing.T) {
	t.Parallel()
	worker, _, _, jobs := workerDB(t, 1)
	for set, want := range map[string]string{"0": "10s", "1h": "10s", "200ms": "200ms"} {
		tx, err := worker.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		for _, statement := range []string{
			"SET LOCAL idle_in_transaction_session_timeout='" + set + "'",
			fmt.Sprintf("SELECT complete('%s')", jobs[0].Run)} {
			if _, err := tx.Exec(statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		const show = "SELECT current_setting('idle_in_transaction_session_timeout')"
		if err := tx.QueryRow(show).Scan(&got); err != nil || got != want {
			t.Errorf("%s became %s, want %s: %v", set, got, want, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		if err := worker.QueryRow(show).Scan(&got); err != nil || got == "10s" {
			t.Errorf("after the transaction it is %s: %v", got, err)
		}
	}
}
