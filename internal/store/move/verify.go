package move

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
)

// Nothing is closed before both databases were read once more, whole, and compared: what a driver
// or a type of a column might have changed on the way is found before the source is given up. Rows
// are summed up and not compared one by one, so each database is read in whatever order is
// cheapest, at the same time as the other. The sums are added, not combined by exclusive or: so two
// rows that are the same do not cancel each other out.

// Sum is the number of rows of a table and their checksum, which does not depend on their order:
// the two databases have different orders of texts.
type Sum struct {
	Rows int64
	hash [2]uint64
}

// String returns the checksum.
func (s Sum) String() string { return fmt.Sprintf("%016x%016x", s.hash[0], s.hash[1]) }

// add adds a row: half of the SHA-256 of its values, each with its type and length, as two sums.
func (s *Sum) add(row []any) error {
	var text []byte
	for _, v := range row {
		switch v := v.(type) {
		case nil:
			text = append(text, 'n')
		case int64:
			text = binary.BigEndian.AppendUint64(append(text, 'i'), uint64(v))
		case string:
			text = binary.BigEndian.AppendUint64(append(text, 't'), uint64(len(v)))
			text = append(text, v...)
		case []byte:
			text = binary.BigEndian.AppendUint64(append(text, 'b'), uint64(len(v)))
			text = append(text, v...)
		default:
			return fmt.Errorf("a column has the type %T, which a move does not know", v)
		}
	}
	hash := sha256.Sum256(text)
	s.Rows++
	s.hash[0] += binary.BigEndian.Uint64(hash[:8])
	s.hash[1] += binary.BigEndian.Uint64(hash[8:16])
	return nil
}

// sum reads a table and calls each after each row.
func (t *table) sum(ctx context.Context, s *Database, columns, skipKinds []string,
	each func()) (sum Sum, err error) {
	condition, args := t.condition(skipKinds)
	rows, err := s.Conn.QueryContext(ctx, "SELECT "+strings.Join(columns, ",")+" FROM "+t.name+
		where(condition), args...)
	if err != nil {
		return sum, err
	}
	defer rows.Close()
	for rows.Next() {
		row, err := scanRow(rows, len(columns))
		if err != nil {
			return sum, err
		}
		if err := sum.add(row); err != nil {
			return sum, err
		}
		each()
	}
	return sum, rows.Err()
}

// verify reads each table on both databases, at the same time, and compares them.
func (m *mover) verify(ctx context.Context) ([]Moved, error) {
	all := make([]Moved, 0, len(tables))
	for i := range tables {
		t := &tables[i]
		sums, err := m.sumsOf(ctx, t)
		if err != nil {
			return nil, fmt.Errorf("verifying %s: %w", t.name, err)
		}
		if sums[0] != sums[1] {
			return nil, refused(fmt.Sprintf("the copy of %s differs: %d rows with the checksum %s "+
				"in the source, %d with %s in the target. The source has changed since the move "+
				"began, or the target: empty the target and begin again", t.name, sums[0].Rows,
				sums[0], sums[1].Rows, sums[1]))
		}
		all = append(all, Moved{Table: t.name, Rows: sums[0].Rows, Checksum: sums[0].String()})
	}
	for _, name := range numbered {
		from, err := m.From.LastNumber(ctx, name)
		if err != nil {
			return nil, err
		}
		to, err := m.To.LastNumber(ctx, name)
		if err != nil {
			return nil, err
		}
		if from != to {
			return nil, refused(fmt.Sprintf("the last number of %s is %d in the source and %d in "+
				"the target", name, from, to))
		}
	}
	return all, nil
}

// sumsOf sums a table up on both databases.
func (m *mover) sumsOf(ctx context.Context, t *table) (sums [2]Sum, err error) {
	columns := m.columns[t.name]
	failed := make(chan error, 1)
	go func() {
		var err error
		sums[1], err = t.sum(ctx, m.To, columns, m.SkipKinds, func() {})
		failed <- err
	}()
	var read int64
	sums[0], err = t.sum(ctx, m.From, columns, m.SkipKinds, func() {
		if read++; read%maxBatchRows == 0 {
			m.advance(maxBatchRows, "verifying "+t.name)
		}
	})
	m.advance(read%maxBatchRows, "verifying "+t.name)
	if other := <-failed; other != nil {
		return sums, other
	}
	return sums, err
}
