package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Views reads a database that another process may have open for writing. It changes nothing. It
// has one connection, so its views run one after another.
type Views struct{ store *Store }

// OpenViews opens a database file for views alone. It fails with NotFound if there is no such
// file, and with ReadOnly if the file has another version of the schema.
func OpenViews(ctx context.Context, c Config) (*Views, error) {
	if c.Now == nil {
		return nil, errors.New("sqlite: Now is required")
	}
	c.Observe = c.Observe.WithKinds(translate)
	if _, err := os.Stat(c.Path); errors.Is(err, fs.ErrNotExist) {
		return nil, &job.Error{Kind: job.NotFound, Op: "store.open",
			Msg: "there is no database " + c.Path}
	}
	c.viewsOnly = true
	db, err := sql.Open("sqlite", readerDSN(c))
	if err != nil {
		return nil, translate("store.open", err)
	}
	defer db.Close()
	if err := checkVersion(ctx, db); err != nil {
		return nil, translate("store.open", err)
	}
	if err := schema.Check(ctx, db); err != nil {
		return nil, translate("store.open", err)
	}
	s := &Store{config: c, readers: make(chan *session, 1), stopped: make(chan struct{})}
	s.readers <- nil // opened when it is first needed
	return &Views{s}, nil
}

// View is documented at the port.
func (v *Views) View(ctx context.Context, fn func(store.Reader) error) error {
	return v.store.View(ctx, fn)
}

// Close closes the connection.
func (v *Views) Close() error {
	v.store.closing.Do(func() {
		close(v.store.stopped)
		if r := <-v.store.readers; r != nil {
			r.close()
		}
	})
	return nil
}
