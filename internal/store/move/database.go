package move

import (
	"context"
	"database/sql"

	"github.com/millrace/millrace/internal/job"
)

// Database is one of the two databases of a move. Its functions run on its only connection, so one
// at a time.
type Database struct {
	Name string // for people, without a password
	Conn *sql.Conn
	// Columns selects the names of the tables of the store and of their columns.
	Columns string
	// Pending is what the other kind of database has no table for. None of it may wait.
	Pending []Pending
	// Running returns the nodes that run, by their records of a kind. It is nil for a database
	// whose lock no process but one can have.
	Running func(ctx context.Context, kind string) ([]string, error)
	// Insert stores rows of a table.
	Insert func(ctx context.Context, table string, columns []string, rows [][]any) error
	// LastNumber and SetLastNumber are about the highest number that a table has ever given to a
	// row.
	LastNumber    func(ctx context.Context, table string) (int64, error)
	SetLastNumber func(ctx context.Context, table string, n int64) error
	// Close closes the connection and releases the lock that keeps others out.
	Close func() error
}

// Pending is a kind of rows that a move refuses to leave behind.
type Pending struct {
	Count string // the statement that counts them
	Text  string // what they are, and what to do about them
}

// refused is the error of a move that must not begin or end: nothing is wrong with the databases
// themselves.
func refused(msg string) error {
	return &job.Error{Kind: job.Conflict, Op: "store.move", Msg: msg}
}

// count runs a statement that counts.
func (s *Database) count(ctx context.Context, text string, args ...any) (n int64, err error) {
	err = s.Conn.QueryRowContext(ctx, text, args...).Scan(&n)
	return n, err
}

// update runs fn in a transaction.
func (s *Database) update(ctx context.Context, fn func() error) error {
	if _, err := s.Conn.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	if err := fn(); err != nil {
		_, _ = s.Conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") // the first error counts
		return err
	}
	_, err := s.Conn.ExecContext(ctx, "COMMIT")
	return err
}
