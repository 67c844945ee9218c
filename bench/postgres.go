package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// envPostgres names the variable with the DSN of a server for tests.
const (
	envPostgres     = "MILLRACE_TEST_POSTGRES"
	defaultPostgres = "postgres://root@127.0.0.1:5432/test"
)

// Postgres is a database that exists for one bench.
type Postgres struct {
	admin    *pgx.ConnConfig
	dsn      *pgxpool.Config
	name     string
	version  string
	settings map[string]string
}

// reportedSettings are the settings that decide what a figure means.
var reportedSettings = []string{
	"fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "wal_level",
	"shared_buffers", "max_wal_size", "max_connections", "autovacuum", "commit_delay",
}

// createPostgres connects to a server, by default that of the environment, and creates a database
// with that name.
func createPostgres(ctx context.Context, server, name string) (*Postgres, error) {
	dsn := cmp.Or(server, os.Getenv(envPostgres), defaultPostgres)
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", envPostgres, err)
	}
	hosts := []string{config.ConnConfig.Host}
	for _, f := range config.ConnConfig.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	for _, host := range hosts {
		if err := checkLocal(host); err != nil {
			return nil, skipf("PostgreSQL: %v", err)
		}
	}
	p := &Postgres{admin: config.ConnConfig.Copy(), dsn: config, name: name,
		settings: map[string]string{}}
	p.admin.ConnectTimeout = 5 * time.Second
	conn, err := pgx.ConnectConfig(ctx, p.admin)
	if err != nil {
		return nil, skipf("no PostgreSQL (set %s): %v", envPostgres, err)
	}
	defer conn.Close(ctx)
	if err := p.readSettings(ctx, conn); err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return nil, skipf("PostgreSQL: cannot create a database for the bench: %v", err)
	}
	p.dsn.ConnConfig.Database = name
	return p, nil
}

func (p *Postgres) readSettings(ctx context.Context, conn *pgx.Conn) error {
	for _, name := range append([]string{"server_version"}, reportedSettings...) {
		var value string
		if err := conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return err
		}
		p.settings[name] = value
	}
	p.version = p.settings["server_version"]
	return nil
}

// Pool opens a pool of so many connections on the bench's database, all of them connected before it
// is returned.
func (p *Postgres) Pool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	config := p.dsn.Copy()
	config.MaxConns = int32(conns)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	var acquired []*pgxpool.Conn
	for range conns {
		c, acquireErr := pool.Acquire(ctx)
		if acquireErr != nil {
			err = acquireErr
			break
		}
		acquired = append(acquired, c)
	}
	for _, c := range acquired {
		c.Release()
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// DSN is the database as a connection string, for code that opens its own pool.
func (p *Postgres) DSN() string {
	c := p.dsn.ConnConfig
	sslmode := "disable"
	if c.TLSConfig != nil {
		sslmode = "require"
	}
	quote := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace
	return fmt.Sprintf("host='%s' port=%d user='%s' password='%s' dbname='%s' sslmode=%s",
		quote(c.Host), c.Port, quote(c.User), quote(c.Password), quote(c.Database), sslmode)
}

// Durability says what the server's settings promise.
func (p *Postgres) Durability() string {
	fsync, commit := p.settings["fsync"], p.settings["synchronous_commit"]
	switch {
	case fsync != "on":
		return "NOT durable: PostgreSQL with fsync=off"
	case commit == "off":
		return "NOT durable at acknowledgement: synchronous_commit=off"
	default:
		return "durable: fsync before each commit returns (fsync=on, synchronous_commit=" + commit +
			")"
	}
}

// URL is DSN in the form in which Millrace's settings take it.
func (p *Postgres) URL() string {
	c := p.dsn.ConnConfig
	u := url.URL{Scheme: "postgres", User: url.UserPassword(c.User, c.Password),
		Path: "/" + c.Database,
		RawQuery: url.Values{"host": {c.Host}, "port": {strconv.Itoa(int(c.Port))},
			"sslmode": {"disable"}}.Encode()}
	if c.TLSConfig != nil {
		u.RawQuery = strings.Replace(u.RawQuery, "disable", "require", 1)
	}
	return u.String()
}

// Recreate drops the database and creates it again, empty.
func (p *Postgres) Recreate(ctx context.Context) error {
	if err := p.Drop(ctx); err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, p.admin)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{p.name}.Sanitize())
	return errors.Join(err, conn.Close(ctx))
}

// Describe is one line for the report.
func (p *Postgres) Describe() string {
	parts := []string{"PostgreSQL " + p.version}
	for _, name := range reportedSettings {
		parts = append(parts, name+"="+p.settings[name])
	}
	return strings.Join(parts, " ")
}

// Drop removes the database.
func (p *Postgres) Drop(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, p.admin)
	if err != nil {
		return fmt.Errorf("drop %s: %w", p.name, err)
	}
	_, err = conn.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{p.name}.Sanitize()+
		" WITH (FORCE)")
	return errors.Join(err, conn.Close(ctx))
}
