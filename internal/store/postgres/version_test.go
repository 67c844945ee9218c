package postgres_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// TestVersion: a version differs after each commit of another node, as soon as that has returned.
// It stays as it is while nothing is committed, also beside a transaction that has written. Other
// tests commit on the same server, so that may take some tries to see.
func TestVersion(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := postgres.Config{URL: pgtest.URL(t), Now: func() time.Time { return at }, Conns: 3}
	s, other := mustOpen(t, c), mustOpen(t, c)
	isStill := func() bool {
		before := version(t, s)
		return version(t, s) == before
	}
	write := func(key string, open func()) {
		t.Helper()
		if err := other.Update(t.Context(), func(tx store.Tx) error {
			err := tx.Apply(store.Changes{Records: []job.Record{{Kind: "k", Key: key}}})
			open()
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	testkit.WaitUntil(t, "two equal versions", isStill)
	during := ""
	write("a", func() {
		testkit.WaitUntil(t, "two equal versions beside a transaction", isStill)
		during = version(t, s)
	})
	if after := version(t, s); after == during {
		t.Errorf("it is %s before and after a commit", after)
	}
	for range 20 {
		before := version(t, s)
		write("b", func() {})
		if after := version(t, s); after == before {
			t.Errorf("it is %s before and after a commit", after)
		}
	}
	if _, now, err := s.Version(t.Context()); err != nil || !now.Equal(at) {
		t.Errorf("the time is %v, %v", now, err)
	}
	s.Close()
	if _, _, err := s.Version(t.Context()); !job.IsKind(err, job.Unavailable) {
		t.Errorf("a closed store has a version: %v", err)
	}
}

func version(t *testing.T, s *postgres.Store) string {
	t.Helper()
	commits, _, err := s.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return commits
}
