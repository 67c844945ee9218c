package postgres_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// An update that needs a job which another node has locked waits for it without a connection, for
// as long as lock_timeout, and its error is of the kind it always was.
func TestLockedJobsAreWaitedFor(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	holder, _, jobs := leasedStoreOn(t, url, 1)
	locked := store.Selector{Seqs: seqsOf(jobs), Lock: true}
	var refused atomic.Int64
	open := func(parameters string) *postgres.Store {
		return mustOpen(t, postgres.Config{URL: url + parameters, Conns: 1,
			Observe: func(name string, _ time.Duration, err error) {
				if name == "lock_by_seq" && err != nil {
					refused.Add(1)
				}
			}})
	}
	unlimited, short := open(""), open("&lock_timeout=300ms")
	lock := func(ctx context.Context, s *postgres.Store) error {
		return s.Update(ctx, func(tx store.Tx) error {
			_, err := tx.Load(locked)
			return err
		})
	}
	release, gotLock := make(chan struct{}), make(chan struct{})
	holds := make(chan error, 1)
	go func() {
		holds <- holder.Update(t.Context(), func(tx store.Tx) error {
			_, err := tx.Load(locked)
			close(gotLock)
			<-release
			return err
		})
	}()
	testkit.Receive(t, "the lock", gotLock)

	began := time.Now()
	if err := lock(t.Context(), short); !job.IsKind(err, job.Unavailable) ||
		time.Since(began) < 300*time.Millisecond || refused.Load() < 2 {
		t.Errorf("after %v and %d tries: %v", time.Since(began), refused.Load(), err)
	}
	refused.Store(0)
	waits := make(chan error, 1)
	ctx, leave := context.WithCancel(t.Context())
	go func() { waits <- lock(ctx, unlimited) }()
	testkit.WaitUntil(t, "the update to try again", func() bool { return refused.Load() > 1 })
	for range 5 { // it has the one connection of its node between two pauses only
		if err := unlimited.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	}
	leave()
	if err := testkit.Receive(t, "the update", waits); !job.IsKind(err, job.Aborted) {
		t.Errorf("a caller that has left got %v", err)
	}

	refused.Store(0)
	go func() { waits <- lock(t.Context(), unlimited) }()
	testkit.WaitUntil(t, "the update to try again", func() bool { return refused.Load() > 2 })
	close(release)
	for _, c := range []chan error{holds, waits} {
		if err := testkit.Receive(t, "an update", c); err != nil {
			t.Error(err)
		}
	}
	got, want, err := unlimited.TransactionSettings(t.Context())
	if err != nil || got["lock_timeout"] != want["lock_timeout"] {
		t.Errorf("the next transaction has the lock_timeout %s: %v", got["lock_timeout"], err)
	}
}

func TestLockTimeoutOfURL(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{"10s": 10 * time.Second,
		"100": 100 * time.Millisecond, "250ms": 250 * time.Millisecond, " 2 min ": 2 * time.Minute,
		"1h": time.Hour, "0": 10 * time.Second, "": 10 * time.Second, "-1": 10 * time.Second,
		"many": 10 * time.Second, "5 parsecs": 10 * time.Second, "1.5s": 1500 * time.Millisecond,
		"1d": 24 * time.Hour, "500us": 500 * time.Microsecond} {
		if got := postgres.LockTimeoutOf(value); got != want {
			t.Errorf("%q is %v, want %v", value, got, want)
		}
	}
}
