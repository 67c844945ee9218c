package postgres_test

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNodesStartTogether(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			s, err := postgres.Open(context.Background(), postgres.Config{URL: url, Conns: 2})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if err := s.Update(context.Background(), func(tx store.Tx) error {
				_, err := tx.Exists(job.ID{})
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	mustOpen(t, postgres.Config{URL: url}).Close()
	if _, err := pgtest.DB(t,
		url).Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)"); err != nil {
		t.Fatal(err)
	}
	_, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	if !job.IsKind(err, job.ReadOnly) || !strings.Contains(err.Error(), "schema 99999") {
		t.Errorf("got %v", err)
	}
	have, want, err := postgres.SchemaVersion(t.Context(), url)
	if have != 99999 || want < 1 || err != nil {
		t.Errorf("have %d, want %d, %v", have, want, err)
	}
}

func TestOpenFails(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]job.Kind{
		"postgres://root:secret@127.0.0.1:1/test?sslmode=disable": job.Unavailable,
		"postgres://root:secret@127.0.0.1:port/test":              job.Invalid,
	} {
		_, err := postgres.Open(t.Context(), postgres.Config{URL: url})
		if !job.IsKind(err, want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	url := pgtest.URL(t)
	_, err := postgres.Open(t.Context(), postgres.Config{URL: url + "&database=there_is_none"})
	if !job.IsKind(err, job.Unavailable) {
		t.Errorf("no such database: %v", err)
	}
}

// A database that cannot keep every text is refused before anything is made in it: one request of a
// producer that cannot be marked as refused would stop the inbox (TX-003).
func TestOtherEncodingIsRefused(t *testing.T) {
	t.Parallel()
	url, name := pgtest.URL(t), "latin_"+strings.ToLower(rand.Text())
	mustExec(t, pgtest.DB(t, url), "CREATE DATABASE "+name+
		" ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	t.Cleanup(func() { mustExec(t, pgtest.DB(t, url), "DROP DATABASE "+name) })
	_, err := postgres.Open(t.Context(), postgres.Config{URL: url + "&database=" + name})
	if !job.IsKind(err, job.Invalid) || !strings.Contains(err.Error(), "LATIN1") {
		t.Errorf("got %v", err)
	}
}

// listener collects the notifications that a store gets.
type listener struct {
	mu       sync.Mutex
	queues   map[job.QueueHash]int
	calls    int
	received chan struct{}
}

func listen(t *testing.T, s *postgres.Store) *listener {
	e := &listener{queues: map[job.QueueHash]int{}, received: make(chan struct{}, 10_000)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Listen(ctx, func(queues []job.QueueHash) {
			e.mu.Lock()
			for _, l := range queues {
				e.queues[l]++
			}
			e.calls++
			e.mu.Unlock()
			e.received <- struct{}{}
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return e
}

func (e *listener) has(l job.QueueHash) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.queues[l] > 0
}

// wantNotified announces a queue_hash until the listener has it: what is sent before a listener
// listens is lost.
func (e *listener) wantNotified(t *testing.T, s *postgres.Store, l job.QueueHash) {
	t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for deadline := time.After(testkit.WaitTimeout); !e.has(l); {
		select {
		case <-e.received:
		case <-again.C:
			s.Notify([]job.QueueHash{l})
		case <-deadline:
			t.Fatalf("queue_hash %d is not notified", l)
		}
	}
}

func (e *listener) waits(t *testing.T, l job.QueueHash) {
	t.Helper()
	for deadline := time.After(testkit.WaitTimeout); !e.has(l); {
		select {
		case <-e.received:
		case <-deadline:
			t.Fatalf("queue_hash %d is not notified", l)
		}
	}
}

func TestAnnouncementsArrive(t *testing.T) {
	t.Parallel()
	url, name := named(t)
	a, b := mustOpen(t, postgres.Config{URL: url}), mustOpen(t, postgres.Config{URL: url})
	other, own := listen(t, b), listen(t, a)
	other.wantNotified(t, a, -1)
	own.wantNotified(t, b, 1)

	// Many announcements at once are few notifications, also when their queues do not fit one.
	other.mu.Lock()
	before := other.calls
	other.mu.Unlock()
	const n = 1000
	for i := range n {
		a.Notify([]job.QueueHash{job.QueueHash(i)<<40 + 1<<62, job.QueueHash(-i) - 1<<62})
	}
	for i := range n {
		other.waits(t, job.QueueHash(i)<<40+1<<62)
	}
	other.mu.Lock()
	calls := other.calls - before
	other.mu.Unlock()
	if calls > n/10 {
		t.Errorf("%d announcements in %d notifications", n, calls)
	}
	if own.has(1 << 62) {
		t.Error("a store gets its own notifications")
	}

	db := pgtest.DB(t, strings.Split(url, "&application_name")[0])
	var killed int
	if err := db.QueryRow("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE "+
		"application_name=$1 AND query LIKE 'LISTEN%'", name).Scan(&killed); err != nil ||
		killed != 2 {
		t.Fatalf("%d terminated, %v", killed, err)
	}
	other.wantNotified(t, a, -3)
	own.wantNotified(t, b, 3)
}
