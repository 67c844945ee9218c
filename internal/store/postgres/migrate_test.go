package postgres_test

import (
	"strings"
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

// TestMigrationMeetsNode: a migration waits for a transaction of a node of an older version, which
// waits for no table then. A migration that is ended because they wait for each other, as the node
// locks in another order, is run again, and the start goes on.
func TestMigrationMeetsNode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first, second string
		isRunAgain    bool
	}{
		{"finished", "counts", false},
		{"jobs", "counts", false},
		{"counts", "jobs", true},
	} {
		t.Run(c.first, func(t *testing.T) {
			t.Parallel()
			meetNode(t, c.first, c.second, c.isRunAgain)
		})
	}
}

// meetNode opens a store of an older version while a transaction of a node writes to a table first,
// and to a second one when the migration waits for it.
func meetNode(t *testing.T, first, second string, isRunAgain bool) {
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
	if text := log.String(); strings.Contains(text, "is run again") != isRunAgain {
		t.Errorf("the log is %s", text)
	}
}
