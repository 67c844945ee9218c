package postgres_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// producerWorld is a store with two programs that submit to it, each with a role of its own, and
// with the superuser that made them.
type producerWorld struct {
	testing.TB
	super          *sql.DB
	schema         string
	one, other     *sql.DB
	role, urlOfOne string
}

func newProducers(t *testing.T) *producerWorld {
	t.Helper()
	w := &producerWorld{TB: t}
	at := pgtest.URL(t)
	mustOpen(t, postgres.Config{URL: at})
	w.super = pgtest.DB(t, at)
	if err := w.super.QueryRow("SELECT current_schema()").Scan(&w.schema); err != nil {
		t.Fatal(err)
	}
	w.one, w.role, w.urlOfOne = w.producer(at)
	w.other, _, _ = w.producer(at)
	return w
}

// producer makes a program with a role that is a producer, and that may do what every role may.
func (w *producerWorld) producer(at string) (db *sql.DB, role, itsURL string) {
	w.Helper()
	role = "p_" + strings.ToLower(rand.Text())
	mustExec(w, w.super, "CREATE ROLE "+role+" LOGIN PASSWORD 'secret' IN ROLE millrace_producer")
	w.Cleanup(func() { mustExec(w, w.super, "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	u, err := url.Parse(at)
	if err != nil {
		w.Fatal(err)
	}
	u.User = url.UserPassword(role, "secret")
	return pgtest.DB(w, u.String()), role, u.String()
}

// sqlState returns the SQLSTATE of an error, "" for none.
func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return fmt.Sprint(err)
}

// submit submits a request, with up to three further arguments.
func submit(q interface {
	QueryRow(string, ...any) *sql.Row
}, args ...any) (id string, err error) {
	for len(args) < 5 {
		args = append(args, nil)
	}
	return id, q.QueryRow("SELECT submit($1,$2,$3,$4,$5)", args...).Scan(&id)
}

// TX-005: a producer submits and sees what it has submitted, and is refused everything else in the
// schema: each right on each relation, and each other function.
func TestProducerMayOnlySubmit(t *testing.T) {
	t.Parallel()
	w := newProducers(t)
	id, err := submit(w.one, "relay", `{"a":1}`)
	if err != nil {
		t.Fatal(err)
	}
	var state string
	if err := w.one.QueryRow("SELECT state FROM submissions WHERE id=$1", id).Scan(&state); err != nil ||
		state != "waiting" {
		t.Errorf("TX-005 a producer sees %q of its request: %v", state, err)
	}
	relations := w.rows(`SELECT c.relname, CASE c.relkind WHEN 'S' THEN 'USAGE,SELECT,UPDATE'
		ELSE 'SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER' END
		FROM pg_class AS c WHERE c.relnamespace=current_schema()::regnamespace
		AND c.relkind IN ('r','v','m','S','p','f')`)
	if len(relations) < 20 {
		t.Fatalf("the schema has %d relations", len(relations))
	}
	for _, r := range relations {
		for right := range strings.SplitSeq(r[1], ",") {
			check := "has_table_privilege"
			if strings.HasPrefix(r[1], "USAGE") {
				check = "has_sequence_privilege"
			}
			var may bool
			if err := w.one.QueryRow("SELECT "+check+"($1,$2)", r[0], right).Scan(&may); err != nil ||
				may != (r[0] == "submissions" && right == "SELECT") {
				t.Errorf("TX-005 a producer has %s on %s: %v %v", right, r[0], may, err)
			}
		}
		if !strings.HasPrefix(r[1], "USAGE") && r[0] != "submissions" {
			_, err := w.one.Exec("SELECT * FROM " + r[0])
			if got := sqlState(err); got != "42501" {
				t.Errorf("TX-005 a producer reads %s: %s", r[0], got)
			}
		}
	}
	functions := w.rows(`SELECT p.proname, p.oid::regprocedure::text FROM pg_proc AS p
		WHERE p.pronamespace=current_schema()::regnamespace`)
	allowed := 0
	for _, f := range functions {
		var may bool
		if err := w.one.QueryRow("SELECT has_function_privilege($1,'EXECUTE')", f[1]).Scan(
			&may); err != nil || may != (f[0] == "submit") {
			t.Errorf("TX-005 a producer executes %s: %v %v", f[1], may, err)
		}
		if may {
			allowed++
		}
	}
	if allowed != 1 {
		t.Errorf("TX-005 a producer executes %d of %v", allowed, functions)
	}
}

// rows returns the rows of a query of two texts.
func (w *producerWorld) rows(query string) (all [][2]string) {
	w.Helper()
	rows, err := w.super.Query(query)
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var r [2]string
		if err := rows.Scan(&r[0], &r[1]); err != nil {
			w.Fatal(err)
		}
		all = append(all, r)
	}
	if err := rows.Err(); err != nil {
		w.Fatal(err)
	}
	return all
}

// TX-005: what a producer could try beside its rights is refused too.
func TestProducerBreaksNoRule(t *testing.T) {
	t.Parallel()
	w := newProducers(t)
	id, err := submit(w.one, "relay", "{}")
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"INSERT INTO submissions (state) VALUES ('submitted')",
		"UPDATE submissions SET state='submitted' WHERE id='" + id + "'",
		"DELETE FROM submissions",
		"UPDATE inbox SET state='submitted'",
		"INSERT INTO jobs (contract) VALUES ('relay')",
		"DELETE FROM records",
		"TRUNCATE inbox_transactions",
		"SELECT nextval('job_numbers')",
		"SELECT setval('inbox_number_seq', 1)",
		"COPY inbox TO STDOUT",
		"BEGIN; LOCK TABLE inbox IN ACCESS SHARE MODE",
		"CREATE TABLE " + w.schema + ".mine (a int)",
		"CREATE FUNCTION " + w.schema + ".mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"CREATE OR REPLACE VIEW submissions AS SELECT * FROM inbox",
		"ALTER FUNCTION submit(text,json,text,text,text) RESET ALL",
		"ALTER FUNCTION submit(text,json,text,text,text) SECURITY INVOKER",
		"DROP FUNCTION submit(text,json,text,text,text)",
		"ALTER VIEW submissions SET (security_barrier = false)",
		"SET ROLE pg_write_all_data",
		"CREATE TEMP TABLE t (a int); CREATE TRIGGER t BEFORE UPDATE ON t FOR EACH ROW " +
			"EXECUTE FUNCTION " + w.schema + ".ready_arrives()",
	} {
		_, err := w.one.Exec(statement)
		if got := sqlState(err); got != "42501" && got != "55000" {
			t.Errorf("TX-005 %s: %s", statement, got)
		}
	}
	if _, err := w.one.Exec("SET SESSION AUTHORIZATION postgres"); err == nil {
		t.Error("TX-005 a producer becomes another role")
	}
	// A grant of what the role may not grant is a warning.
	if _, err := w.one.Exec("GRANT EXECUTE ON FUNCTION submit(text,json,text,text,text) " +
		"TO PUBLIC"); err != nil {
		t.Fatal(err)
	}
	var may bool
	if err := w.super.QueryRow("SELECT has_function_privilege('public', " +
		"'submit(text,json,text,text,text)', 'EXECUTE')").Scan(&may); err != nil || may {
		t.Errorf("TX-005 everybody submits: %v", err)
	}
}

