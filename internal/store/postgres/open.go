package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// Config says what to open.
type Config struct {
	URL     string
	Now     func() time.Time // for tests; nil means the database's clock
	Conns   int              // of the pool; 0 means 16
	Observe sqlstore.Observer
	Log     *slog.Logger // nil logs nothing
	// SchemaTimeout is how long Open waits while another session has the schema locked; 0 means
	// five minutes.
	SchemaTimeout time.Duration
	// SlowRead is how long a claim or a look for the next lease takes to its first row where it
	// passes over much that was removed; 0 means 3 ms. Tests set it, so that a busy machine makes
	// no watermarks. See watermarks.
	SlowRead time.Duration
}

// withDefaults sets fields that are not given. It is called once, since it wraps Observe.
func (c Config) withDefaults() Config {
	c.Conns = cmp.Or(c.Conns, 16)
	c.SchemaTimeout = cmp.Or(c.SchemaTimeout, schemaTimeout)
	c.SlowRead = cmp.Or(c.SlowRead, slowToFirstRow)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Observe = c.Observe.WithKinds(translate)
	return c
}

// limits are set on every connection, or in every transaction behind a pooler, unless the URL
// sets them. They limit every statement, every wait for a lock and every idle transaction.
var limits = map[string]string{
	"application_name":  "millrace",
	"statement_timeout": "30s",
	"lock_timeout":      "10s",
	// A node that hangs must not keep its row locks for longer than a lease.
	"idle_in_transaction_session_timeout": "10s",
}

// plannerSettings is set like limits. Every statement finds its rows by an index, so the planner
// may use nothing else: outdated statistics, as of a queue that was empty a minute ago, would
// otherwise make it read whole tables. One plan is good for all parameters, so a statement is
// planned once.
var plannerSettings = map[string]string{
	"enable_seqscan":    "off",
	"enable_bitmapscan": "off",
	"enable_hashjoin":   "off",
	"enable_mergejoin":  "off",
	"plan_cache_mode":   "force_generic_plan",
	"jit":               "off",
}

// slotBases limits the counters of one queue to slotBases × connections. Nodes choose one of so
// many ranges of slots at random; two nodes with the same range only wait for each other.
const slotBases = 8

// Open connects and brings the schema up to date. Nodes that start together do that one after
// another.
func Open(ctx context.Context, c Config) (*Store, error) {
	s, err := open(ctx, c.withDefaults())
	if err != nil {
		return nil, translate("store.open", err)
	}
	return s, nil
}

// open finds the route, migrates, and starts the goroutine that notifies. A database that refuses
// writes is no error where the schema is up to date: the node starts, and answers reads.
func open(ctx context.Context, c Config) (*Store, error) {
	cfg, err := parse(c.URL)
	if err != nil {
		return nil, err
	}
	r, err := findRoute(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if r.pooled {
		c.Log.Info("the store is reached through a connection pooler: " +
			"settings are made in each transaction, " +
			"and nodes find each other's jobs by polling once a second")
	}
	if err := migrate(ctx, c, r); err != nil {
		return nil, err
	}
	// pgx passes a context, as such a function may fetch a password; this one makes no call.
	order := func(_ context.Context, cfg *pgx.ConnConfig) error { r.order(cfg); return nil }
	db := stdlib.OpenDB(*r.config, stdlib.OptionBeforeConnect(order),
		stdlib.OptionShouldPing(shouldPing))
	if err := checkMoves(ctx, db); err != nil {
		db.Close()
		return nil, err
	}
	db.SetMaxOpenConns(c.Conns)
	db.SetMaxIdleConns(c.Conns)
	db.SetConnMaxIdleTime(5 * time.Minute)
	var node [5]byte
	rand.Read(node[:])
	s := &Store{
		config:        c,
		route:         r,
		db:            db,
		maxConns:      c.Conns,
		node:          hex.EncodeToString(node[:4]),
		slots:         newSlots(int64(node[4]%slotBases)*int64(c.Conns), c.Conns),
		released:      make(chan struct{}),
		announcements: make(chan []job.QueueHash, 1024),
		stop:          make(chan struct{}),
		stopped:       make(chan struct{}),
		watermarks:    newWatermarks(c.SlowRead),
		retries:       newRetries(c.Conns),
	}
	if err := s.Ping(ctx); err != nil {
		c.Log.Warn("the store cannot be written to: changes are refused until it accepts writes",
			"error_message", err)
	}
	s.warnOfFunctionCreators(ctx)
	s.start()
	return s, nil
}

// start starts the goroutines of the store, which Close waits for.
func (s *Store) start() {
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(s.announce)
	running.Go(func() { s.keepWatermarks(ctx) })
	running.Go(func() { s.watchServers(ctx) })
	go func() {
		running.Wait()
		close(s.stopped)
	}()
}

// parse returns the configuration of connections to a URL, with limits and plannerSettings unless
// the URL sets them itself, and a time limit for connecting.
func parse(url string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		// The parser's error repeats the URL without its password.
		return nil, &job.Error{Kind: job.Invalid, Op: "store.open",
			Msg: "the PostgreSQL URL cannot be read", Err: err}
	}
	for _, params := range []map[string]string{limits, plannerSettings} {
		for name, value := range params {
			if _, set := cfg.RuntimeParams[name]; !set {
				cfg.RuntimeParams[name] = value
			}
		}
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 5 * time.Second
	}
	return cfg, nil
}
