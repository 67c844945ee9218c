package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

func openPostgres(tb testing.TB) store.Store { return openPostgresURL(tb, pgtest.URL(tb), nil) }

func openPostgresURL(tb testing.TB, url string, now func() time.Time) store.Store {
	tb.Helper()
	return openPostgresWith(tb, postgres.Config{URL: url, Now: now, Conns: 8})
}

func openPostgresWith(tb testing.TB, c postgres.Config) store.Store {
	tb.Helper()
	s, err := postgres.Open(context.Background(), c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}
