package postgres_test

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// TestStoreBehindPooler: every promise of the port holds behind a PgBouncer in transaction mode
// that is otherwise as it is installed, but for the connections of tests that are over.
func TestStoreBehindPooler(t *testing.T) {
	server := outside.NewPostgres(t, "max_connections=400")
	roles := server.Schemas(200)
	pooler := outside.NewPgBouncer(t, server, "pool_mode=transaction", "server_idle_timeout=1")
	var mu sync.Mutex
	storetest.Run(t, func(tb testing.TB, clock func() time.Time) store.Store {
		mu.Lock()
		if len(roles) == 0 {
			tb.Fatal("no role is left")
		}
		role := roles[0]
		roles = roles[1:]
		mu.Unlock()
		return mustOpen(tb, postgres.Config{URL: pooler.URL(role, "postgres"), Now: clock,
			Conns: 8})
	})
}

// TestPoolers: what a session would keep is set in each transaction, whatever a pooler makes of
// it, and what does not work behind one is named when the store is opened.
func TestPoolers(t *testing.T) {
	t.Parallel()
	server := outside.NewPostgres(t)
	server.Database("mine")
	for name, settings := range map[string][]string{
		"transaction mode": {"pool_mode=transaction"},
		"session mode":     {"pool_mode=session"},
		"parameters that are ignored": {"pool_mode=transaction", "ignore_startup_parameters=" +
			"statement_timeout,lock_timeout,idle_in_transaction_session_timeout,enable_seqscan,enable_bitmapscan," +
			"enable_hashjoin,enable_mergejoin,plan_cache_mode,jit"},
	} {
		t.Run(name, func(t *testing.T) {
			url := outside.NewPgBouncer(t, server, settings...).URL("mine", "mine")
			s := mustOpen(t, postgres.Config{URL: url + "&lock_timeout=100"})
			got, want, err := s.TransactionSettings(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want["lock_timeout"] = "100ms"
			if !maps.Equal(got, want) {
				t.Errorf("a transaction has %v, want %v", got, want)
			}
			if err := s.Update(t.Context(), func(tx store.Tx) error {
				if err := tx.LockName("name"); err != nil {
					return err
				}
				err := s.Update(t.Context(), func(tx store.Tx) error { return tx.LockName("name") })
				if !job.IsKind(err, job.Unavailable) || !strings.Contains(err.Error(), "55P03") {
					t.Errorf("a lock that is held: %v", err)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	pooled := outside.NewPgBouncer(t, server, "pool_mode=transaction").URL("mine", "mine")
	for url, want := range map[string]string{
		outside.NewPgBouncer(t, server, "pool_mode=statement").URL("mine",
			"mine"): "pool_mode = transaction",
		pooled + "&search_path=other": "ALTER ROLE … SET search_path",
	} {
		if _, err := postgres.Open(t.Context(), postgres.Config{URL: url}); !job.IsKind(err,
			job.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if views, err := postgres.OpenViews(t.Context(), postgres.Config{URL: pooled}); err != nil {
		t.Error(err)
	} else if err := views.Close(); err != nil {
		t.Error(err)
	}
}

// lines is what was logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.text.String() }

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// TestSchemaLockBehindPooler: nodes that start together make the schema once, and no connection of
// the pooler keeps the lock.
func TestSchemaLockBehindPooler(t *testing.T) {
	t.Parallel()
	server := outside.NewPostgres(t)
	direct := server.Database("mine")
	url := outside.NewPgBouncer(t, server, "pool_mode=transaction").URL("mine", "mine")
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			s, err := postgres.Open(context.Background(), postgres.Config{URL: url, Conns: 2})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var locks int
	if err := pgtest.DB(t,
		direct).QueryRow("SELECT count(*) FROM pg_locks WHERE locktype='advisory'").Scan(
		&locks); err != nil || locks != 0 {
		t.Errorf("%d locks are held, %v", locks, err)
	}
}

// TestSchemaLockIsWaitedFor: a start that waits for the lock says for whom, and gives up.
func TestSchemaLockIsWaitedFor(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	tx, err := pgtest.DB(t, url).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var pid string
	if err := tx.QueryRow("SELECT pg_backend_pid() FROM " +
		"pg_advisory_xact_lock(hashtextextended('millrace.migrate.'||current_schema(), 0))").
		Scan(&pid); err != nil {
		t.Fatal(err)
	}
	log := &lines{}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.WaitTimeout)
	defer cancel()
	_, err = postgres.Open(ctx, postgres.Config{URL: url, Log: log.logger(),
		SchemaTimeout: 300 * time.Millisecond})
	if ctx.Err() != nil || !job.IsKind(err, job.Unavailable) ||
		!strings.Contains(err.Error(), "the session "+pid+" keeps the schema locked") {
		t.Errorf("got %v", err)
	}
	if text := log.String(); strings.Count(text, "the start waits for it") != 1 ||
		!strings.Contains(text, "pid="+pid) {
		t.Errorf("want %s in the log: %s", pid, text)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, postgres.Config{URL: url})
}

// TestServerIsFull: where the server does not accept all connections of the pool, callers wait for
// one of those there are, within their deadline.
func TestServerIsFull(t *testing.T) {
	t.Parallel()
	server := outside.NewPostgres(t)
	url := server.Database("mine")
	mustOpen(t, postgres.Config{URL: url, Conns: 1}).Close()
	server.Exec("postgres", "ALTER DATABASE mine CONNECTION LIMIT 2")
	server.Disconnect("mine") // what was closed may still be ending
	s := mustOpen(t, postgres.Config{URL: url, Conns: 8})
	began, release := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if err := s.Update(context.Background(), func(store.Tx) error {
				began <- struct{}{}
				<-release
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
		<-began
	}
	hurried, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := s.Update(hurried, func(store.Tx) error {
		return nil
	}); !job.IsKind(err, job.Unavailable) || hurried.Err() == nil {
		t.Errorf("a caller who does not wait for long: %v", err)
	}
	for i := range 6 {
		all.Go(func() {
			if err := s.Update(context.Background(), func(tx store.Tx) error {
				return tx.Apply(store.Changes{Insert: []*job.Job{newJob(string(rune('a' + i)))}})
			}); err != nil {
				t.Error(err)
			}
		})
	}
	close(release)
	all.Wait()
	server.Exec("postgres", "ALTER DATABASE mine CONNECTION LIMIT -1")
	mustInsert(t, s, "last")
}

// TestServerWithoutConnections has a crowd ask a server that accepts no connection at all: each
// caller is told so, and none waits until its deadline for a connection that others try to open.
func TestServerWithoutConnections(t *testing.T) {
	t.Parallel()
	server := outside.NewPostgres(t)
	s := mustOpen(t, postgres.Config{URL: server.Database("mine"), Conns: 16})
	server.Exec("postgres", "ALTER DATABASE mine CONNECTION LIMIT 0")
	server.Disconnect("mine")
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			err := s.View(context.Background(), func(store.Reader) error { return nil })
			if !job.IsKind(err, job.Unavailable) || !strings.Contains(err.Error(), "refuses") {
				t.Errorf("got %v", err)
			}
		})
	}
	all.Wait()
}

// TestFullDiskIsAskedSeldom: a database that refuses all writes gets one a second, however many
// callers there are, and reads go on.
func TestFullDiskIsAskedSeldom(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	var failed atomic.Int64
	s := mustOpen(t, postgres.Config{URL: url,
		Observe: func(statement string, _ time.Duration, err error) {
			if err != nil {
				failed.Add(1)
			}
		}})
	mustInsert(t, s, "a")
	db := pgtest.DB(t, url)
	if _, err := db.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100'; END $$;
		CREATE TRIGGER refuse BEFORE INSERT ON jobs EXECUTE FUNCTION refuse()`); err != nil {
		t.Fatal(err)
	}
	insert := func() error {
		return s.Update(context.Background(), func(tx store.Tx) error {
			return tx.Apply(store.Changes{Insert: []*job.Job{newJob("b")}})
		})
	}
	const callers = 8
	began := time.Now()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for failed.Load() < callers+5 {
				if err := insert(); !job.IsKind(err, job.Unavailable) ||
					!strings.Contains(err.Error(), "disk is full") {
					t.Errorf("got %v", err)
					return
				}
				if err := s.View(context.Background(), func(r store.Reader) error {
					_, err := r.Exists(newJob("a").ID)
					return err
				}); err != nil {
					t.Errorf("a view: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
	// The slower the machine, the fewer there are in a second.
	if limit := int64(time.Since(began).Seconds()) + 1 + callers; failed.Load() > limit {
		t.Errorf("%d statements failed where %d may", failed.Load(), limit)
	}
	if _, err := db.Exec("DROP TRIGGER refuse ON jobs"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.After(testkit.WaitTimeout); insert() != nil; {
		select {
		case <-deadline:
			t.Fatal("updates are refused although the disk has free space")
		case <-time.After(50 * time.Millisecond):
		}
	}
}
