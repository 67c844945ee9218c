package pgtx

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/client"
)

// ErrRunLost means that the run is not its job's current one any longer: it was lost, canceled or
// replaced, or it has ended already, perhaps in the same transaction. The caller must roll back the
// transaction. PostgreSQL refuses to commit it, unless the call was made under a savepoint. If the
// answer to a COMMIT was lost and the caller tries again, ErrRunLost may also mean that the first
// transaction has ended the run. It is [client.ErrRunLost].
var ErrRunLost = client.ErrRunLost

// Tx is a transaction in which the functions of this package run their statements. [PGX] and [SQL]
// make one. The caller begins and ends the transaction.
type Tx struct {
	queryRow func(ctx context.Context, query string, args []any) Row
	schema   string // of the functions
}

// Row is the row that a query has returned. The rows of pgx and of database/sql implement it.
type Row interface {
	Scan(dest ...any) error
}

// PGXTx is a transaction of pgx, whose queries return rows of type R. The types pgx.Tx of all
// versions implement it. A connection or a pool has no Commit and does not, because each call on it
// would be a transaction of its own.
type PGXTx[R Row] interface {
	QueryRow(ctx context.Context, query string, args ...any) R
	Commit(ctx context.Context) error
}

// SQLTx is a transaction of database/sql, whose queries return rows of type R. A *sql.Tx implements
// it. A *sql.Conn or a *sql.DB has no Commit and does not, because each call on it would be a
// transaction of its own.
type SQLTx[R Row] interface {
	QueryRowContext(ctx context.Context, query string, args ...any) R
	Commit() error
}

// PGX returns a transaction of pgx as a Tx. It must be the outermost transaction: one that was
// begun within another is only a savepoint.
func PGX[R Row](tx PGXTx[R]) Tx {
	return newTx(func(ctx context.Context, query string, args []any) Row {
		return tx.QueryRow(ctx, query, args...)
	})
}

// SQL returns a transaction of database/sql as a Tx.
func SQL[R Row](tx SQLTx[R]) Tx {
	return newTx(func(ctx context.Context, query string, args []any) Row {
		return tx.QueryRowContext(ctx, query, args...)
	})
}

func newTx(queryRow func(context.Context, string, []any) Row) Tx {
	return Tx{queryRow: queryRow, schema: "millrace"}
}

// InSchema returns the transaction for a store whose tables are in a schema of their own. The
// functions of such a store are in that schema. Otherwise the tables are in the schema public and
// the functions in the schema millrace.
func (t Tx) InSchema(name string) Tx {
	t.schema = name
	return t
}

// call runs a function of the store and scans what it returns.
func (t Tx) call(ctx context.Context, function, parameters string, dest any, args ...any) error {
	schema := `"` + strings.ReplaceAll(t.schema, `"`, `""`) + `"`
	query := "SELECT " + schema + "." + function + "(" + parameters + ")"
	err := t.queryRow(ctx, query, args).Scan(dest)
	if err != nil {
		return asError("millrace."+function, err)
	}
	return nil
}

// kinds maps the SQLSTATE of an error of the functions to its kind.
var kinds = map[string]error{"MR001": ErrRunLost, "MR002": client.ErrInvalid}

// asError wraps the error of a call, with its kind if a function of the store has raised it. The
// errors of pgx and of lib/pq have a method SQLState.
func asError(op string, err error) error {
	var raised interface{ SQLState() string }
	if !errors.As(err, &raised) || kinds[raised.SQLState()] == nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return fmt.Errorf("%s: %w: %w", op, kinds[raised.SQLState()], err)
}
