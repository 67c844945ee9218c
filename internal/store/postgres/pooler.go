package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/job"
)

// route is how the database is reached. A direct connection keeps its settings. A connection of
// a pooler may reach another session of the server with each transaction, so behind a pooler
// every transaction sets what it needs, statements are not prepared, and nothing can listen.
type route struct {
	config *pgx.ConnConfig
	pooled bool
	local  string // columns of the SELECT that begins a transaction; empty without a pooler
	// lockTimeout is how long an update waits for locks.
	lockTimeout time.Duration
	connections *connections
	preferred   atomic.Pointer[[]*pgconn.FallbackConfig] // see prefer; nil for the order of config
}

// startupParameters lists the parameters that a pooler accepts from a client, or refuses by name.
var startupParameters = []string{"application_name", "client_encoding", "datestyle", "options",
	"standard_conforming_strings", "timezone"}

// findRoute connects once to find out whether there is a pooler: a pooler gives its clients
// process numbers of its own.
func findRoute(ctx context.Context, cfg *pgx.ConnConfig) (*route, error) {
	open := &connections{open: map[*connection]bool{}}
	cfg.DialFunc = open.dialer(cfg.DialFunc)
	plain := cfg.Copy()
	local := map[string]string{}
	for name, value := range cfg.RuntimeParams {
		if !slices.Contains(startupParameters, strings.ToLower(name)) {
			local[name] = value
			delete(plain.RuntimeParams, name)
		}
	}
	pooled, err := isPooled(ctx, plain)
	wait := lockTimeoutOf(cfg.RuntimeParams["lock_timeout"])
	if err != nil || !pooled {
		return &route{config: cfg, lockTimeout: wait, connections: open}, err
	}
	for _, name := range slices.Sorted(maps.Keys(local)) {
		_, limit := limits[name]
		if _, plan := plannerSettings[name]; !limit && !plan && name != readOnly {
			return nil, &job.Error{Kind: job.Invalid, Op: "store.open",
				Msg: fmt.Sprintf("%s in the URL does not pass through a connection pooler: "+
					"leave it out, and set it with ALTER ROLE … SET %s", name, name)}
		}
	}
	if plain.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		plain.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	return &route{config: plain, pooled: true, local: setLocal(local), lockTimeout: wait,
		connections: open}, nil
}

// setLocal returns columns for a SELECT that set parameters until the end of a transaction.
func setLocal(parameters map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		fmt.Fprintf(&b, ",set_config('%s','%s',true)", name,
			strings.ReplaceAll(parameters[name], "'", "''"))
	}
	return b.String()
}

// isPooled compares the process number that a connection was given with that of the session of
// the server. It does so in a transaction, which a pooler in statement mode refuses. A database of
// another encoding than UTF8 is refused too.
func isPooled(ctx context.Context, cfg *pgx.ConnConfig) (bool, error) {
	conn, err := pgconn.ConnectConfig(ctx, &cfg.Config)
	if err != nil {
		return false, err
	}
	defer closeConn(conn)
	if _, err := conn.Exec(ctx, "BEGIN").ReadAll(); err != nil {
		return false, errWrongMode(err)
	}
	results, err := conn.Exec(ctx, "SELECT pg_backend_pid(), getdatabaseencoding()").ReadAll()
	if err != nil {
		return false, errWrongMode(err)
	}
	row := results[0].Rows[0]
	if encoding := string(row[1]); encoding != "UTF8" {
		return false, errEncoding(encoding)
	}
	return string(row[0]) != strconv.FormatUint(uint64(conn.PID()), 10), nil
}

// errEncoding refuses a database that cannot keep every text of a job, or counts its characters
// in another way.
func errEncoding(encoding string) error {
	return &job.Error{Kind: job.Invalid, Op: "store.open",
		Msg: fmt.Sprintf("the encoding of the database is %s, and has to be UTF8: "+
			"CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0", encoding)}
}

// errWrongMode replaces the error of a pooler in statement mode by one that says what to do.
func errWrongMode(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && strings.Contains(pg.Message, "statement pooling") {
		return &job.Error{Kind: job.Invalid, Op: "store.open", Err: err,
			Msg: "the connection pooler is in statement mode, which has no transactions: " +
				"it needs pool_mode = transaction, or session"}
	}
	return err
}
