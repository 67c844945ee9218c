package sqlite_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlite"
)

// TestOrderOfClaimsIsAskedFor: jobs of one priority and order time are claimed by their numbers
// because the statements ask for that order, and not because the index has it: here the index has
// the opposite one.
func TestOrderOfClaimsIsAskedFor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "millrace.db")
	mustOpen(t, sqlite.Config{Path: path}).Close()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("DROP INDEX ready_order; " +
		"CREATE INDEX ready_order ON ready " +
		"(queue_hash, priority DESC, order_time, seq DESC)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, sqlite.Config{Path: path})
	for i := range 8 {
		mustInsert(t, s, fmt.Sprint(i))
	}
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
	if !slices.Equal(keys, []string{"0", "1", "2", "3", "4"}) {
		t.Errorf("claimed are %v", keys)
	}
}
