package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// RL-093: several nodes sweep and claim at once; each timeout is counted once and each job promoted
// once.
func TestSweepsCountOnce(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		nodes := []*engine.Engine{w.engine, w.node(testJobTypes()), w.node(testJobTypes())}
		var batch []engine.Submission
		for i := range 400 {
			batch = append(batch, sub(fmt.Sprint("graph/lost", i)),
				sub(fmt.Sprint("phased/due", i), due(time.Minute)))
		}
		w.submit(batch...)
		w.claim("graph", 400)
		w.clock.Advance(time.Minute)
		var wg sync.WaitGroup
		var mu sync.Mutex
		expired, promoted := 0, 0
		for i := range 12 {
			e := nodes[i%3]
			wg.Go(func() {
				for range 4 {
					n, err := e.Expire(w.ctx)
					m, err2 := e.Promote(w.ctx)
					if err := errors.Join(err, err2); err != nil {
						w.Error(err)
					}
					mu.Lock()
					expired, promoted = expired+n, promoted+m
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if expired != 400 || promoted != 400 {
			w.Errorf("%d expired, %d promoted", expired, promoted)
		}
		jobs, err := w.engine.List(w.ctx, store.Filter{})
		w.noError(err)
		for _, j := range jobs {
			if (j.ID.JobType == "graph" &&
				(j.FailedAttempts != 1 || !j.DueAt.Equal(w.clock.Now().Add(10*time.Second)))) ||
				(j.ID.JobType == "phased" && j.State != "queued") {
				w.Errorf("%+v", j)
			}
		}
		w.checkInvariants()
	})
}

// Leases and run ids survive a restart: a worker that outlives the server goes on, one that does
// not loses its job when its lease has ended and not before.
func TestLeasesSurviveRestarts(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("graph/a"), sub("graph/b", limit(1)), sub("phased/a", due(time.Minute)))
		jobs := w.claim("graph", 2)
		w.clock.Advance(20 * time.Second)
		w.reopen()
		w.noError(errOf(w.engine.Heartbeat(w.ctx, engine.Run{Run: jobs[0].Run}, []byte("50%"))))
		if n, err := w.engine.Expire(w.ctx); n != 0 || err != nil {
			w.Fatal(n, err)
		}
		w.clock.Advance(10 * time.Second)
		w.reopen()
		if n, err := w.engine.Expire(w.ctx); n != 1 || err != nil {
			w.Fatal(n, err)
		}
		w.finish(engine.Run{Run: jobs[0].Run}, job.Succeeded)
		w.wantKind(errOf(w.engine.Finish(w.ctx, engine.Run{Run: jobs[1].Run},
			engine.Outcome{On: job.Succeeded})), job.RunLost)
		w.wantSnapshot(`graph/a: completed done runs=1 progress=50% [submitted>pending satisfied>ready claimed>running succeeded>completed]
			graph/b: failed done runs=1 failures=1 [submitted>pending satisfied>ready claimed>running expired_for_good>failed]
			phased/a: created waiting due=30s [submitted>created]
			phased q: 1 waiting 0 ready 0 leased
			dead graph/b expired_for_good payload= failure=`)
	})
}

// A jump of the clock forward does not end live leases; a run whose worker is really gone is found
// within its lease from then on, by each verb that expires.
func TestClockJumpsForward(t *testing.T) {
	for what, find := range map[string]func(w *world) int{
		"expire": func(w *world) int { n, err := w.engine.Expire(w.ctx); w.noError(err); return n },
		"claim":  func(w *world) int { return len(w.claim("brief", 9)) },
		"claim by key": func(w *world) int {
			if _, err := w.engine.ClaimJob(w.ctx, id("brief/dead"), "w"); err == nil {
				return 1
			}
			return 0
		},
	} {
		t.Run(what, func(t *testing.T) {
			onEveryStore(t, testJobTypes(), func(w *world) {
				w.submit(sub("brief/live"), sub("brief/dead"))
				live := engine.Run{Run: w.claim("brief", 1)[0].Run}
				w.claim("brief", 1)
				w.clock.Advance(10 * time.Second)
				w.noError(errOf(w.engine.Heartbeat(w.ctx, live, nil)))
				w.clock.Jump(time.Hour)
				if n := find(w); n > 0 {
					w.Errorf("%d found at the jump", n)
				}
				w.clock.Advance(20 * time.Second)
				w.noError(errOf(w.engine.Heartbeat(w.ctx, live, nil)))
				if n := find(w); n > 0 {
					w.Errorf("%d found 20 s after the jump", n)
				}
				w.clock.Advance(10 * time.Second)
				if n := find(w); n != 1 {
					w.Errorf("%d found one lease after the jump", n)
				}
				w.noError(errOf(w.engine.Heartbeat(w.ctx, live, nil)))
				w.clock.Advance(29 * time.Second)
				w.finish(live, job.Succeeded)
				w.checkInvariants()
			})
		})
	}
}

