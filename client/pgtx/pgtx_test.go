package pgtx_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/client/pgtx"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// world is a store with the rows of one job that runs, and nothing of a server besides.
type world struct {
	*testing.T
	db     *sql.DB
	conn   *pgx.Conn
	schema string
}

const run = "00000000-0001-8000-8000-000000000000" // of the job 1

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	url := pgtest.URL(t)
	return newWorldOn(t, url, url)
}

// newWorldOn is newWorld on a database whose callers have another URL than the server.
func newWorldOn(t *testing.T, server, url string) *world {
	t.Helper()
	s, err := postgres.Open(t.Context(), postgres.Config{URL: server})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	w := &world{T: t, db: pgtest.DB(t, url)}
	if w.conn, err = pgx.Connect(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.conn.Close(context.Background()) })
	if err := w.db.QueryRow("SELECT replace(current_schema(), 'public', 'millrace')").Scan(
		&w.schema); err != nil {
		t.Fatal(err)
	}
	w.exec("INSERT INTO jobs (seq,identity,contract,scope,key,kind,queue,owner,trace,priority," +
		"order_time) VALUES (1,'1','c','','k','','q','','',0,0)")
	w.exec("INSERT INTO leases (seq,due_at,state,worker,run_id) " +
		"VALUES (1,0,'running','',uuid_send('" + run + "'))")
	w.exec("CREATE TABLE ledger (entry text)")
	return w
}

func (w *world) exec(statement string, args ...any) {
	w.Helper()
	if _, err := w.db.Exec(statement, args...); err != nil {
		w.Fatal(err)
	}
}

// recorded returns the end that is recorded, and what the ledger has beside it.
func (w *world) recorded() (end, ledger string) {
	w.Helper()
	for to, query := range map[*string]string{
		&end: `SELECT coalesce(string_agg(concat_ws(' ', succeeded, retryable,
			convert_from(result,'UTF8'), error, error_type), ','), '') FROM run_ends`,
		&ledger: "SELECT coalesce(string_agg(entry,','),'') FROM ledger",
	} {
		if err := w.db.QueryRow(query).Scan(to); err != nil {
			w.Fatal(err)
		}
	}
	return end, ledger
}

// TX-007: what is written in a transaction and the end of a run are committed together or not at
// all, in the transactions of pgx and in those of database/sql.
func TestEndsInTransactions(t *testing.T) {
	failure := &client.JobError{Err: errors.New("it's \"broken\""), Type: "kind"}
	for _, tt := range []struct {
		name, want string
		end        func(ctx context.Context, tx pgtx.Tx) error
	}{
		{"completed", `t {"n": 1.0}`, func(ctx context.Context, tx pgtx.Tx) error {
			return pgtx.CompleteTx(ctx, tx, run, json.RawMessage(`{"n": 1.0}`))
		}},
		{"completed without a result", "t", func(ctx context.Context, tx pgtx.Tx) error {
			return pgtx.CompleteTx(ctx, tx, run, nil)
		}},
		{"failed", `f t it's "broken" kind`, func(ctx context.Context, tx pgtx.Tx) error {
			return pgtx.FailTx(ctx, tx, run, failure, true)
		}},
	} {
		t.Run("pgx, "+tt.name, func(t *testing.T) {
			w := newWorld(t)
			for _, commit := range []bool{false, true} {
				tx, err := w.conn.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				_, err = tx.Exec(t.Context(), "INSERT INTO ledger VALUES ('"+tt.name+"')")
				w.check(commit, tt.want, tt.name, err, tt.end(t.Context(),
					pgtx.PGX(tx).InSchema(w.schema)),
					func() error { return tx.Commit(t.Context()) },
					func() error { return tx.Rollback(t.Context()) })
			}
		})
		t.Run("database/sql, "+tt.name, func(t *testing.T) {
			w := newWorld(t)
			for _, commit := range []bool{false, true} {
				tx, err := w.db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				_, err = tx.Exec("INSERT INTO ledger VALUES ('" + tt.name + "')")
				w.check(commit, tt.want, tt.name, err, tt.end(t.Context(),
					pgtx.SQL(tx).InSchema(w.schema)), tx.Commit, tx.Rollback)
			}
		})
	}
}

// check ends a transaction and checks what is there then.
func (w *world) check(commits bool, wantEnd, wantLedger string, inserted, ended error, commit,
	rollback func() error) {
	w.Helper()
	if err := errors.Join(inserted, ended); err != nil {
		w.Fatal(err)
	}
	end := rollback
	if commits {
		end = commit
	} else {
		wantEnd, wantLedger = "", ""
	}
	if err := end(); err != nil {
		w.Fatal(err)
	}
	if end, ledger := w.recorded(); end != wantEnd || ledger != wantLedger {
		w.Errorf("committed %v: recorded is %q beside %q, want %q beside %q", commits, end, ledger,
			wantEnd, wantLedger)
	}
}

