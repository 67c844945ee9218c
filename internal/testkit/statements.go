package testkit

import (
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/store/sqlstore"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// StatementLog has the statements that a store has run since it was last emptied.
type StatementLog struct {
	mu    sync.Mutex
	names []string
}

// Observe is an sqlstore.Observer. It leaves out the announcements to other nodes, which go out
// beside the transactions.
func (l *StatementLog) Observe(name string, _ time.Duration, _ error) {
	if name == "NOTIFY" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = append(l.names, name)
}

// Take empties the log and returns what it had.
func (l *StatementLog) Take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := l.names
	l.names = nil
	return names
}

// Databases are the names of the kinds of databases.
var Databases = []string{"sqlite", "postgres"}

// ObservedStore opens an empty store that calls an observer with each of its statements.
func ObservedStore(tb testing.TB, database string, now func() time.Time,
	o sqlstore.Observer) store.Store {
	tb.Helper()
	var s store.Store
	var err error
	if database == "postgres" {
		s, err = postgres.Open(tb.Context(), postgres.Config{URL: pgtest.URL(tb), Now: now,
			Conns: 2, Observe: o, SlowRead: time.Hour})
	} else {
		s, err = sqlite.Open(tb.Context(), sqlite.Config{Path: sqlite.Memory, Now: now, Observe: o})
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}