// TX-004: a producer sees what its own role has submitted and nothing of others, by whatever
// condition it asks.
func TestProducerSeesItsOwn(t *testing.T) {
	t.Parallel()
	w := newProducers(t)
	ctx := context.Background()
	if _, err := submit(w.other, "canary", `{"canary":1}`); err != nil {
		t.Fatal(err)
	}
	if _, err := submit(w.one, "relay", "{}", "key"); err != nil {
		t.Fatal(err)
	}
	conn, err := w.one.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// A function that is cheap is asked first, where nothing is between it and the rows.
	if _, err := conn.ExecContext(ctx, `CREATE TEMP TABLE leaked (contract text);
		CREATE FUNCTION pg_temp.leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS
		$$ BEGIN INSERT INTO leaked VALUES ($1); RETURN true; END $$`); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"SELECT count(*) FROM submissions",
		"SELECT count(*) FROM submissions WHERE pg_temp.leak(contract)",
		"SELECT count(*) FROM submissions WHERE contract = 'relay' OR true"} {
		var n int
		if err := conn.QueryRowContext(ctx, query).Scan(&n); err != nil || n != 1 {
			t.Errorf("TX-004 %s finds %d: %v", query, n, err)
		}
	}
	var leaked string
	if err := conn.QueryRowContext(ctx, "SELECT string_agg(contract,',') FROM leaked").Scan(
		&leaked); err != nil || leaked != "relay" {
		t.Errorf("TX-004 a condition has seen %q: %v", leaked, err)
	}
	// The key of another producer gives its id, and nothing else.
	id, err := submit(w.other, "relay", "{}", "key")
	if err != nil {
		t.Fatal(err)
	}
	var state string
	if err := w.other.QueryRow("SELECT state FROM submissions WHERE id=$1", id).Scan(
		&state); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("TX-004 another producer's request is %q: %v", state, err)
	}
}

