package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// A heartbeat that was sent in time and waits behind a store that stalls wins
// over the sweep that is before it in line. A worker that stays silent loses its
// job one lease later.
func TestAStallIsNotTheWorkersSilence(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	clock := testkit.NewClock()
	s := testkit.Memory(t, clock.Now)
	e := testkit.Engine(t, s, clock, made()...)
	if _, err := e.Submit(ctx, engine.Unique, subs(sub("brief/live"), sub("brief/dead"))); err != nil {
		t.Fatal(err)
	}
	jobs, err := e.Claim(ctx, engine.ClaimRequest{Contract: "brief", Queues: []string{"q"}, Max: 2})
	if err != nil || len(jobs) != 2 {
		t.Fatal(jobs, err)
	}
	clock.Advance(10 * time.Second)

	held, release := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		if err := s.Update(ctx, func(store.Tx) error { close(held); <-release; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-held
	all.Go(func() {
		if n, err := e.Expire(ctx); n != 0 || err != nil {
			t.Errorf("the sweep after the stall ended %d runs: %v", n, err)
		}
	})
	engine.AwaitUpdates(e, 1)
	all.Go(func() {
		if _, err := e.Beat(ctx, engine.Run{Run: jobs[0].Run}, nil); err != nil {
			t.Errorf("the beat that waited: %v", err)
		}
	})
	engine.AwaitUpdates(e, 2)
	clock.Advance(40 * time.Second) // past both leases
	close(release)
	all.Wait()

	clock.Advance(20 * time.Second)
	if _, err := e.Beat(ctx, engine.Run{Run: jobs[0].Run}, nil); err != nil {
		t.Error(err)
	}
	clock.Advance(11 * time.Second) // a lease after the stall
	if n, err := e.Expire(ctx); n != 1 || err != nil {
		t.Errorf("%d silent runs were ended one lease later: %v", n, err)
	}
}

// A heartbeat that a store refused while it was away counts when the store is
// back; a single refusal is no outage.
func TestAnOutageIsNotTheWorkersSilence(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	clock := testkit.NewClock()
	there := testkit.Memory(t, clock.Now)
	s := &switched{Store: there}
	e := testkit.Engine(t, s, clock, made()...)
	if _, err := e.Submit(ctx, engine.Unique, subs(sub("brief/live"), sub("brief/dead"))); err != nil {
		t.Fatal(err)
	}
	jobs, err := e.Claim(ctx, engine.ClaimRequest{Contract: "brief", Queues: []string{"q"}, Max: 2})
	if err != nil || len(jobs) != 2 {
		t.Fatal(jobs, err)
	}
	outage := func(long time.Duration) {
		s.Store = away{there}
		if _, err := e.Beat(ctx, engine.Run{Run: jobs[0].Run}, nil); !job.IsKind(err, job.Unavailable) {
			t.Fatal(err)
		}
		clock.Advance(long)
		s.Store = there
	}
	expire := func(want int, when string) {
		if n, err := e.Expire(ctx); n != want || err != nil {
			t.Errorf("%s %d runs were ended: %v", when, n, err)
		}
	}
	outage(40 * time.Second) // past both leases
	expire(0, "right after the outage")
	clock.Advance(20 * time.Second)
	if _, err := e.Beat(ctx, engine.Run{Run: jobs[0].Run}, nil); err != nil {
		t.Error(err)
	}
	clock.Advance(9 * time.Second)
	outage(time.Second)
	expire(1, "a lease later")
}

// switched is whichever store it is set to.
type switched struct{ store.Store }

// Claims that come together share the bound on bytes of one look; nobody is
// told that there is nothing while there is.
func TestClaimsOfLargeJobsTogether(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	clock := testkit.NewClock()
	e := testkit.Engine(t, testkit.Memory(t, clock.Now), clock, made()...)
	const jobs = 5
	for i := range jobs {
		s := sub(fmt.Sprint("brief/", i))
		s.Job.Payload = make([]byte, store.ReadyBytes/2+1)
		if _, err := e.Submit(ctx, engine.Unique, subs(s)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := engine.ClaimTogether(e, jobs, engine.ClaimRequest{Contract: "brief", Queues: []string{"q"}, Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range got {
		if n == 0 {
			t.Errorf("caller %d got nothing: %v", i, got)
		}
	}
}
