package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/store/storetest"
)

// TestFaultyDriver: a driver that fails at the worst moments.
func TestFaultyDriver(t *testing.T) {
	storetest.RunFaulty(t, func(tb testing.TB, clock func() time.Time,
		f *storetest.Faults) store.Store {
		db, err := sql.Open("sqlite", ":memory:")
		if err != nil {
			tb.Fatal(err)
		}
		db.Close()
		sql.Register(tb.Name(), faultyDriver{db.Driver(), f})
		path := filepath.Join(tb.TempDir(), "millrace.db")
		return mustOpen(tb, sqlite.WithDriver(sqlite.Config{Path: path, Now: clock}, tb.Name()))
	})
}

var errFault = errors.New("the driver was made to fail")

type faultyDriver struct {
	driver.Driver
	faults *storetest.Faults
}

// Open implements driver.Driver.
func (d faultyDriver) Open(name string) (driver.Conn, error) {
	c, err := d.Driver.Open(name)
	if err != nil {
		return nil, err
	}
	return &faultyConn{c.(conn), d.faults}, nil
}

// conn is what SQLite's connections are.
type conn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

type faultyConn struct {
	conn
	faults *storetest.Faults
}

// PrepareContext implements driver.ConnPrepareContext: all that a store does is prepared.
func (c *faultyConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	s, err := c.conn.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return &faultyStmt{s.(stmt), text, c}, nil
}

type stmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type faultyStmt struct {
	stmt
	text string
	conn *faultyConn
}

// ExecContext implements driver.StmtExecContext.
func (s *faultyStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result,
	error) {
	faults := s.conn.faults
	switch {
	case strings.HasPrefix(s.text, "BEGIN") && faults.Begins():
		return nil, errFault
	case s.text == "COMMIT" && faults.Commits():
		_, err := s.conn.conn.ExecContext(ctx, "ROLLBACK", nil)
		return nil, errors.Join(errFault, err)
	}
	return s.stmt.ExecContext(ctx, args)
}

// QueryContext implements driver.StmtQueryContext.
func (s *faultyStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows,
	error) {
	rows, err := s.stmt.QueryContext(ctx, args)
	if err != nil || strings.HasPrefix(s.text, "PRAGMA") { // it begins a transaction
		return rows, err
	}
	return &faultyRows{rows, s.conn.faults, s.conn.faults.Result()}, nil
}

type faultyRows struct {
	driver.Rows
	faults *storetest.Faults
	result int
}

// Next implements driver.Rows.
func (r *faultyRows) Next(dest []driver.Value) error {
	err := r.Rows.Next(dest)
	if err == nil && r.faults.Row(r.result) {
		return errFault
	}
	return err
}