// TX-005: tables and functions of a producer's own take no part in the function, whatever its
// search_path is.
func TestSearchPathOfSubmit(t *testing.T) {
	t.Parallel()
	w := newProducers(t)
	ctx := context.Background()
	conn, err := w.one.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, `
		CREATE TEMP TABLE inbox (LIKE `+w.schema+`.submissions);
		CREATE TEMP TABLE inbox_transactions (number bigint, xid bigint, began bigint);
		CREATE FUNCTION pg_temp.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS
			$$ BEGIN RAISE EXCEPTION 'mine'; END $$;
		CREATE FUNCTION pg_temp.char_length(text) RETURNS int LANGUAGE sql AS 'SELECT 1/0';
		CREATE FUNCTION pg_temp.json_typeof(json) RETURNS text LANGUAGE plpgsql AS
			$$ BEGIN RAISE EXCEPTION 'mine'; END $$;
		SET search_path = pg_temp, pg_catalog, `+w.schema); err != nil {
		t.Fatal(err)
	}
	var id string
	if err := conn.QueryRowContext(ctx, "SELECT "+w.schema+".submit('relay','{}','k')").Scan(
		&id); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := w.super.QueryRow("SELECT count(*) FROM inbox JOIN inbox_transactions AS t "+
		"ON t.number=transaction WHERE id=$1", id).Scan(&n); err != nil || n != 1 {
		t.Errorf("TX-005 the request is in %d rows of the store: %v", n, err)
	}
}

// TX-005: SQL in an argument stays what it is, a text.
func TestSubmitIsNotInjected(t *testing.T) {
	t.Parallel()
	w := newProducers(t)
	texts := []string{"'; DROP TABLE inbox; --", "' OR '1'='1", "$$; SELECT 1; $$", "$body$ x $body$",
		`\'; SELECT pg_sleep(1); --`, "%s %I %L %1$I", "$1", `"quoted"`, "a\nb\tc", "\u202e’ＯＲ",
		"{inbox}", "'||(SELECT body FROM records LIMIT 1)||'", "E'\\x27'", "/* */ --"}
	for _, text := range texts {
		encoded, err := json.Marshal(map[string]string{"text": text, text: "'; DELETE FROM inbox; --"})
		if err != nil {
			t.Fatal(err)
		}
		body := string(encoded)
		id, err := submit(w.one, text, body, text, text, text)
		if err != nil {
			t.Errorf("TX-005 %q: %v", text, err)
			continue
		}
		var jobType, request, key, owner, kind, producer string
		if err := w.super.QueryRow(`SELECT contract,request,idempotency_key,owner,job_type,producer
			FROM inbox WHERE id=$1`, id).Scan(&jobType, &request, &key, &owner, &kind,
			&producer); err != nil {
			t.Fatal(err)
		}
		if jobType != text || request != body || key != text || owner != text || kind != text ||
			producer != w.role {
			t.Errorf("TX-005 %q is stored as %q %q %q %q %q of %s", text, jobType, request, key,
				owner, kind, producer)
		}
	}
	var n int
	if err := w.super.QueryRow("SELECT count(*) FROM inbox").Scan(&n); err != nil || n != len(texts) {
		t.Errorf("TX-005 the inbox has %d requests, want %d: %v", n, len(texts), err)
	}
}