// TX-006, TX-007: a run that was lost is an ErrRunLost of both packages, and its transaction cannot
// commit.
func TestLostRun(t *testing.T) {
	w := newWorld(t)
	w.exec("DELETE FROM leases")
	ctx := t.Context()
	tx, err := w.conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "INSERT INTO ledger VALUES ('lost')"); err != nil {
		t.Fatal(err)
	}
	lost := pgtx.CompleteTx(ctx, pgtx.PGX(tx).InSchema(w.schema), run, nil)
	if !errors.Is(lost, pgtx.ErrRunLost) || !errors.Is(lost, client.ErrRunLost) ||
		!strings.Contains(lost.Error(), "MILLRACE_RUN_LOST") {
		t.Errorf("got %v", lost)
	}
	if err := tx.Commit(ctx); err == nil {
		t.Error("the transaction of a lost run was committed")
	}
	for name, end := range map[string]func(pgtx.Tx) error{
		"complete": func(tx pgtx.Tx) error { return pgtx.CompleteTx(ctx, tx, run, nil) },
		"fail": func(tx pgtx.Tx) error {
			return pgtx.FailTx(ctx, tx, run, errors.New("no"), true)
		},
	} {
		if err := w.single(end); !errors.Is(err, pgtx.ErrRunLost) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, ledger := w.recorded(); ledger != "" {
		t.Errorf("the ledger has %q", ledger)
	}
}

// single makes a call in a transaction of its own, and commits it where it has no error.
func (w *world) single(call func(pgtx.Tx) error) error {
	w.Helper()
	tx, err := w.db.BeginTx(w.Context(), nil)
	if err != nil {
		w.Fatal(err)
	}
	defer tx.Rollback()
	if err := call(pgtx.SQL(tx).InSchema(w.schema)); err != nil {
		return err
	}
	return tx.Commit()
}

// TX-006: a savepoint that is rolled back takes what it has caught with it. What came before the
// call commits although the run is lost, and without a recorded end although the run is not: so
// the call belongs in the outermost transaction.
func TestSavepoint(t *testing.T) {
	for name, isLost := range map[string]bool{"a run that is lost": true, "the current run": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if isLost {
				w.exec("DELETE FROM leases")
			}
			ctx := t.Context()
			tx, err := w.conn.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			_, insertErr := tx.Exec(ctx, "INSERT INTO ledger VALUES ('before')")
			nested, beginErr := tx.Begin(ctx)
			if err := errors.Join(insertErr, beginErr); err != nil {
				t.Fatal(err)
			}
			ended := pgtx.CompleteTx(ctx, pgtx.PGX(nested).InSchema(w.schema), run, nil)
			if errors.Is(ended, pgtx.ErrRunLost) != isLost {
				t.Errorf("the call returns %v", ended)
			}
			if err := errors.Join(nested.Rollback(ctx), tx.Commit(ctx)); err != nil {
				t.Fatal(err)
			}
			if end, ledger := w.recorded(); end != "" || ledger != "before" {
				t.Errorf("recorded is %q beside %q, want nothing beside what came before", end, ledger)
			}
		})
	}
}

// TX-007: what the functions refuse is ErrInvalid; what an error says is never a reason to refuse
// it.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	complete := func(run string, result json.RawMessage) error {
		return w.single(func(tx pgtx.Tx) error {
			return pgtx.CompleteTx(t.Context(), tx, run, result)
		})
	}
	large := json.RawMessage(`"` + strings.Repeat("x", 4<<20) + `"`)
	if err := complete(run, large); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a large result: got %v", err)
	}
	for _, bad := range []string{"", "no run", run + "'"} {
		err := complete(bad, nil)
		if err == nil || errors.Is(err, pgtx.ErrRunLost) {
			t.Errorf("the run %q: got %v", bad, err)
		}
	}
	if err := complete(run, json.RawMessage("{")); err == nil {
		t.Error("no JSON was taken as a result")
	}
	cause := &client.JobError{Err: errors.New("a\x00b\xff" + strings.Repeat("ü", 10_000)),
		Type: strings.Repeat("t", 1000)}
	if err := w.single(func(tx pgtx.Tx) error {
		return pgtx.FailTx(t.Context(), tx, run, cause, false)
	}); err != nil {
		t.Fatal(err)
	}
	if end, _ := w.recorded(); !strings.HasPrefix(end, "f f a\uFFFDb\uFFFDüü") {
		t.Errorf("recorded is %.100q", end)
	}
}

// The functions are in the schema millrace unless InSchema says otherwise.
func TestSchema(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		"":           `SELECT "millrace".complete($1::text::uuid, $2::text::json)`,
		`odd"; DROP`: `SELECT "odd""; DROP".complete($1::text::uuid, $2::text::json)`,
	} {
		var got recorder
		tx := pgtx.PGX(&got)
		if schema != "" {
			tx = tx.InSchema(schema)
		}
		if err := pgtx.CompleteTx(t.Context(), tx, run, nil); err != nil || string(got) != want {
			t.Errorf("got %s, want %s: %v", string(got), want, err)
		}
	}
}

// recorder is a transaction that keeps its last query.
type recorder string

func (r *recorder) QueryRow(_ context.Context, query string, _ ...any) *recorder {
	*r = recorder(query)
	return r
}

func (r *recorder) Scan(...any) error { return nil }

func (r *recorder) Commit(context.Context) error { return nil }
