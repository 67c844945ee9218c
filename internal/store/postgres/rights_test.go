package postgres_test

import (
	"crypto/rand"
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// limited makes a schema with a role that has the rights needed there and no more. It returns the
// URL of that role.
func limited(t *testing.T) (db *sql.DB, role, url string) {
	t.Helper()
	owner := pgtest.URL(t)
	s, err := postgres.Open(t.Context(), postgres.Config{URL: owner})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	db, role = pgtest.DB(t, owner), "r_"+strings.ToLower(rand.Text())
	mustExec(t, db, "CREATE ROLE "+role)
	t.Cleanup(func() { mustExec(t, db, "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	var schema string
	if err := db.QueryRow("SELECT current_schema()").Scan(&schema); err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, "GRANT USAGE ON SCHEMA "+schema+" TO "+role)
	mustExec(t, db, "GRANT SELECT ON goose_db_version TO "+role)
	for _, n := range postgres.Required {
		for right := range strings.FieldsSeq(n.Rights) {
			mustExec(t, db, "GRANT "+right+" ON "+n.Relation+" TO "+role)
		}
	}
	return db, role, owner + "&role=" + role
}

func mustExec(tb testing.TB, db *sql.DB, statement string) {
	tb.Helper()
	if _, err := db.Exec(statement); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

// Ping fails while a right or a relation is missing that some of the work needs, names it, and does
// not fail when it is there again.
func TestPingNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	db, role, url := limited(t)
	s := mustOpen(t, postgres.Config{URL: url})
	pings := func(want string) {
		t.Helper()
		err := s.Ping(t.Context())
		if want == "" && err != nil {
			t.Errorf("got %v", err)
		}
		if want != "" && (!job.IsKind(err, job.Unavailable) ||
			!strings.HasSuffix(err.Error(), want)) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	pings("")
	for _, n := range postgres.Required {
		for right := range strings.FieldsSeq(n.Rights) {
			mustExec(t, db, "REVOKE "+right+" ON "+n.Relation+" FROM "+role)
			pings("the role has no right to " + right + " on " + n.Relation)
			mustExec(t, db, "GRANT "+right+" ON "+n.Relation+" TO "+role)
		}
		mustExec(t, db, "ALTER TABLE "+n.Relation+" RENAME TO moved")
		pings("it has no " + n.Relation)
		mustExec(t, db, "ALTER TABLE moved RENAME TO "+n.Relation)
		pings("")
	}
}

// Every table of the schema is among those needed.
func TestAllTablesAreNeeded(t *testing.T) {
	t.Parallel()
	db, _, _ := limited(t)
	rows, err := db.Query("SELECT tablename FROM pg_tables WHERE schemaname=current_schema()")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		is := func(n postgres.Requirement) bool { return n.Relation == name }
		if name != "goose_db_version" && !slices.ContainsFunc(postgres.Required, is) {
			t.Errorf("%s is not among them", name)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}
