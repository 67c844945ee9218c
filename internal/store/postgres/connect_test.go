package postgres

import (
	"context"
	"errors"
	"net"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// TestConnectFailure: why no connection could be made is said once, in one line, whatever the
// number of addresses that were tried, with and without TLS.
func TestConnectFailure(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	there, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	there.Path = "/nosuchdatabase"
	for _, c := range []struct{ url, text string }{
		{"postgres://u:hunter2@" + nobody + "/x", nobody + ": connection refused"},
		{"postgres://u:hunter2@" + nobody + ",db.example/x?sslmode=disable",
			nobody + ",db.example:5432: no such host; connection refused"},
		{"postgres://u:hunter2@db.example,db2.example:7/x",
			"db.example:5432,db2.example:7: no such host"},
		{there.String(), there.Host +
			`: database "nosuchdatabase" does not exist (SQLSTATE 3D000)`},
	} {
		config, err := pgx.ParseConfig(c.url)
		if err != nil {
			t.Fatal(err)
		}
		config.LookupFunc = func(_ context.Context, host string) ([]string, error) {
			if net.ParseIP(host) != nil {
				return []string{host}, nil
			}
			return nil, &net.DNSError{Err: "no such host", Name: host, Server: "192.0.2.1:53",
				IsNotFound: true}
		}
		_, err = findRoute(t.Context(), config)
		var e *job.Error
		if err = translate("test", err); !errors.As(err, &e) || e.Kind != job.Unavailable ||
			e.Err == nil || e.Err.Error() != c.text {
			t.Errorf("%s: got %v, want %s", c.url, err, c.text)
		}
	}
}

// TestMigrationFailure: what the database says about a migration is not wrapped in what the tool
// says.
func TestMigrationFailure(t *testing.T) {
	t.Parallel()
	at := pgtest.URL(t)
	if _, err := pgtest.DB(t, at).Exec("CREATE TABLE jobs (other text)"); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{URL: at})
	const want = "store.open: the store's schema is not the one that is needed: " +
		`migration 1: ERROR: relation "jobs" already exists (SQLSTATE 42P07)`
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}
