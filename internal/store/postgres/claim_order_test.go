package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// TestOrderOfClaimsIsAskedFor: jobs of one priority and order time are claimed by their numbers
// because the statements ask for that order, and not because the index has it: here the index has
// the opposite one. A transaction that locks jobs in another order meets deadlocks.
func TestOrderOfClaimsIsAskedFor(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]string{"late jobs": "- 60000000", "others": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			s, db := mustOpen(t, postgres.Config{URL: url}), pgtest.DB(t, url)
			exec := func(text string) {
				t.Helper()
				if _, err := db.Exec(text); err != nil {
					t.Fatal(err)
				}
			}
			exec("DROP INDEX ready_order, ready_late")
			exec("CREATE INDEX ready_order ON ready (queue_hash, priority DESC, order_time, seq DESC)")
			exec("CREATE INDEX ready_late ON ready (queue_hash, (-priority::bigint), order_time, " +
				"seq DESC) WHERE order_time < arrived - 2000000")
			claims := func(s *postgres.Store, how string, want []string) {
				t.Helper()
				var keys []string
				if err := s.Update(t.Context(), func(tx store.Tx) error {
					jobs, err := tx.LockReady("relay", "q", 5)
					for _, j := range jobs {
						keys = append(keys, j.ID.Key)
					}
					return err
				}); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(keys, want) {
					t.Errorf("%s: claimed are %v, want %v", how, keys, want)
				}
			}
			renewal := s.UseWatermarks()
			mustInsert(t, s, "first") // a watermark is of a priority that has been seen
			for range 4 {
				claims(s, "before there is a watermark", []string{"first"})
			}
			for range 3 {
				mustRenew(t, s, renewal)
			}
			exec("DELETE FROM ready")
			mustRenew(t, s, renewal) // nothing holds the watermark back any longer
			for i := range 8 {
				mustInsert(t, s, fmt.Sprint(i))
			}
			exec("UPDATE ready SET order_time = (SELECT max(arrived) FROM ready) " + late)
			first := []string{"0", "1", "2", "3", "4"}
			queue := int64(job.QueueHashOf("relay", "q"))
			if s.LatestWatermark(queue) == 0 {
				t.Fatal("there is no watermark")
			}
			claims(s, "from a watermark on", first)
			claims(mustOpen(t, postgres.Config{URL: url}), "from the beginning", first)
		})
	}
}

// mustRenew makes one renewal of all watermarks.
func mustRenew(t *testing.T, s *postgres.Store, r *postgres.Renewal) {
	t.Helper()
	if err := s.RenewWatermarks(t.Context(), r, true); err != nil {
		t.Fatal(err)
	}
}
