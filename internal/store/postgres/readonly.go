package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/millrace/millrace/internal/store"
)

// readOnly is the parameter that keeps transactions from writing.
const readOnly = "default_transaction_read_only"

// Views reads a database and changes nothing.
type Views struct{ store *Store }

// OpenViews connects for views alone. It fails with ReadOnly if the database has another version
// of the schema.
func OpenViews(ctx context.Context, c Config) (*Views, error) {
	c.Conns = 1
	c = c.withDefaults()
	cfg, err := parse(c.URL)
	if err != nil {
		return nil, translate("store.open", err)
	}
	cfg.RuntimeParams[readOnly] = "on"
	r, err := findRoute(ctx, cfg)
	if err != nil {
		return nil, translate("store.open", err)
	}
	db := stdlib.OpenDB(*r.config)
	db.SetMaxOpenConns(c.Conns)
	if err := check(ctx, db); err != nil {
		db.Close()
		return nil, translate("store.open", err)
	}
	s := &Store{config: c, route: r, db: db, maxConns: c.Conns, slots: newSlots(0, 1),
		watermarks: newWatermarks(c.SlowRead)}
	return &Views{s}, nil
}

// check fails with ReadOnly if the database has another version of the schema.
func check(ctx context.Context, db *sql.DB) error {
	s, err := schemaOf(ctx, db)
	if err != nil {
		return err
	}
	return s.Check(ctx, db)
}

// View is documented at the port.
func (v *Views) View(ctx context.Context, fn func(store.Reader) error) error {
	return v.store.View(ctx, fn)
}

// Close closes the connection.
func (v *Views) Close() error { return translate("store.close", v.store.db.Close()) }
