package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/move"
)

// database is a kind of database that a node can store its jobs in. A further kind is a package
// besides those of internal/store, a value like sqliteDatabase and postgresDatabase, and a line in
// databases; nothing else asks which kind it is. Errors of its functions do not say where the
// database is.
type database struct {
	kind  string            // as operators see it
	named setting.StoreKind // by the setting store
	// shared is true for a database that several nodes may share. Another one lies in the data
	// directory and belongs to the node that runs there.
	shared    bool
	open      func(context.Context, cli.Process, *nodeSettings, observer) (openedStore, error)
	openViews func(context.Context, cli.Process, *nodeSettings) (views, error)
	// schemaVersion returns version 0 where there is no database yet.
	schemaVersion func(context.Context, *nodeSettings) (have, want int64, err error)
	location      func(*nodeSettings) string // where it is, for people, without a password
	endpoint      func(*nodeSettings) outage.Endpoint
	// place returns where the store is that a flag of a move names, and false for a text that names
	// none of this kind. It is a data directory or a URL, as shared says.
	place func(text string) (at string, isNamed bool)
	// placeForm shows how such a text is written.
	placeForm string
	// placeOf is the text by which place finds the store of the settings.
	placeOf  func(*nodeSettings) string
	openMove func(ctx context.Context, at, name string, isTarget bool) (*move.Database, error)
	// backup copies the database while a server may run, and prepareRestored makes the copy fit for
	// a server; both are nil for a database that has programs of its own for that.
	backup          func(ctx context.Context, s *nodeSettings, to string) error
	prepareRestored func(ctx context.Context, path string) error
}

// openedStore is a store of a node.
type openedStore struct {
	store.Store
	// pool reports how many connections are in use and open, and may be open at most; nil for a
	// database without a pool of them.
	pool func() (inUse, open, limit int)
	// inbox returns the inbox in a transaction or view; nil for a database without one.
	inbox func(store.Reader) engine.Inbox
	// runEnds counts the ends of runs that workers have recorded and that wait, up to a limit, with
	// the time of the oldest; nil for a database without them.
	runEnds func(ctx context.Context, limit int) (int, time.Time, error)
	// version returns the version of the database at low cost.
	version func(context.Context) (engine.Version, error)
}

// versionOf returns what the engine needs of the version of a store.
func versionOf(read func(context.Context) (string, time.Time, error)) func(context.Context) (
	engine.Version, error) {
	return func(ctx context.Context) (v engine.Version, err error) {
		v.Commits, v.Now, err = read(ctx)
		return v, err
	}
}

// observer is called with the name, the duration and the error of each statement, concurrently.
type observer = func(string, time.Duration, error)

// views is a store that was opened for reading alone.
type views interface {
	View(context.Context, func(store.Reader) error) error
	Close() error
}

// databases are the kinds of database; the first is the default.
var databases = []*database{&sqliteDatabase, &postgresDatabase}

// databaseOf returns the kind of database that the settings name.
func databaseOf(s *nodeSettings) *database {
	isNamed := func(d *database) bool { return d.named.Accepts(s.Store.Reveal()) }
	return databases[max(0, slices.IndexFunc(databases, isNamed))]
}

// placeForms shows how the flags of a move name a store of each kind.
func placeForms() string {
	forms := make([]string, len(databases))
	for i, d := range databases {
		forms[i] = d.placeForm
	}
	return strings.Join(forms, ", ")
}

// storeKinds returns how the setting store names the databases.
func storeKinds() []setting.StoreKind {
	kinds := make([]setting.StoreKind, len(databases))
	for i, d := range databases {
		kinds[i] = d.named
	}
	return kinds
}

// openStore opens what the settings name and brings its schema up to date. The caller closes the
// store. An error has the code ExitUnable, but for a wrong log setting.
func openStore(ctx context.Context, p cli.Process, s *nodeSettings, o observer) (openedStore,
	error) {
	opened, err := databaseOf(s).open(ctx, p, s, o)
	return opened, storeError(s, err)
}

// openViews opens the store that the settings name for reading alone; the caller closes it. A store
// with another version of the schema is an error: it is not migrated.
func openViews(ctx context.Context, p cli.Process, s *nodeSettings) (views, error) {
	opened, err := databaseOf(s).openViews(ctx, p, s)
	if err != nil {
		return nil, storeError(s, err)
	}
	return opened, nil
}

// schemaVersion reports the schema of the configured store and the newest that this binary knows.
// It makes no database where there is none, which has version 0.
func schemaVersion(ctx context.Context, s *nodeSettings) (have, want int64, err error) {
	have, want, err = databaseOf(s).schemaVersion(ctx, s)
	return have, want, storeError(s, err)
}

// storeError says in one sentence that the store cannot be opened, and why; nil stays nil. It shows
// the URL of a PostgreSQL without its password.
func storeError(s *nodeSettings, err error) error {
	var coded *cli.ExitError
	if err != nil && !errors.As(err, &coded) {
		return cli.UnableError("the store %s cannot be opened: %s", databaseOf(s).location(s),
			plainError(err))
	}
	return err
}

// plainError is the text of an error without the operation that failed, and with the cause in
// brackets.
func plainError(err error) string {
	var e *job.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	text := cmp.Or(e.Msg, e.Kind.String())
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	return text
}