// Time that passes without an update of the store is no jump.
func TestLongSilenceIsNoJump(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("brief/a"))
		w.run("brief/a")
		w.clock.Advance(time.Hour)
		if n, err := w.engine.Expire(w.ctx); n != 1 || err != nil {
			w.Error(n, err)
		}
	})
}

// A jump of the clock back neither lets leases last for its length nor delays what had been claimed
// before.
func TestClockJumpsBack(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("brief/live"), sub("brief/dead"), sub("brief/released"), sub("brief/ready"))
		jobs := w.claim("brief", 3)
		w.clock.Jump(-time.Hour)
		w.noError(errOf(w.engine.Expire(w.ctx))) // notices
		w.noError(errOf(w.engine.Expire(w.ctx))) // cuts
		w.finish(engine.Run{Run: jobs[2].Run}, job.Released)
		w.wantSnapshot(`brief/dead: running leased runs=1 due=1h0m0s until=30s
			brief/live: running leased runs=1 due=1h0m0s until=30s
			brief/ready: queued ready due=1h0m0s
			brief/released: queued ready runs=1 due=1h0m0s
			brief q: 0 waiting 2 ready 2 leased`)
		w.clock.Advance(20 * time.Second)
		w.noError(errOf(w.engine.Heartbeat(w.ctx, engine.Run{Run: jobs[0].Run}, nil)))
		w.clock.Advance(10 * time.Second)
		if n, err := w.engine.Expire(w.ctx); n != 1 || err != nil {
			w.Error(n, err)
		}
		if got, want := names(w.claim("brief", 9)),
			[]string{"brief/dead", "brief/released", "brief/ready"}; !slices.Equal(got, want) {
			w.Errorf("got %v, want %v", got, want)
		}
		w.finish(engine.Run{Run: jobs[0].Run}, job.Succeeded)
		w.checkInvariants()
	})
}

// A clock that jumped ahead and is set back keeps no lease for the length of the jump.
func TestClockJumpsAheadAndBack(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("brief/before"), sub("brief/between"), sub("brief/after"))
		expires := func() int { n, err := w.engine.Expire(w.ctx); w.noError(err); return n }
		w.claim("brief", 1)
		w.clock.Jump(time.Hour)
		expires() // notices
		w.claim("brief", 1)
		w.clock.Jump(-time.Hour)
		expires() // notices
		expires() // cuts
		w.claim("brief", 1)
		w.clock.Advance(29 * time.Second)
		if n := expires(); n > 0 {
			w.Errorf("%d leases ended before their time", n)
		}
		w.clock.Advance(time.Second)
		if n := expires(); n != 3 {
			w.Errorf("%d leases ended one lease after the clock was set back, want 3", n)
		}
		w.checkInvariants()
	})
}

// A job type whose messages are not published holds up no other, however many there are.
func TestOutletsAreApart(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		batch := make([]engine.Submission, 1200)
		for i := range batch {
			batch[i] = sub(fmt.Sprint("graph/", i))
		}
		posted := w.engine.OutboxReady("phased")
		w.submit(batch...)
		w.submit(sub("phased/a"))
		unavailable := errors.New("the receiver is unavailable")
		if n, err := w.engine.Publish(w.ctx, func(context.Context, []job.Message) error {
			return unavailable
		}, "graph"); n != 0 || !errors.Is(err, unavailable) {
			w.Errorf("published %d, %v", n, err)
		}
		select {
		case <-posted:
		default:
			w.Error("the hook was not called")
		}
		n, err := w.engine.Publish(w.ctx, func(_ context.Context, all []job.Message) error {
			for _, m := range all {
				if name(m.JobID) != "phased/a" {
					w.Errorf("got %v", m.JobID)
				}
			}
			return nil
		}, "phased")
		if n != 2 || err != nil {
			w.Errorf("published %d, %v", n, err)
		}
		last := int64(0)
		other := w.node(testJobTypes())
		n, err = other.Publish(w.ctx, func(_ context.Context, all []job.Message) error {
			for _, m := range all {
				if m.ID <= last {
					w.Errorf("message %d after %d", m.ID, last)
				}
				last = m.ID
			}
			return nil
		}, "phased", "graph") // another publisher, and another node
		if n != 2400 || err != nil {
			w.Errorf("published %d, %v", n, err)
		}
	})
}

