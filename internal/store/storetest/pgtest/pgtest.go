// Package pgtest gives a test a PostgreSQL schema of its own.
//
// The server is the one of MILLRACE_TEST_POSTGRES, else one on 127.0.0.1:5432 with a database test.
// A test that finds none is skipped, and fails instead where MILLRACE_TEST_REQUIRE=1 says that
// nothing may be skipped.
//
// A schema is much cheaper than a database or a server, so each test has one, and tests run in
// parallel on one server: search_path, in the URL that URL returns, is what keeps them apart.
package pgtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver
)

// guesses are the servers to try when the environment names none.
var guesses = []string{
	"postgres://root@127.0.0.1:5432/test?sslmode=disable",
	"postgres://postgres@127.0.0.1:5432/test?sslmode=disable",
	"postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable",
}

// maxWait bounds the wait for a server that is there and slow.
const maxWait = time.Minute

// server finds a server once for all tests of a binary: the first of the candidates that answers
// within maxWait. It returns the error of the last candidate.
var server = sync.OnceValues(func() (base string, err error) {
	candidates := guesses
	if dsn := os.Getenv("MILLRACE_TEST_POSTGRES"); dsn != "" {
		candidates = []string{dsn}
	}
	for _, c := range candidates {
		var db *sql.DB
		if db, err = sql.Open("pgx", c); err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), maxWait)
		err = db.PingContext(ctx)
		cancel()
		db.Close()
		if err != nil {
			continue
		}
		return c, nil
	}
	return "", err
})

// URL makes a schema with a random name, drops it when the test is over, and returns a URL whose
// connections work in it.
func URL(tb testing.TB) string {
	tb.Helper()
	base, err := server()
	if err != nil {
		if os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
			tb.Fatalf("no PostgreSQL: %v", err)
		}
		tb.Skipf("skipped: no PostgreSQL (%v)", err)
	}
	schema := "t_" + strings.ToLower(rand.Text()[:16])
	run(tb, base, "CREATE SCHEMA "+schema)
	tb.Cleanup(func() { run(tb, base, "DROP SCHEMA "+schema+" CASCADE") })
	u, err := url.Parse(base)
	if err != nil {
		tb.Fatalf("the PostgreSQL URL must be a URL: %v", err)
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

// DB opens a pool on a URL that ends with the test, to look behind the store.
func DB(tb testing.TB, url string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	return db
}

// run runs a statement on a connection of its own, and again after a deadlock: DROP SCHEMA may meet
// the last transaction of a node that has ended, which takes the same locks in another order. An
// error fails the test without ending it, so that run can be called at the end of a test.
func run(tb testing.TB, base, statement string) {
	tb.Helper()
	db, err := sql.Open("pgx", base)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), maxWait)
	defer cancel()
	for {
		_, err := db.ExecContext(ctx, statement)
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "40P01" {
			continue
		}
		if err != nil {
			tb.Error(fmt.Errorf("%s: %w", statement, err))
		}
		return
	}
}