// TX-001: arguments that are wrong raise an error that names them, and leave nothing.
func TestArgumentsOfSubmit(t *testing.T) {
	t.Parallel()
	w := newProducers(t)
	long := func(n int) string { return strings.Repeat("ä", n) }
	text := func(bytes int) string {
		return `{"a":"` + strings.Repeat("x", bytes-len(`{"a":""}`)) + `"}`
	}
	for _, wrong := range []struct {
		args []any
		want string
	}{
		{[]any{nil, "{}"}, "contract is null"},
		{[]any{"", "{}"}, "contract must have 1 to 100 characters"},
		{[]any{long(101), "{}"}, "contract must have"},
		{[]any{"relay", nil}, "request is null"},
		{[]any{"relay", "[]"}, "request must be a JSON object"},
		{[]any{"relay", "null"}, "request must be a JSON object"},
		{[]any{"relay", `"x"`}, "request must be a JSON object"},
		{[]any{"relay", text(16<<20 + 1)}, "request must have at most 16777216 bytes"},
		{[]any{"relay", "{}", ""}, "idempotency_key must have 1 to 255 characters"},
		{[]any{"relay", "{}", long(256)}, "idempotency_key must have"},
		{[]any{"relay", "{}", nil, ""}, "owner must have 1 to 255 characters"},
		{[]any{"relay", "{}", nil, long(256)}, "owner must have"},
		{[]any{"relay", "{}", nil, nil, ""}, "job_type must have 1 to 255 characters"},
		{[]any{"relay", "{}", nil, nil, long(256)}, "job_type must have"},
	} {
		_, err := submit(w.one, wrong.args...)
		if sqlState(err) != "MR002" || !strings.Contains(err.Error(), "MILLRACE_INVALID: "+wrong.want) {
			t.Errorf("TX-001 %.40q: %v", wrong.args, err)
		}
	}
	for _, malformed := range []string{"", "{", "{'a':1}", "{}x", `{"a":01}`} {
		if _, err := submit(w.one, "relay", malformed); sqlState(err) != "22P02" {
			t.Errorf("TX-001 %q is taken for JSON: %v", malformed, err)
		}
	}
	var n int
	if err := w.super.QueryRow("SELECT (SELECT count(*) FROM inbox) + " +
		"(SELECT count(*) FROM inbox_transactions)").Scan(&n); err != nil || n != 0 {
		t.Errorf("TX-001 %d rows are left of what was wrong: %v", n, err)
	}
	for _, args := range [][]any{{long(100), text(16 << 20), long(255), long(255), long(255)},
		{"a", "{ \"b\" : 1.50 , \"b\": \"\\u0000\" }"}} {
		id, err := submit(w.one, args...)
		if err != nil {
			t.Fatalf("TX-001 %v", err)
		}
		var request string
		if err := w.super.QueryRow("SELECT request FROM inbox WHERE id=$1", id).Scan(
			&request); err != nil || request != args[1] {
			t.Errorf("TX-001 the request is not stored as it was sent: %v", err)
		}
	}
}

// TX-003: of two transactions with one key the second waits for the first, and gets its request if
// that commits, and submits if it is rolled back.
func TestKeysOfTwoTransactions(t *testing.T) {
	t.Parallel()
	w := newProducers(t)
	for _, commits := range []bool{true, false} {
		key := fmt.Sprint("key", commits)
		first, err := w.one.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = first.Rollback() }()
		id, err := submit(first, "relay", "{}", key)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := submit(first, "relay", `{"b":2}`, key); err != nil || again != id {
			t.Errorf("TX-003 the same transaction gets %s, want %s: %v", again, id, err)
		}
		type answer struct {
			id  string
			err error
		}
		answered := make(chan answer, 1)
		go func() {
			other, err := submit(w.other, "relay", "{}", key)
			answered <- answer{other, err}
		}()
		testkit.WaitUntil(t, "the second transaction to wait", func() bool {
			var n int
			if err := w.super.QueryRow(`SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a
				USING (pid) WHERE NOT l.granted AND a.usename<>$1 AND a.query LIKE 'SELECT submit%'
				AND l.transactionid=(SELECT backend_xid FROM pg_stat_activity WHERE usename=$1
				AND backend_xid IS NOT NULL)`, w.role).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n == 1
		})
		end := first.Rollback
		if commits {
			end = first.Commit
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		second := testkit.Receive(t, "the second transaction", answered)
		if second.err != nil || (second.id == id) != commits {
			t.Errorf("TX-003 after a commit %v the second gets %s of %s: %v", commits, second.id, id,
				second.err)
		}
	}
	var n int
	if err := w.super.QueryRow("SELECT count(*) FROM inbox").Scan(&n); err != nil || n != 2 {
		t.Errorf("TX-003 there are %d requests, want 2: %v", n, err)
	}
	_, err := submit(w.one, "taskflow", "{}", "keytrue")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.super.QueryRow("SELECT count(*) FROM inbox").Scan(&n); err != nil || n != 3 {
		t.Errorf("TX-003 the key of another contract is another key: %d requests, %v", n, err)
	}
}

// TX-003: a crowd that submits with one key makes one request, and all get its id.
func TestKeyOfACrowd(t *testing.T) {
	t.Parallel()
	w := newProducers(t)
	w.one.SetMaxOpenConns(10)
	ids := make([]string, 60)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			var err error
			if ids[i], err = submit(w.one, "relay", fmt.Sprintf(`{"n":%d}`, i), "key"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("TX-003 got %s and %s", id, ids[0])
		}
	}
	// A snapshot from before a key cannot see it: the transaction gets the answer to run again.
	tx, err := w.other.BeginTx(context.Background(),
		&sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec("SELECT 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := submit(w.one, "relay", "{}", "later"); err != nil {
		t.Fatal(err)
	}
	if _, err := submit(tx, "relay", "{}", "later"); sqlState(err) != "40001" {
		t.Errorf("TX-003 a snapshot from before the key: %v", err)
	}
}
