package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"
)

// database is a database of a run on PostgreSQL, and a connection beside it that no fault concerns.
type database struct {
	name  string
	url   *url.URL
	admin *sql.DB
}

// newDatabase makes a database of its own on the server that an URL names.
func newDatabase(server string, seed uint64) (*database, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	admin, err := sql.Open("pgx", server)
	if err != nil {
		return nil, err
	}
	d := &database{name: fmt.Sprintf("torture_%d_%d", os.Getpid(), seed), url: u, admin: admin}
	if err := d.exec("CREATE DATABASE " + d.name); err != nil {
		admin.Close()
		return nil, err
	}
	return d, nil
}

// execTimeout is long, as making and dropping a database waits for a checkpoint.
const execTimeout = 3 * time.Minute

// exec runs a statement on the connection that no fault concerns.
func (d *database) exec(query string) error {
	ctx, cancel := context.WithTimeout(context.Background(), execTimeout)
	defer cancel()
	if _, err := d.admin.ExecContext(ctx, query); err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	return nil
}

// through returns the URL of the database by way of an address.
func (d *database) through(address string) string {
	u := *d.url
	u.Host, u.Path = address, "/"+d.name
	return u.String()
}

// endSessions ends all sessions in the middle of what they do.
func (d *database) endSessions() error {
	return d.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname='" +
		d.name + "'")
}

// refuse ends all sessions and allows no new ones, or allows them again.
func (d *database) refuse(refused bool) error {
	if err := d.exec(fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS %t", d.name,
		!refused)); err != nil || !refused {
		return err
	}
	return d.endSessions()
}

// drop removes the database.
func (d *database) drop() error {
	defer d.admin.Close()
	return d.exec("DROP DATABASE IF EXISTS " + d.name + " WITH (FORCE)")
}