// At least once, in order per job, by one of two nodes; what a crash between delivering and
// dropping leaves is delivered again, with the same ids.
func TestPublish(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		other := w.node(testJobTypes())
		for i := range 3 {
			w.submit(sub(fmt.Sprint("phased/", i)))
		}
		var got []string
		var ids []int64
		deliver := func(fail error) func(context.Context, []job.Message) error {
			return func(_ context.Context, batch []job.Message) error {
				for _, m := range batch {
					got = append(got, m.JobID.Key+" "+string(m.Next))
					ids = append(ids, m.ID)
				}
				return fail
			}
		}
		crash := errors.New("crash")
		if n, err := w.engine.Publish(w.ctx, deliver(crash)); n != 0 || !errors.Is(err, crash) {
			w.Error(n, err)
		}
		if n, err := other.Publish(w.ctx, deliver(nil)); n != 0 || err != nil {
			w.Errorf("the node that was not elected published %d, %v", n, err)
		}
		w.noError(other.ReleaseLeadershipOf(w.ctx, "another that has ended"))
		if n, err := other.Publish(w.ctx, deliver(nil)); n != 0 || err != nil {
			w.Errorf("published %d, %v in the term of a node that may live", n, err)
		}
		w.clock.Advance(31 * time.Second) // the term of the one that crashed ends
		if n, err := other.Publish(w.ctx, deliver(nil)); n != 6 || err != nil {
			w.Error(n, err)
		}
		want := []string{"0 created", "0 queued", "1 created", "1 queued", "2 created", "2 queued"}
		if !slices.Equal(got, append(want, want...)) || !slices.Equal(ids[:6], ids[6:]) ||
			!slices.IsSorted(ids[:6]) {
			w.Errorf("delivered %v with ids %v", got, ids)
		}
		w.submit(sub("phased/3"))
		if n, err := w.engine.Publish(w.ctx, deliver(nil)); n != 0 || err != nil {
			w.Errorf("published %d, %v in the other's term", n, err)
		}
		w.noError(other.ReleaseLeadership(w.ctx))
		if n, err := w.engine.Publish(w.ctx, deliver(nil)); n != 2 || err != nil {
			w.Error(n, err)
		}
		if n, err := w.engine.Publish(w.ctx, deliver(crash)); n != 0 || err != nil {
			w.Errorf("published %d, %v of nothing", n, err)
		}
	})
}

// Messages of a job stay in order while it moves and several nodes publish.
func TestPublishKeepsOrder(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		nodes := []*engine.Engine{w.engine, w.node(testJobTypes())}
		var mu sync.Mutex
		last, seen := map[string]int64{}, map[int64]bool{}
		state := map[string]job.State{}
		deliver := func(_ context.Context, batch []job.Message) error {
			mu.Lock()
			defer mu.Unlock()
			for _, m := range batch {
				key := m.JobID.Key
				if seen[m.ID] || m.ID <= last[key] || m.Prev != state[key] {
					w.Errorf("%+v after %d %s", m, last[key], state[key])
				}
				seen[m.ID], last[key], state[key] = true, m.ID, m.Next
			}
			return nil
		}
		done := make(chan struct{})
		var workers, publishers sync.WaitGroup
		for i := range 4 {
			workers.Go(func() {
				for k := range 15 {
					key := fmt.Sprintf("phased/%d-%d", i, k)
					if _, err := nodes[k%2].Submit(w.ctx, engine.Unique,
						subs(sub(key))); err != nil {
						w.Error(err)
					}
					j, err := nodes[(k+1)%2].ClaimJob(w.ctx, id(key), "w")
					if err != nil {
						w.Error(err)
						continue
					}
					for _, on := range []job.Cause{job.Started, job.Succeeded} {
						if _, err := nodes[k%2].Finish(w.ctx, engine.Run{Run: j.Run},
							engine.Outcome{On: on}); err != nil {
							w.Error(err)
						}
					}
				}
			})
		}
		for _, e := range nodes {
			publishers.Go(func() {
				for results := false; ; {
					n, err := e.Publish(w.ctx, deliver)
					if err != nil {
						w.Error(err)
					}
					if results && n == 0 {
						return
					}
					select {
					case <-done:
						results = true
					default:
					}
				}
			})
		}
		workers.Wait()
		close(done)
		publishers.Wait()
		if len(seen) != 4*15*5 {
			w.Errorf("%d messages were delivered", len(seen))
		}
	})
}

