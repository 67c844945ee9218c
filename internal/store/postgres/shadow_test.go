package postgres_test

import (
	"bytes"
	"crypto/rand"
	"log/slog"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// Of two stores in one database one cannot have its tables where the other has its functions: the
// start says so.
func TestTwoStoresInOneSchema(t *testing.T) {
	t.Parallel()
	database := outside.NewPostgres(t).Database("mine")
	mustExec(t, pgtest.DB(t, database), "CREATE SCHEMA millrace")
	mustOpen(t, postgres.Config{URL: database + "&search_path=millrace"}).Close()
	_, err := postgres.Open(t.Context(), postgres.Config{URL: database})
	if err == nil || !strings.Contains(err.Error(), "the functions of another store") {
		t.Errorf("got %v, want why the start fails", err)
	}
}

// TX-005: whoever owns the schema millrace, or may make functions there, could have those of others
// called with the rights of producers and workers: the migration that makes it refuses a foreign
// owner, and a start warns of what was changed later.
func TestForeignSchema(t *testing.T) {
	t.Parallel()
	server := outside.NewPostgres(t)
	database := server.Database("mine")
	server.Exec("postgres", "CREATE ROLE other LOGIN")
	server.Exec("mine", "CREATE SCHEMA millrace AUTHORIZATION other",
		"GRANT ALL ON SCHEMA millrace TO mine")
	warned := func(what string, want bool) {
		t.Helper()
		var log bytes.Buffer
		mustOpen(t, postgres.Config{URL: database,
			Log: slog.New(slog.NewTextHandler(&log, nil))}).Close()
		if strings.Contains(log.String(), "roles=other") != want {
			t.Errorf("%s: the start warns: %v, want %v: %s", what, !want, want, &log)
		}
	}
	_, err := postgres.Open(t.Context(), postgres.Config{URL: database})
	if err == nil || !strings.Contains(err.Error(), "belongs to the role other") {
		t.Errorf("got %v, want why the start fails", err)
	}
	server.Exec("mine", "ALTER SCHEMA millrace OWNER TO mine")
	warned("a schema of its own", false)
	server.Exec("mine", "GRANT CREATE ON SCHEMA millrace TO other")
	warned("a role that may make functions", true)
	server.Exec("mine", "REVOKE CREATE ON SCHEMA millrace FROM other",
		"ALTER SCHEMA millrace OWNER TO other")
	warned("a foreign owner", true)
}

// TX-005: a function that another role makes beside the tables is not called by those that run with
// the rights of the owner, whatever its arguments are. A start warns of such a role.
func TestOverloadsAreNotCalled(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	_, owner, jobs := leasedStoreOn(t, database, 2)
	var schema string
	if err := owner.QueryRow("SELECT current_schema()").Scan(&schema); err != nil {
		t.Fatal(err)
	}
	role := "w_" + strings.ToLower(rand.Text())
	mustExec(t, owner, "CREATE ROLE "+role+" IN ROLE millrace_worker")
	t.Cleanup(func() { mustExec(t, owner, "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	mustExec(t, owner, "GRANT CREATE ON SCHEMA "+schema+" TO "+role)
	worker := pgtest.DB(t, database+"&role="+role)
	for _, types := range []string{"uuid,boolean,text,text,text,text",
		"uuid,boolean,name,name,name,text", "uuid,boolean,boolean,text,text,name",
		"uuid,boolean,boolean,text,text,json", "uuid,boolean,boolean,varchar,varchar,varchar"} {
		mustExec(t, worker, "CREATE FUNCTION record_run_end("+types+") RETURNS void "+
			"LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'called as %', current_user; END $$")
	}
	mustExecArgs(t, worker, "SELECT complete($1,'{}')", jobs[0].Run.String())
	mustExecArgs(t, worker, "SELECT fail($1,'no',true)", jobs[1].Run.String())
	for roles, grantee := range map[string]string{role: role, "PUBLIC, " + role: "PUBLIC"} {
		mustExec(t, owner, "GRANT CREATE ON SCHEMA "+schema+" TO "+grantee)
		var log bytes.Buffer
		s := mustOpen(t, postgres.Config{URL: database,
			Log: slog.New(slog.NewTextHandler(&log, nil))})
		s.Close()
		if !strings.Contains(log.String(), roles) {
			t.Errorf("the start does not warn of %s: %s", roles, &log)
		}
		mustExec(t, owner, "REVOKE CREATE ON SCHEMA "+schema+" FROM PUBLIC")
	}
}

// TX-001, TX-006: PostgreSQL does not prepare a transaction for a two-phase commit in which one of
// the functions was called, also where the server allows such: nothing stays locked without a
// session that could end.
func TestTwoPhaseCommit(t *testing.T) {
	t.Parallel()
	server := outside.NewPostgres(t, "max_prepared_transactions=5")
	database := server.Database("mine")
	_, db, jobs := leasedStoreOn(t, database, 2)
	prepare := func(statements ...string) string {
		t.Helper()
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, text := range append([]string{"BEGIN"}, statements...) {
			if _, err := conn.ExecContext(t.Context(), text); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
		_, err = conn.ExecContext(t.Context(), "PREPARE TRANSACTION 'two-phase'")
		return sqlState(err)
	}
	if got := prepare("CREATE TABLE entries (n int)"); got != "<nil>" {
		t.Fatalf("this server prepares nothing: %s", got)
	}
	mustExec(t, db, "COMMIT PREPARED 'two-phase'")
	for _, call := range []string{
		"SELECT millrace.submit('relay'::text,'{}'::json)",
		"SELECT millrace.submit('relay'::text,'{}'::json,'key'::text)",
		"SELECT millrace.complete('" + jobs[0].Run.String() + "'::uuid)",
		"SELECT millrace.fail('" + jobs[1].Run.String() + "'::uuid,'no'::text,true)",
	} {
		if got := prepare("INSERT INTO entries VALUES (1)", call); got != "0A000" {
			t.Errorf("%s: the transaction is prepared: %s", call, got)
		}
	}
	var left int
	if err := db.QueryRow(`SELECT (SELECT count(*) FROM entries)+(SELECT count(*) FROM inbox)+
		(SELECT count(*) FROM run_ends)`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows are left: %v", left, err)
	}
}
