package testkit

import (
	"context"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// Database is a store and the clock that it reads. A test that gets one runs unchanged on every
// database.
type Database struct {
	Clock *Clock
	Store store.Store
	// Reopen opens another connection to the same database; nil where there is none.
	Reopen func(testing.TB) store.Store
	// URL names a PostgreSQL database, with its schema.
	URL string
}

// InMemory makes a SQLite database in memory. It has no Reopen: the database is gone with its only
// store.
func InMemory(tb testing.TB) Database {
	tb.Helper()
	clock := NewClock()
	return Database{Clock: clock, Store: MemoryStore(tb, clock.Now)}
}

// OnPostgres makes a schema of its own in PostgreSQL. Tests that run at the same time do not see
// each other. Without a PostgreSQL server the test is skipped.
func OnPostgres(tb testing.TB) Database {
	tb.Helper()
	clock := NewClock()
	url := pgtest.URL(tb)
	open := func(tb testing.TB) store.Store {
		tb.Helper()
		// Tests of many packages and nodes share the connections of one server.
		s, err := postgres.Open(context.Background(),
			postgres.Config{URL: url, Now: clock.Now, Conns: 8})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { s.Close() })
		return s
	}
	return Database{Clock: clock, Store: open(tb), Reopen: open, URL: url}
}

// OnEveryStore runs a test on SQLite and on PostgreSQL, each with a database of its own. The test
// is parallel to others; its two runs follow each other.
func OnEveryStore(t *testing.T, test func(t *testing.T, p Database)) {
	t.Helper()
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { test(t, InMemory(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, OnPostgres(t)) })
}

// RunMaintenance expires and promotes jobs, as the leader does while time passes. Publishing and
// pruning are not among it; tests of these call the engine's verbs.
func RunMaintenance(tb testing.TB, e *engine.Engine) {
	tb.Helper()
	if _, err := e.Expire(context.Background()); err != nil {
		tb.Fatal(err)
	}
	if _, err := e.Promote(context.Background()); err != nil {
		tb.Fatal(err)
	}
}

// RunConcurrently calls fn n times at once and returns the results by index. All calls begin
// together, so that they meet in the same transactions as often as possible.
func RunConcurrently[T any](n int, fn func(i int) T) []T {
	all := make([]T, n)
	var calls sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		calls.Go(func() {
			<-start
			all[i] = fn(i)
		})
	}
	close(start)
	calls.Wait()
	return all
}
