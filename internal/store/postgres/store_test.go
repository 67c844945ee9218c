package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

func TestStore(t *testing.T) { storetest.Run(t, open) }

func open(tb testing.TB, clock func() time.Time) store.Store {
	return mustOpen(tb, postgres.Config{URL: pgtest.URL(tb), Now: clock, Conns: 8})
}

func mustOpen(tb testing.TB, c postgres.Config) *postgres.Store {
	tb.Helper()
	s, err := postgres.Open(context.Background(), c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

func BenchmarkStore(b *testing.B) { storetest.Bench(b, open) }