// C-18: what is old goes in batches, with its history; what is younger, open or of a job type that
// keeps for ever stays.
func TestPrune(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		var batch []engine.Submission
		for i := range 250 {
			batch = append(batch, sub(fmt.Sprint("phased/", i)))
		}
		w.submit(append(batch, sub("graph/kept"), sub("locked/dead"))...)
		finishAll := func(jobType string) {
			for _, j := range w.claim(jobType, 300) {
				w.noError(errOf(w.engine.Start(w.ctx, engine.Run{Run: j.Run})))
				w.noError(errOf(w.engine.Finish(w.ctx, engine.Run{Run: j.Run},
					engine.Outcome{On: job.FailedForGood})))
			}
		}
		finishAll("phased")
		finishAll("graph")
		finishAll("locked")
		w.noError(errOf(w.engine.Retry(w.ctx, id("phased/7"), 0))) // C-03: it is final no more
		w.clock.Advance(time.Hour)
		w.submit(sub("phased/young"))
		w.noError(errOf(w.engine.Prune(w.ctx)))
		w.clock.Advance(10 * time.Microsecond) // the transitions of a job are a microsecond apart
		var removed []int
		for {
			n, err := w.engine.Prune(w.ctx)
			w.noError(err)
			if n == 0 {
				break
			}
			removed = append(removed, n)
		}
		want := []int{201, 49}
		if w.store.Writers() > 1 { // its transactions hold up no others, so they delete more
			want = []int{250}
		}
		if !slices.Equal(removed, want) {
			w.Errorf("removed %v, want %v", removed, want)
		}
		w.checkInvariants()
		w.wantStates("phased", "7=queued young=queued")
		w.wantStates("graph", "kept=failed")
		if l, err := w.deadLettersOf("locked", 0); len(l) > 0 || err != nil {
			w.Error(l, err)
		}
		if l, err := w.deadLettersOf("graph", 0); len(l) != 1 || err != nil {
			w.Error(l, err)
		}
	})
}

// Another node may serve job types that this one does not have; their jobs are left alone and do
// not hold up the others.
func TestJobsOfUnknownJobTypesAreLeftAlone(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("brief/a"), sub("brief/due", due(time.Second)), sub("locked/a"))
		w.claim("brief", 1)
		w.noError(errOf(w.engine.ClaimJob(w.ctx, id("locked/a"), "w")))
		w.clock.Advance(time.Minute)
		part := w.node([]engine.JobType{{Name: "locked", Machine: locked, History: true}})
		if n, err := part.Expire(w.ctx); n != 1 || err != nil {
			w.Error(n, err)
		}
		if n, err := part.Promote(w.ctx); n != 0 || err != nil {
			w.Error(n, err)
		}
		w.wantSnapshot(`brief/a: running leased runs=1 until=-30s
			brief/due: queued waiting
			locked/a: stale ready runs=1 failures=1 [submitted>queued claimed>processing expired>stale]
			brief q: 1 waiting 0 ready 1 leased
			locked q: 0 waiting 1 ready 0 leased`)
	})
}

func TestNextDue(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		expect := func(wantDue, wantLease time.Duration, wantSignal bool) {
			w.Helper()
			due, lease, err := w.engine.NextDue(w.ctx)
			w.noError(err)
			signaled := false
			select {
			case <-w.engine.DueChanged():
				signaled = true
			default:
			}
			if due != wantDue || lease != wantLease || signaled != wantSignal {
				w.Errorf("due in %v, lease ends in %v, signal %v; want %v, %v, %v", due, lease,
					signaled, wantDue, wantLease, wantSignal)
			}
		}
		never := engine.DueHorizon
		expect(never, never, false)
		w.submit(sub("brief/far", due(time.Hour)))
		expect(never, never, false)
		w.submit(sub("brief/near", due(300*time.Millisecond)))
		expect(300*time.Millisecond, never, true)
		w.clock.Advance(time.Second)
		expect(0, never, false)
		w.submit(sub("brief/leased"))
		leased := w.claim("brief", 1)[0]
		w.clock.Advance(leased.LeaseUntil.Sub(w.clock.Now()) - 200*time.Millisecond)
		expect(0, 200*time.Millisecond, false)
		w.clock.Advance(time.Second)
		expect(0, 0, false)
	})
}
