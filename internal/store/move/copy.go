package move

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// A table is copied in the order of its key, in batches. A batch and the key of its last row are
// written in one transaction of the target, so the mark of the target always says how far the copy
// has come, and a move that was killed reads on behind that key:
//
//	read    rows of the source behind the key, as one statement for all that are left
//	add     collects them until a batch is full
//	store   the rows, and the key, into the target

// A batch ends after maxBatchRows rows or maxBatchBytes bytes, whichever comes first.
const (
	maxBatchRows  = 2000
	maxBatchBytes = 4 << 20
)

// copyTable copies the rows of a table behind those that the target has already.
func (m *mover) copyTable(ctx context.Context, t *table) error {
	if m.target.Tables[t.name].Done {
		return nil
	}
	rows, err := m.read(ctx, t, m.target.Tables[t.name].Last)
	if err != nil {
		return err
	}
	defer rows.Close()
	b := batch{table: t, columns: m.columns[t.name]}
	for rows.Next() {
		if err := b.add(rows); err != nil {
			return err
		}
		if len(b.rows) < maxBatchRows && b.bytes < maxBatchBytes {
			continue
		}
		if err := m.store(ctx, &b, false); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return m.store(ctx, &b, true)
}

// read reads the rows of a table of the source behind a key, in the order of the key.
func (m *mover) read(ctx context.Context, t *table, last []any) (*sql.Rows, error) {
	condition, args := t.condition(m.SkipKinds)
	after, key := "", strings.Join(t.key, ",")
	if len(last) > 0 {
		placeholders := make([]string, len(last))
		for i, v := range last {
			args = append(args, v)
			placeholders[i] = fmt.Sprintf("$%d", len(args))
		}
		after = "(" + key + ")>(" + strings.Join(placeholders, ",") + ")"
	}
	return m.From.Conn.QueryContext(ctx, "SELECT "+strings.Join(m.columns[t.name], ",")+" FROM "+
		t.name+where(condition, after)+" ORDER BY "+key, args...)
}

// batch is rows of a table on their way.
type batch struct {
	table   *table
	columns []string
	rows    [][]any
	bytes   int
}

// add reads a row.
func (b *batch) add(rows *sql.Rows) error {
	row, err := scanRow(rows, len(b.columns))
	if err != nil {
		return err
	}
	for _, v := range row {
		switch v := v.(type) {
		case []byte:
			b.bytes += len(v)
		case string:
			b.bytes += len(v)
		}
	}
	b.rows = append(b.rows, row)
	return nil
}

// last returns the key of the last row.
func (b *batch) last() []any {
	key := make([]any, len(b.table.key))
	for i, name := range b.table.key {
		key[i] = b.rows[len(b.rows)-1][slices.Index(b.columns, name)]
	}
	return key
}

// scanRow reads a row of n columns: int64, string, []byte or nil, which is NULL.
func scanRow(rows *sql.Rows, n int) ([]any, error) {
	row, into := make([]any, n), make([]any, n)
	for i := range row {
		into[i] = &row[i]
	}
	if err := rows.Scan(into...); err != nil {
		return nil, err
	}
	for i, v := range row {
		if b, ok := v.([]byte); ok && b == nil { // SQLite's driver has this for no bytes
			row[i] = []byte{}
		}
	}
	return row, nil
}

// store writes a batch into the target, with how far the table has come, and empties it.
func (m *mover) store(ctx context.Context, b *batch, done bool) error {
	at := position{Last: m.target.Tables[b.table.name].Last, Done: done}
	if len(b.rows) > 0 {
		at.Last = b.last()
	}
	err := m.To.update(ctx, func() error {
		if err := m.To.Insert(ctx, b.table.name, b.columns, b.rows); err != nil {
			return err
		}
		m.target.Tables[b.table.name] = at
		return m.To.setMark(ctx, incoming, m.target, m.Now().UnixMicro())
	})
	if err != nil {
		return fmt.Errorf("%s up to the key %v: %w", b.table.name, at.Last, err)
	}
	m.advance(int64(len(b.rows)), "copying "+b.table.name)
	b.rows, b.bytes = b.rows[:0], 0
	return nil
}
