package pgtx_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/client/pgtx"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// TestBehindPgBouncer: behind a PgBouncer in transaction mode transactions of pgx and of
// database/sql submit a job and end a run, or do neither, and a run ends once. PgBouncer before
// 1.21 keeps no prepared statements for its clients, so pgx is told to make none.
func TestBehindPgBouncer(t *testing.T) {
	t.Parallel()
	server := outside.NewPostgres(t)
	urls := map[string]string{"pgx": server.Database("first"), "sql": server.Database("second")}
	pooler := outside.NewPgBouncer(t, server, "pool_mode=transaction")
	const unprepared = "&default_query_exec_mode=exec"
	both := func(t *testing.T, tx pgtx.Tx) error {
		id, err := pgtx.SubmitTx(t.Context(), tx, pgtx.Submission{Contract: "relay",
			Request: json.RawMessage(`{"n":1}`)})
		if err == nil && len(id) != 36 {
			t.Errorf("the request has the id %q", id)
		}
		return errors.Join(err, pgtx.CompleteTx(t.Context(), tx, run, json.RawMessage(`{"m":2}`)))
	}
	check := func(w *world, commits bool) {
		w.Helper()
		wantEnd, wantRequest, wantLedger := "", "", ""
		if commits {
			wantEnd, wantRequest, wantLedger = `t {"m":2}`, `relay {"n":1}`, "order"
		}
		end, ledger := w.recorded()
		request, _ := w.submitted()
		if end != wantEnd || strings.TrimSpace(request) != wantRequest || ledger != wantLedger {
			w.Errorf("committed %v: %q and %q beside %q, want %q and %q beside %q", commits, end,
				request, ledger, wantEnd, wantRequest, wantLedger)
		}
	}
	t.Run("pgx", func(t *testing.T) {
		url := pooler.URL("first", "first") + unprepared
		w := newWorldOn(t, urls["pgx"], url)
		for _, commits := range []bool{false, true} {
			tx, err := w.conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, err = tx.Exec(t.Context(), "INSERT INTO ledger VALUES ($1)", "order")
			err = errors.Join(err, both(t, pgtx.PGX(tx).InSchema(w.schema)))
			if commits {
				err = errors.Join(err, tx.Commit(t.Context()))
			} else {
				err = errors.Join(err, tx.Rollback(t.Context()))
			}
			if err != nil {
				t.Fatal(err)
			}
			check(w, commits)
		}
		// The statements of a second connection are those of the first, and so is its server.
		second, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close(context.Background())
		tx, err := second.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lost := pgtx.CompleteTx(t.Context(), pgtx.PGX(tx).InSchema(w.schema), run, nil)
		if err := tx.Commit(t.Context()); !errors.Is(lost, pgtx.ErrRunLost) || err == nil {
			t.Errorf("a run that has ended: %v; the commit: %v", lost, err)
		}
	})
	t.Run("database/sql", func(t *testing.T) {
		w := newWorldOn(t, urls["sql"], pooler.URL("second", "second")+unprepared)
		for _, commits := range []bool{false, true} {
			tx, err := w.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = tx.Exec("INSERT INTO ledger VALUES ($1)", "order")
			err = errors.Join(err, both(t, pgtx.SQL(tx).InSchema(w.schema)))
			if commits {
				err = errors.Join(err, tx.Commit())
			} else {
				err = errors.Join(err, tx.Rollback())
			}
			if err != nil {
				t.Fatal(err)
			}
			check(w, commits)
		}
		if lost := w.single(func(tx pgtx.Tx) error {
			return pgtx.CompleteTx(t.Context(), tx, run, nil)
		}); !errors.Is(lost, pgtx.ErrRunLost) {
			t.Errorf("a run that has ended: %v", lost)
		}
	})
}
