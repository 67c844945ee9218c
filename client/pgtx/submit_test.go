package pgtx_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/client/pgtx"
)

// submitted returns what the inbox has, and what the ledger has beside it.
func (w *world) submitted() (requests, ledger string) {
	w.Helper()
	if err := w.db.QueryRow(`SELECT coalesce(string_agg(concat_ws(' ', contract, request,
		idempotency_key, owner, job_type), ',' ORDER BY number), '') FROM inbox`).Scan(
		&requests); err != nil {
		w.Fatal(err)
	}
	_, ledger = w.recorded()
	return requests, ledger
}

// TX-007: what is written in a transaction and a submission are committed together or not at all,
// in the transactions of pgx and in those of database/sql.
func TestSubmitTx(t *testing.T) {
	full := pgtx.Submission{Contract: "fetchbox", Request: json.RawMessage(`{"n": 1.0, "t":"it's"}`),
		IdempotencyKey: "key", Owner: "tenant", JobType: "type"}
	bare := pgtx.Submission{Contract: "relay", Request: json.RawMessage(`{}`)}
	const want = `fetchbox {"n": 1.0, "t":"it's"} key tenant type,relay {}  `
	submit := func(ctx context.Context, tx pgtx.Tx) error {
		first, err := pgtx.SubmitTx(ctx, tx, full)
		if err != nil {
			return err
		}
		again, err := pgtx.SubmitTx(ctx, tx, full)
		if err != nil || again != first || len(first) != 36 {
			return errors.Join(err, errors.New("TX-003 the same key has the ids "+first+", "+again))
		}
		_, err = pgtx.SubmitTx(ctx, tx, bare)
		return err
	}
	check := func(w *world, wantRequests, wantLedger string, err error) {
		w.Helper()
		requests, ledger := w.submitted()
		if err != nil || strings.TrimSpace(requests) != strings.TrimSpace(wantRequests) ||
			ledger != wantLedger {
			w.Errorf("TX-007 the inbox has %q beside %q, want %q beside %q: %v", requests, ledger,
				wantRequests, wantLedger, err)
		}
	}
	t.Run("pgx", func(t *testing.T) {
		w := newWorld(t)
		for _, commits := range []bool{false, true} {
			tx, err := w.conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, err = tx.Exec(t.Context(), "INSERT INTO ledger VALUES ('order')")
			err = errors.Join(err, submit(t.Context(), pgtx.PGX(tx).InSchema(w.schema)))
			if !commits {
				check(w, "", "", errors.Join(err, tx.Rollback(t.Context())))
				continue
			}
			check(w, want, "order", errors.Join(err, tx.Commit(t.Context())))
		}
	})
	t.Run("database/sql", func(t *testing.T) {
		w := newWorld(t)
		for _, commits := range []bool{false, true} {
			tx, err := w.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = tx.Exec("INSERT INTO ledger VALUES ('order')")
			err = errors.Join(err, submit(t.Context(), pgtx.SQL(tx).InSchema(w.schema)))
			if !commits {
				check(w, "", "", errors.Join(err, tx.Rollback()))
				continue
			}
			check(w, want, "order", errors.Join(err, tx.Commit()))
		}
	})
}

// TX-007: what the function refuses is ErrInvalid, and its transaction cannot commit.
func TestSubmitTxRefuses(t *testing.T) {
	w := newWorld(t)
	submit := func(s pgtx.Submission) error {
		return w.single(func(tx pgtx.Tx) error {
			_, err := pgtx.SubmitTx(t.Context(), tx, s)
			return err
		})
	}
	object := json.RawMessage("{}")
	for _, wrong := range []pgtx.Submission{{Request: object},
		{Contract: "relay", Request: json.RawMessage("[]")},
		{Contract: "relay", Request: object, IdempotencyKey: strings.Repeat("k", 256)}} {
		if err := submit(wrong); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%+v: got %v", wrong, err)
		}
	}
	for _, malformed := range []string{"", "{", "{}x"} {
		err := submit(pgtx.Submission{Contract: "relay", Request: json.RawMessage(malformed)})
		if err == nil || errors.Is(err, client.ErrInvalid) {
			t.Errorf("%q was taken as a request, or has the wrong error: %v", malformed, err)
		}
	}
	tx, err := w.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("INSERT INTO ledger VALUES ('order')"); err != nil {
		t.Fatal(err)
	}
	if _, err := pgtx.SubmitTx(t.Context(), pgtx.SQL(tx).InSchema(w.schema),
		pgtx.Submission{Contract: "relay"}); err == nil {
		t.Error("a submission without a request was taken")
	}
	if err := tx.Commit(); err == nil {
		t.Error("a transaction with a submission that was refused has committed")
	}
	if requests, ledger := w.submitted(); requests != "" || ledger != "" {
		t.Errorf("the inbox has %q beside %q", requests, ledger)
	}
	if err := w.single(func(tx pgtx.Tx) error {
		_, err := pgtx.SubmitTx(t.Context(), tx.InSchema("nobody"),
			pgtx.Submission{Contract: "relay", Request: object})
		return err
	}); err == nil {
		t.Error("a schema that there is not was taken")
	}
}

// An order is stored and its invoice submitted together.
func ExampleSubmitTx() {
	var pool *sql.DB // of the shop, on the PostgreSQL of the server
	order := func(ctx context.Context, id string) error {
		tx, err := pool.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", id); err != nil {
			return err
		}
		request, err := json.Marshal(map[string]any{"queue": "invoices", "id": id, "timeout": 60,
			"payload": map[string]string{"order": id}})
		if err != nil {
			return err
		}
		if _, err := pgtx.SubmitTx(ctx, pgtx.SQL(tx), pgtx.Submission{Contract: "relay",
			Request: request, IdempotencyKey: "order-" + id}); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = order
}
