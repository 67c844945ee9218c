package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlite"
)

// TestVersion: a version differs after each commit, as soon as the update has returned, and only
// then.
func TestVersion(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 1500, time.UTC)
	s := mustOpen(t, sqlite.Config{Path: filepath.Join(t.TempDir(), "m.db"),
		Now: func() time.Time { return at }})
	before := version(t, s, at)
	if again := version(t, s, at); again != before {
		t.Errorf("%s and then %s", before, again)
	}
	if err := s.View(t.Context(), func(r store.Reader) error {
		_, err := r.NewestMessage()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	if err := s.Update(t.Context(), func(store.Tx) error { return refused }); err != refused {
		t.Fatal(err)
	}
	if again := version(t, s, at); again != before {
		t.Errorf("%s, and after a view and an update that failed %s", before, again)
	}
	for range 3 {
		if err := s.Update(context.Background(), func(tx store.Tx) error {
			return tx.Apply(store.Changes{Records: []job.Record{{Kind: "k", Key: "a"}}})
		}); err != nil {
			t.Fatal(err)
		}
		after := version(t, s, at)
		if after == before {
			t.Errorf("it is still %s after a commit", before)
		}
		before = after
	}
}

func version(t *testing.T, s *sqlite.Store, want time.Time) string {
	t.Helper()
	commits, now, err := s.Version(t.Context())
	if err != nil || !now.Equal(want.Truncate(time.Microsecond)) {
		t.Fatalf("the time is %v, %v", now, err)
	}
	return commits
}
