package pgtx

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/client"
)

// ErrRunLost means that the run is not its job's current one any longer: it was lost, canceled or
// replaced, or it has ended already, perhaps by the same transaction. The transaction is to be
// rolled back; PostgreSQL does not commit it, unless the call was under a savepoint. After a COMMIT
// whose answer was lost it may also mean that this has ended the run. It is [client.ErrRunLost].
var ErrRunLost = client.ErrRunLost

// Tx is a transaction in which the functions of this package run their statements. [PGX] and [SQL]
// make one; the caller begins and ends the transaction.
type Tx struct {
	queryRow func(ctx context.Context, query string, args []any) Row
	schema   string // of the functions
}

// Row is the row that a query has returned. Those of pgx and of database/sql are such.
type Row interface {
	Scan(dest ...any) error
}

// PGXTx is a transaction whose queries return a row R, as those of a pgx.Tx do. A connection or a
// pool is none: on these a call would be a transaction of its own.
type PGXTx[R Row] interface {
	QueryRow(ctx context.Context, query string, args ...any) R
	Commit(ctx context.Context) error
}

// SQLTx is a transaction whose queries return a row R, as those of a sql.Tx do. A sql.Conn or a
// sql.DB is none: on these a call would be a transaction of its own.
type SQLTx[R Row] interface {
	QueryRowContext(ctx context.Context, query string, args ...any) R
	Commit() error
}

// PGX returns a transaction of pgx, of any version, as a Tx. It is to be the outermost one: one
// that was begun in another is a savepoint.
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

// InSchema returns the transaction for a store whose tables are in a schema of their own and not in
// public: the functions are in that schema then, and not in millrace.
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

// kinds are the errors of the functions by their SQLSTATE.
var kinds = map[string]error{"MR001": ErrRunLost, "MR002": client.ErrInvalid}

// asError returns the error of a call, with its kind if a function of the store has raised it. The
// errors of pgx and of lib/pq have a method that returns their SQLSTATE.
func asError(op string, err error) error {
	var raised interface{ SQLState() string }
	if !errors.As(err, &raised) || kinds[raised.SQLState()] == nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return fmt.Errorf("%s: %w: %w", op, kinds[raised.SQLState()], err)
}
