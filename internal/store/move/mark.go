package move

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/job"
)

// markKind is the kind of the records that mark a database, and the others are their keys.
const (
	markKind = "move"
	outgoing = "outgoing" // a move from this database is under way, or was given up
	moved    = "moved"    // everything is elsewhere
	incoming = "incoming" // a move to this database has not ended
)

// mark is the body of such a record. It is stored data.
type mark struct {
	ID          string `json:"id"`    // of the move
	Counterpart string `json:"other"` // the name of the other database
	// Tables is how far the target has come, by table.
	Tables map[string]position `json:"tables,omitempty"`
}

// position is how far a table was copied.
type position struct {
	Last []any `json:"last,omitempty"` // the key of the last row
	Done bool  `json:"done,omitempty"`
}

// CheckOpen fails with ReadOnly where a move of the database has not ended, or has taken all jobs
// elsewhere. Stores call it when they are opened.
func CheckOpen(ctx context.Context, db *sql.DB) error {
	for _, mark := range []struct{ key, msg string }{
		{incoming, "it has a part of what is moved from %s: run that 'millrace migrate' again, " +
			"which ends it, or begin with an empty store"},
		{moved, "its jobs were moved to %s: start servers on that store"},
	} {
		found, err := readMark(ctx, db.QueryRowContext, mark.key)
		if err != nil {
			return err
		}
		if found != nil {
			return &job.Error{Kind: job.ReadOnly, Op: "store.open",
				Msg: fmt.Sprintf(mark.msg, found.Counterpart)}
		}
	}
	return nil
}

// HasMoved reports whether the jobs of a database were moved elsewhere.
func HasMoved(ctx context.Context, db *sql.DB) (bool, error) {
	found, err := readMark(ctx, db.QueryRowContext, moved)
	return found != nil, err
}

// queryRow is the method of a connection or a pool of them.
type queryRow = func(ctx context.Context, text string, args ...any) *sql.Row

// readMark returns a mark of a database; nil if it has none.
func readMark(ctx context.Context, query queryRow, key string) (*mark, error) {
	var body []byte
	err := query(ctx, "SELECT body FROM records WHERE kind=$1 AND key=$2", markKind, key).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := &mark{}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("the mark of a move cannot be read: %w", err)
	}
	for _, table := range slices.Sorted(maps.Keys(m.Tables)) {
		p := m.Tables[table]
		for i, v := range p.Last {
			if n, ok := v.(json.Number); ok {
				if p.Last[i], err = n.Int64(); err != nil {
					return nil, err
				}
			}
		}
	}
	return m, nil
}

// mark returns a mark of the database; nil if it has none.
func (s *Database) mark(ctx context.Context, key string) (*mark, error) {
	return readMark(ctx, s.Conn.QueryRowContext, key)
}

// setMark writes a mark. now is in microseconds.
func (s *Database) setMark(ctx context.Context, key string, m *mark, now int64) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = s.Conn.ExecContext(ctx, "INSERT INTO records "+
		"(kind,key,owner,body,created_at,updated_at,expires_at) VALUES ($1,$2,'',$3,$4,$4,0) "+
		"ON CONFLICT (kind,key) DO UPDATE SET body=excluded.body, updated_at=excluded.updated_at",
		markKind, key, body, now)
	return err
}

// removeMark removes a mark.
func (s *Database) removeMark(ctx context.Context, key string) error {
	_, err := s.Conn.ExecContext(ctx, "DELETE FROM records WHERE kind=$1 AND key=$2", markKind, key)
	return err
}
