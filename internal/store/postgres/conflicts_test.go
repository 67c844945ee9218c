package postgres_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// mustConflict inserts a job that is there and returns how often its update was run.
func mustConflict(t *testing.T, s *postgres.Store, key string) (tries int) {
	t.Helper()
	changes := store.Changes{Insert: []*job.Job{newJob(key), newJob(key + "+")}}
	if err := s.Update(t.Context(), func(tx store.Tx) error {
		tries++
		return tx.Apply(changes)
	}); err != nil {
		t.Fatal(err)
	}
	if existing := changes.Existing(); len(existing) == 0 || existing[0] != 0 {
		t.Errorf("taken are %v", existing)
	}
	return tries
}

// The first insert that meets a taken identity is run again; those that follow cost no error of the
// server, until none was met for some time.
func TestExistingIdentitiesConflictOnce(t *testing.T) {
	t.Parallel()
	var refused atomic.Int32
	s := mustOpen(t, postgres.Config{URL: pgtest.URL(t),
		Observe: func(statement string, _ time.Duration, err error) {
			var pg *pgconn.PgError
			if errors.As(err, &pg) {
				refused.Add(1)
				if !job.IsKind(err, job.Unavailable) || pg.Code != "23505" {
					t.Errorf("%s: %v", statement, err)
				}
			}
		}})
	mustInsert(t, s, "a")
	for i, c := range []struct {
		passed time.Duration
		tries  int
	}{{0, 2}, {0, 1}, {postgres.ConflictPeriod / 2, 1}, {postgres.ConflictPeriod / 2, 1},
		{postgres.ConflictPeriod, 2}} {
		if i > 0 {
			s.PassConflicts(c.passed)
		}
		if tries := mustConflict(t, s, "a"); tries != c.tries {
			t.Errorf("update %d had %d tries, want %d", i, tries, c.tries)
		}
	}
	if refused.Load() != 2 {
		t.Errorf("%d errors of the server, want 2", refused.Load())
	}
}
