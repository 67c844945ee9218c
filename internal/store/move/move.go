package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Config is a move. All but Objects and Report is required.
type Config struct {
	From, To *Database
	// SkipKinds are the kinds of records that stay behind, as they are about processes and places.
	SkipKinds []string
	// NodeKind is the kind of the records that nodes write while they run.
	NodeKind string
	ID       string // of this move, where it is a new one
	Now      func() time.Time
	// Objects is called after all checks and before the first row, to copy objects; nil copies
	// none.
	Objects func(context.Context) error
	// Report is called with how much of the work is done, of how much, and with the name of the
	// present step.
	Report func(done, total int64, what string)
}

// Moved is what was moved of a table.
type Moved struct {
	Table    string `json:"table"`
	Rows     int64  `json:"rows"`
	Checksum string `json:"checksum"`
}

// mover is a move that runs. The package comment has its steps, each of which may be run again: it
// looks at what is there and leaves out what was done.
type mover struct {
	Config
	columns     map[string][]string
	target      *mark // of the target
	done, total int64
}

// Run moves everything, or goes on with a move that did not end. An error of kind Conflict is a
// refusal: the databases must not be moved as they are.
func Run(ctx context.Context, c Config) ([]Moved, error) {
	if c.From == nil || c.To == nil || c.ID == "" || c.Now == nil || c.NodeKind == "" {
		return nil, errors.New("move: From, To, ID, Now and NodeKind are required")
	}
	if c.Report == nil {
		c.Report = func(int64, int64, string) {}
	}
	c.SkipKinds = append(slices.Clone(c.SkipKinds), markKind)
	m := &mover{Config: c}
	if err := m.check(ctx); err != nil {
		return nil, err
	}
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	if c.Objects != nil {
		if err := c.Objects(ctx); err != nil {
			return nil, err
		}
	}
	for i := range tables {
		if err := m.copyTable(ctx, &tables[i]); err != nil {
			return nil, fmt.Errorf("copying %w", err)
		}
	}
	if err := m.copyNumbers(ctx); err != nil {
		return nil, err
	}
	all, err := m.verify(ctx)
	if err != nil {
		return nil, err
	}
	return all, m.end(ctx)
}

// check refuses a move while a node runs on a database, or something waits in the source that the
// target has no table for.
func (m *mover) check(ctx context.Context) error {
	for _, s := range []*Database{m.From, m.To} {
		if s.Running == nil {
			continue
		}
		nodes, err := s.Running(ctx, m.NodeKind)
		if err != nil {
			return err
		}
		if len(nodes) > 0 {
			return refused(fmt.Sprintf("servers run on %s: %s. Stop them; one that was killed "+
				"counts for 15 seconds", s.Name, strings.Join(nodes, ", ")))
		}
	}
	for _, p := range m.From.Pending {
		n, err := m.From.count(ctx, p.Count)
		if err != nil {
			return err
		}
		if n > 0 {
			return refused(fmt.Sprintf("%s has %d %s", m.From.Name, n, p.Text))
		}
	}
	return nil
}

// begin finds out whether this is a new move or one to go on with, and marks both databases.
func (m *mover) begin(ctx context.Context) (err error) {
	if m.columns, err = commonColumns(ctx, m.From, m.To); err != nil {
		return err
	}
	source, err := m.sourceMark(ctx)
	if err != nil {
		return err
	}
	if m.target, err = m.To.mark(ctx, incoming); err != nil {
		return err
	}
	switch {
	case m.target == nil && source.isMoved:
		return refused(fmt.Sprintf("%s was moved to %s already", m.From.Name, source.Counterpart))
	case m.target != nil && m.target.ID != source.ID:
		return refused(fmt.Sprintf("%s has a part of another move, from %s: empty it first",
			m.To.Name, m.target.Counterpart))
	case m.target == nil:
		if err := m.checkEmpty(ctx); err != nil {
			return err
		}
		m.target = &mark{ID: source.ID, Counterpart: m.From.Name}
	}
	if m.target.Tables == nil {
		m.target.Tables = map[string]position{}
	}
	if err := m.To.setMark(ctx, incoming, m.target, m.Now().UnixMicro()); err != nil {
		return err
	}
	return m.countRows(ctx)
}

// sourceMark is the mark of the source.
type sourceMark struct {
	*mark
	isMoved bool
}

// sourceMark returns the mark of the source, and makes it for a new move.
func (m *mover) sourceMark(ctx context.Context) (s sourceMark, err error) {
	half, err := m.From.mark(ctx, incoming)
	if err != nil {
		return s, err
	}
	if half != nil {
		return s, refused(fmt.Sprintf("%s has a part of a move from %s, which has not ended",
			m.From.Name, half.Counterpart))
	}
	if s.mark, err = m.From.mark(ctx, moved); err != nil || s.mark != nil {
		s.isMoved = true
		return s, err
	}
	if s.mark, err = m.From.mark(ctx, outgoing); err != nil || s.mark != nil {
		return s, err
	}
	s.mark = &mark{ID: m.ID, Counterpart: m.To.Name}
	return s, m.From.setMark(ctx, outgoing, s.mark, m.Now().UnixMicro())
}

// checkEmpty refuses a target that has rows.
func (m *mover) checkEmpty(ctx context.Context) error {
	for i := range tables {
		n, err := tables[i].count(ctx, m.To, m.SkipKinds)
		if err != nil {
			return err
		}
		if n > 0 {
			return refused(fmt.Sprintf("%s is not empty: the table %s has %d rows", m.To.Name,
				tables[i].name, n))
		}
	}
	return nil
}

// countRows counts the work: each row is copied and verified.
func (m *mover) countRows(ctx context.Context) error {
	for i := range tables {
		n, err := tables[i].count(ctx, m.From, m.SkipKinds)
		if err != nil {
			return err
		}
		m.total += 2 * n
		if n, err = tables[i].count(ctx, m.To, m.SkipKinds); err != nil {
			return err
		}
		m.done += n
	}
	m.advance(0, "copying")
	return nil
}

// advance reports that n more rows are copied or verified.
func (m *mover) advance(n int64, what string) {
	m.done += n
	m.Report(m.done, m.total, what)
}

// copyNumbers has the tables of the target go on above all numbers that the source has given.
func (m *mover) copyNumbers(ctx context.Context) error {
	for _, name := range numbered {
		n, err := m.From.LastNumber(ctx, name)
		if err != nil {
			return err
		}
		if err := m.To.SetLastNumber(ctx, name, n); err != nil {
			return err
		}
	}
	return nil
}

// end closes the source, and opens the target after that. Nodes and producers may have come since
// the beginning, so that is checked again.
func (m *mover) end(ctx context.Context) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	now := m.Now().UnixMicro()
	closed := mark{ID: m.target.ID, Counterpart: m.To.Name}
	if err := m.From.update(ctx, func() error {
		if err := m.From.setMark(ctx, moved, &closed, now); err != nil {
			return err
		}
		return m.From.removeMark(ctx, outgoing)
	}); err != nil {
		return err
	}
	return m.To.removeMark(ctx, incoming)
}
