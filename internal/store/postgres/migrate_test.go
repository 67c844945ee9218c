package postgres_test

import (
	"testing"

	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/outside"
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

// TestMigrationMeetsNode: a migration and a transaction of a node of an older version do not wait
// for each other, in whichever order the node locks its tables.
func TestMigrationMeetsNode(t *testing.T) {
	t.Parallel()
	for _, tables := range [][2]string{
		{"finished", "counts"}, {"counts", "jobs"}, {"jobs", "queues"}} {
		t.Run(tables[0], func(t *testing.T) {
			t.Parallel()
			meetNode(t, tables[0], tables[1])
		})
	}
}

// meetNode opens a store of an older version while a transaction of a node writes to a table first,
// and to a second one when the migration waits for it.
func meetNode(t *testing.T, first, second string) {
	server := outside.NewPostgres(t)
	url := server.URL("postgres", "postgres")
	db := pgtest.DB(t, url)
	(&storetest.OldSchema{Schema: postgres.Schema, DB: db}).Migrate(t, 9) // version 13
	node, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer node.Rollback()
	lock := func(statement string) {
		t.Helper()
		if _, err := node.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	lock("SET LOCAL deadlock_timeout='1min'") // so that it is the migration that finds the deadlock
	lock("LOCK TABLE " + first + " IN ROW EXCLUSIVE MODE")
	var log lines
	opened := make(chan error, 1)
	go func() {
		s, err := postgres.Open(t.Context(), postgres.Config{URL: url, Log: log.logger(), Conns: 4})
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	testkit.WaitUntil(t, "the migration to wait for the table "+first, func() bool {
		var waits bool
		if err := db.QueryRow("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND "+
			"relation=$1::regclass)", first).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits
	})
	lock("LOCK TABLE " + second + " IN ROW EXCLUSIVE MODE")
	if err := node.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := testkit.Receive(t, "the start", opened); err != nil {
		t.Error(err)
	}
}
