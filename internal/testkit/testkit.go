// Package testkit has the parts of a server for tests: a clock that stands still until a test
// advances it, databases, engines, servers with clients that check every exchange by the OpenAPI
// document, a collector of traces, and proxies. Only tests import it.
package testkit

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlite"
)

// StartTime is the time of a new Clock.
var StartTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Clock is a clock that stands still. Advance moves its wall time and its monotonic time, Jump the
// wall time only.
type Clock struct {
	mu   sync.Mutex
	wall time.Time
	mono time.Duration
}

// NewClock returns a clock at StartTime.
func NewClock() *Clock { return &Clock{wall: StartTime} }

// Now returns the wall time.
func (c *Clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.wall }

// Monotonic returns the time that has passed since the clock was made.
func (c *Clock) Monotonic() time.Duration { c.mu.Lock(); defer c.mu.Unlock(); return c.mono }

// Advance lets time pass.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.mono = c.wall.Add(d), c.mono+d
}

// Jump changes the wall time without time passing, as setting a clock does.
func (c *Clock) Jump(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.wall = c.wall.Add(d) }

// MemoryStore opens a store in memory that is closed with the test.
func MemoryStore(tb testing.TB, now func() time.Time) store.Store {
	tb.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: sqlite.Memory, Now: now})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// RandomBytes is the source of randomness of engines.
func RandomBytes() (r [16]byte) { rand.Read(r[:]); return r }

// NewEngine makes an engine of contracts on a store, closed with the test.
func NewEngine(tb testing.TB, s store.Store, c *Clock,
	contracts ...engine.Contract) *engine.Engine {
	tb.Helper()
	e, err := engine.New(engine.Config{Store: s, Contracts: contracts, Node: rand.Text(),
		Random: RandomBytes, Monotonic: c.Monotonic})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(e.Close)
	return e
}
