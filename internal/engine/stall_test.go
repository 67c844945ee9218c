package engine_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// liveAndDead claims two jobs, of which the first is to be kept alive.
func liveAndDead(t *testing.T, e *engine.Engine) []*job.Job {
	t.Helper()
	if _, err := e.Submit(t.Context(), engine.Unique,
		subs(sub("brief/live"), sub("brief/dead"))); err != nil {
		t.Fatal(err)
	}
	jobs, err := e.Claim(t.Context(), engine.ClaimRequest{JobType: "brief", Queues: []string{"q"},
		Max: 2})
	if err != nil || len(jobs) != 2 {
		t.Fatal(jobs, err)
	}
	return jobs
}

// A heartbeat that was sent in time and waits behind a store that stalls wins over the sweep that
// is before it in line. A worker that stays silent loses its job one lease later.
func TestAStallIsNotTheWorkersSilence(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	clock := testkit.NewClock()
	s := testkit.MemoryStore(t, clock.Now)
	e := testkit.NewEngine(t, s, clock, testJobTypes()...)
	jobs := liveAndDead(t, e)
	clock.Advance(10 * time.Second)

	locked, release := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		if err := s.Update(ctx, func(store.Tx) error {
			close(locked)
			<-release
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	<-locked
	all.Go(func() {
		if n, err := e.Expire(ctx); n != 0 || err != nil {
			t.Errorf("the sweep after the stall ended %d runs: %v", n, err)
		}
	})
	engine.AwaitUpdates(e, 1)
	all.Go(func() {
		if _, err := e.Heartbeat(ctx, engine.Run{Run: jobs[0].Run}, nil); err != nil {
			t.Errorf("the heartbeat that waited: %v", err)
		}
	})
	engine.AwaitUpdates(e, 2)
	clock.Advance(40 * time.Second) // past both leases
	close(release)
	all.Wait()

	clock.Advance(20 * time.Second)
	if _, err := e.Heartbeat(ctx, engine.Run{Run: jobs[0].Run}, nil); err != nil {
		t.Error(err)
	}
	clock.Advance(11 * time.Second) // a lease after the stall
	if n, err := e.Expire(ctx); n != 1 || err != nil {
		t.Errorf("%d silent runs were ended one lease later: %v", n, err)
	}
}

// A heartbeat that a store refused while it was unavailable counts when the store is back; a single
// refusal is no outage.
func TestOutageDoesNotExpireRuns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	clock := testkit.NewClock()
	inner := testkit.MemoryStore(t, clock.Now)
	s := &switchedStore{Store: inner}
	e := testkit.NewEngine(t, s, clock, testJobTypes()...)
	jobs := liveAndDead(t, e)
	outage := func(long time.Duration) {
		s.Store = unavailableStore{inner}
		if _, err := e.Heartbeat(ctx, engine.Run{Run: jobs[0].Run}, nil); !job.IsKind(err,
			job.Unavailable) {
			t.Fatal(err)
		}
		clock.Advance(long)
		s.Store = inner
	}
	expire := func(want int, when string) {
		if n, err := e.Expire(ctx); n != want || err != nil {
			t.Errorf("%s %d runs were ended: %v", when, n, err)
		}
	}
	outage(40 * time.Second) // past both leases
	expire(0, "right after the outage")
	clock.Advance(20 * time.Second)
	if _, err := e.Heartbeat(ctx, engine.Run{Run: jobs[0].Run}, nil); err != nil {
		t.Error(err)
	}
	clock.Advance(9 * time.Second)
	outage(time.Second)
	expire(1, "a lease later")
}

// Each jump of the clock and each stall of the store is logged once, with its length.
func TestJumpsAreLogged(t *testing.T) {
	t.Parallel()
	clock := testkit.NewClock()
	inner := testkit.MemoryStore(t, clock.Now)
	s := &switchedStore{Store: inner}
	var log bytes.Buffer
	e, err := engine.New(engine.Config{Store: s, Node: "a",
		Random: testkit.RandomBytes, Monotonic: clock.Monotonic,
		Log: slog.New(slog.NewTextHandler(&log,
			&slog.HandlerOptions{Level: slog.LevelDebug,
				ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
						return slog.Attr{}
					}
					return a
				}}))})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	expire := func() {
		if _, err := e.Expire(t.Context()); err != nil && !job.IsKind(err, job.Unavailable) {
			t.Error(err)
		}
	}
	expire()
	for _, jump := range []time.Duration{time.Hour, -2 * time.Hour, time.Second} {
		clock.Jump(jump)
		expire()
		expire()
	}
	s.Store = unavailableStore{inner}
	expire()
	clock.Advance(3 * time.Second)
	expire()
	s.Store = inner
	expire()
	expire()
	clock.Advance(time.Hour)
	expire()
	want := `msg="the clock jumped ahead; runs under way are kept for one more lease" by=1h0m0s
msg="the clock jumped back; leases are cut to their length" by=2h0m0s
msg="the store was unavailable; runs under way are kept for one more lease" by=3s
`
	if got := log.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// switchedStore is a store that a test replaces while the engine runs.
type switchedStore struct{ store.Store }

// refusingStore refuses each update at its end, as where a single one waits too long for a lock.
type refusingStore struct{ store.Store }

func (s refusingStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	return s.Store.Update(ctx, func(tx store.Tx) error { return cmp.Or(fn(tx), error(errLost)) })
}

// An update that the store begins and refuses is no outage: leases go on.
func TestRefusedUpdateIsNoOutage(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	clock := testkit.NewClock()
	inner := testkit.MemoryStore(t, clock.Now)
	s := &switchedStore{Store: inner}
	e := testkit.NewEngine(t, s, clock, testJobTypes()...)
	jobs := liveAndDead(t, e)
	s.Store = refusingStore{inner}
	if _, err := e.Heartbeat(ctx, engine.Run{Run: jobs[0].Run}, nil); !job.IsKind(err,
		job.Unavailable) {
		t.Fatal(err)
	}
	s.Store = inner
	clock.Advance(40 * time.Second)
	if n, err := e.Expire(ctx); n != 2 || err != nil {
		t.Errorf("%d runs were ended: %v", n, err)
	}
}

// Claims that are served together share the bound on the bytes of one transaction; none is answered
// without a job while there is one.
func TestClaimsOfLargeJobsTogether(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	clock := testkit.NewClock()
	e := testkit.NewEngine(t, testkit.MemoryStore(t, clock.Now), clock, testJobTypes()...)
	const jobs = 5
	for i := range jobs {
		s := sub(fmt.Sprint("brief/", i))
		s.Job.Payload = make([]byte, store.MaxReadyBytes/2+1)
		if _, err := e.Submit(ctx, engine.Unique, subs(s)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := engine.ClaimTogether(e, jobs,
		engine.ClaimRequest{JobType: "brief", Queues: []string{"q"}, Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range got {
		if n == 0 {
			t.Errorf("caller %d got nothing: %v", i, got)
		}
	}
}
