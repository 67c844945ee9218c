package postgres_test

import (
	"testing"

	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

func TestMigrationsKeepJobs(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	storetest.RunMigrations(t, storetest.OldSchema{
		Schema: postgres.Schema,
		DB:     pgtest.DB(t, url),
		Open:   func() store.Store { return mustOpen(t, postgres.Config{URL: url, Conns: 4}) },
	})
}

func TestLayoutKeepsJobs(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	storetest.RunLayout(t, storetest.OldSchema{
		Schema: postgres.Schema,
		DB:     pgtest.DB(t, url),
		Open:   func() store.Store { return mustOpen(t, postgres.Config{URL: url, Conns: 4}) },
	})
}
