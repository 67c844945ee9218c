// Package testkit has the parts of a server for tests: a clock that stands still until a test
// advances it, databases, engines, servers with clients that check every exchange by the OpenAPI
// document, a collector of traces, and proxies. Only tests import it.
//
// A test of a contract puts them together like this:
//
//	Database ──> NewEngine ──> contract.New ──> Register ──> StartServer ──> Do ──> Reply
//	  Clock                                                   Document checks every exchange
//
// Everything ends with the test that made it. Helpers take the test and fail it themselves: an
// error that a test did not ask for stops it at the line that met it. Two names say which helpers
// decide: Want… fails the test unless something holds, and all others return what they found.
//
// Nothing sleeps. What takes place at a time is brought about by Clock.Advance and RunMaintenance;
// what another goroutine does is awaited by Receive or WaitUntil, and both give up after
// WaitTimeout.
package testkit

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/sqlite"
)

// StartTime is the time of a new Clock, a whole second, so that a time in an answer has a known
// text.
var StartTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Clock is a clock that stands still. Advance moves its wall time and its monotonic time, Jump the
// wall time only. It may be used by several goroutines. The zero Clock is at the zero time; tests
// use NewClock.
type Clock struct {
	mu   sync.Mutex
	wall time.Time
	mono time.Duration
}

// NewClock returns a clock at StartTime.
func NewClock() *Clock { return &Clock{wall: StartTime} }

// Now returns the wall time. It is the Now of a store: all leases and due times depend on it.
func (c *Clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.wall }

// Monotonic returns the time that has passed since the clock was made. It is the monotonic clock of
// an engine, which compares it with the store's time to notice a jump.
func (c *Clock) Monotonic() time.Duration { c.mu.Lock(); defer c.mu.Unlock(); return c.mono }

// Advance lets time pass. Nothing happens by that alone: what is due is done by the next
// RunMaintenance, or by a claim.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.mono = c.wall.Add(d), c.mono+d
}

// Jump changes the wall time without time passing, as setting a clock does.
func (c *Clock) Jump(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.wall = c.wall.Add(d) }

// MemoryStore opens a store in memory that is closed with the test. It is SQLite with all of its
// code but the files. No other process or store sees it.
func MemoryStore(tb testing.TB, now func() time.Time) store.Store {
	tb.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: sqlite.Memory, Now: now})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// RandomBytes is the source of randomness of engines. It is random in tests too: no test may depend
// on the ids of its runs.
func RandomBytes() (r [16]byte) { rand.Read(r[:]); return r }

// NewEngine makes an engine of contracts on a store, closed with the test. It has no maintenance of
// its own: a test runs it, when it wants what is due to happen.
func NewEngine(tb testing.TB, s store.Store, c *Clock,
	contracts ...engine.JobType) *engine.Engine {
	tb.Helper()
	config := engine.Config{Store: s, Node: rand.Text(), Random: RandomBytes,
		Monotonic: c.Monotonic}
	if _, ok := s.(*postgres.Store); ok {
		config.Inbox = func(r store.Reader) engine.Inbox { return postgres.InboxOf(r) }
	}
	e, err := engine.New(config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(e.Close)
	Register(tb, e, contracts...)
	return e
}

// MemoryEngine makes an engine on a store in memory.
func MemoryEngine(tb testing.TB) *engine.Engine {
	tb.Helper()
	c := NewClock()
	return NewEngine(tb, MemoryStore(tb, c.Now), c)
}

// Register adds contracts to an engine that they were built with.
func Register(tb testing.TB, e *engine.Engine, contracts ...engine.JobType) {
	tb.Helper()
	if err := e.Register(contracts...); err != nil {
		tb.Fatal(err)
	}
}
