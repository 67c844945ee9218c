package sqlite_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/store/storetest"
)

func TestStoreInFile(t *testing.T)   { storetest.Run(t, openFile) }
func TestStoreInMemory(t *testing.T) { storetest.Run(t, openMemory) }

// What no ORDER BY sets in order comes in the opposite one here: an order that an index gives by
// luck is no order.
func TestStoreOutOfOrder(t *testing.T) {
	storetest.Run(t, func(tb testing.TB, clock func() time.Time) store.Store {
		return mustOpen(tb, sqlite.WithPragmas(sqlite.Config{Path: sqlite.Memory, Now: clock},
			"reverse_unordered_selects(1)"))
	})
}

func openFile(tb testing.TB, clock func() time.Time) store.Store {
	return mustOpen(tb, sqlite.Config{Path: filepath.Join(tb.TempDir(), "data", "millrace.db"),
		Now: clock})
}

func openMemory(tb testing.TB, clock func() time.Time) store.Store {
	return mustOpen(tb, sqlite.Config{Path: sqlite.Memory, Now: clock})
}

func mustOpen(tb testing.TB, c sqlite.Config) *sqlite.Store {
	tb.Helper()
	if c.Now == nil {
		c.Now = time.Now
	}
	s, err := sqlite.Open(context.Background(), c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

func BenchmarkFile(b *testing.B)   { storetest.Bench(b, openFile) }
func BenchmarkMemory(b *testing.B) { storetest.Bench(b, openMemory) }
