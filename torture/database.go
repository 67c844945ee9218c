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

// follow goes to another server, which has become the primary.
func (d *database) follow(server string) error {
	u, err := url.Parse(server)
	if err != nil {
		return err
	}
	d.admin.Close()
	d.url = u
	d.admin, err = sql.Open("pgx", server)
	return err
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

// forbidWrites ends all sessions, and allows new ones to read alone, or allows writes again.
func (d *database) forbidWrites(forbidden bool) error {
	if err := d.exec(fmt.Sprintf("ALTER DATABASE %s SET default_transaction_read_only=%t", d.name,
		forbidden)); err != nil {
		return err
	}
	return d.endSessions()
}

// exhaust takes each connection that the server has left. Whenever there is none it ends the
// sessions of the database, to take theirs too. It gives all back after a time.
func (d *database) exhaust(ctx context.Context, length time.Duration) error {
	db, err := sql.Open("pgx", d.url.String())
	if err != nil {
		return err
	}
	defer db.Close()
	var taken []*sql.Conn
	defer func() {
		for _, c := range taken {
			c.Close()
		}
	}()
	for start := time.Now(); time.Since(start) < length; {
		c, err := db.Conn(ctx)
		if err != nil {
			if err := d.endSessions(); err != nil {
				return err
			}
			continue
		}
		taken = append(taken, c)
	}
	return nil
}

// drop removes the database.
func (d *database) drop() error {
	defer d.admin.Close()
	return d.exec("DROP DATABASE IF EXISTS " + d.name + " WITH (FORCE)")
}
