package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// awaitClaims starts n claims of the same number of jobs each, and returns where their results
// come, once they are idle.
func awaitClaims(w *world, ctx context.Context, n, each int, queues ...string) chan []*job.Job {
	return startClaims(w, ctx, "brief", 0, n, each, queues...)
}

// startClaims starts n claims, and returns when they and others are idle. Those that get no job end
// with the test, before its store.
func startClaims(w *world, ctx context.Context, jobType string, others, n, each int,
	queues ...string) chan []*job.Job {
	req := engine.ClaimRequest{JobType: jobType, Queues: queues, Max: each, Worker: "w",
		Wait: time.Minute}
	got := make(chan []*job.Job, n)
	ctx, leave := context.WithCancel(ctx)
	var claims sync.WaitGroup
	for range n {
		claims.Go(func() {
			jobs, err := w.engine.Claim(ctx, req)
			if err != nil {
				w.Error(err)
			}
			got <- jobs
		})
	}
	w.Cleanup(claims.Wait)
	w.Cleanup(leave)
	engine.AwaitIdle(w.engine, others+n)
	return got
}

// onCountingStore runs a test on every store with an engine that makes no polls, and passes the
// number of its updates.
func onCountingStore(t *testing.T, jobTypes []engine.JobType,
	test func(w *world, updates func() int64)) {
	onEveryStore(t, jobTypes, func(w *world) {
		s := &countingStore{Store: w.store}
		w.engine = testkit.NewEngine(w, s, w.clock, jobTypes...)
		engine.WithoutPolling(w.engine)
		test(w, s.updates.Load)
	})
}

// A claim that waits gets its job with the commit that stores it: one transaction for both. A claim
// for which there is no job is not woken.
func TestSubmissionServesAClaimThatWaits(t *testing.T) {
	for what, queues := range map[string][]string{"of a queue": {"q"}, "of several": {"r", "q"},
		"of all": nil} {
		t.Run(what, func(t *testing.T) {
			onCountingStore(t, testJobTypes(), func(w *world, updates func() int64) {
				got := awaitClaims(w, w.ctx, 2, 1, queues...)
				before := updates()
				w.submit(sub("brief/a"))
				jobs := <-got
				if len(jobs) != 1 || string(jobs[0].Payload) != "brief/a" ||
					jobs[0].Attempts != 1 || jobs[0].Run.IsZero() {
					t.Errorf("got %+v", jobs)
				}
				engine.AwaitIdle(w.engine, 1)
				if n := updates() - before; n != 1 {
					t.Errorf("%d transactions for a submission and its claim", n)
				}
				w.wantSnapshot(`brief/a: running leased runs=1 until=30s
					brief q: 0 waiting 0 ready 1 leased`)
				w.checkInvariants()
				w.submit(sub("brief/b"), sub("brief/c"))
				if jobs := <-got; len(jobs) != 1 {
					t.Errorf("the second claim got %v", names(jobs))
				}
				w.checkInvariants()
			})
		})
	}
}

// Claims that are matched share the jobs of a submission in the order in which they came, each up
// to the number that it asks for.
func TestSubmissionServesSeveralClaims(t *testing.T) {
	onCountingStore(t, testJobTypes(), func(w *world, updates func() int64) {
		got := awaitClaims(w, w.ctx, 4, 2, "q")
		before := updates()
		w.submit(sub("brief/a"), sub("brief/b", priority(1)), sub("brief/c"),
			sub("brief/other", in("r")), sub("brief/later", due(time.Hour)))
		if first, second := <-got, <-got; len(first)+len(second) != 3 {
			t.Errorf("got %v and %v", names(first), names(second))
		}
		engine.AwaitIdle(w.engine, 2)
		if n := updates() - before; n != 1 {
			t.Errorf("%d transactions", n)
		}
		w.checkInvariants()
		w.engine.Close()
	})
}

// A claim that gets nothing, as its queue is paused or a limit is used up, goes on waiting, and is
// woken when that is over.
func TestMatchedClaimWithoutAJobGoesOnWaiting(t *testing.T) {
	for what, c := range map[string]struct{ before, after func(w *world) }{
		"a pause": {
			func(w *world) {
				w.noError(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "brief",
					Queue: "q", Paused: true}))
			},
			func(w *world) {
				w.noError(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "brief",
					Queue: "q"}))
			},
		},
		"a limit": {
			func(w *world) {
				w.noError(w.engine.LimitQueues(w.ctx, "brief", running(map[string]int{"q": 1})))
				w.submit(sub("brief/first"))
				w.run("brief/first")
			},
			func(w *world) {
				j := w.get("brief/first")
				w.finish(engine.Run{ID: j.ID, Run: j.Run}, job.Succeeded)
			},
		},
	} {
		t.Run(what, func(t *testing.T) {
			onCountingStore(t, testJobTypes(), func(w *world, _ func() int64) {
				c.before(w)
				got := awaitClaims(w, w.ctx, 1, 1, "q")
				w.submit(sub("brief/a"))
				if w.get("brief/a").Phase != job.Ready {
					t.Error("the job was claimed")
				}
				c.after(w)
				if jobs := <-got; len(jobs) != 1 || jobs[0].ID != id("brief/a") {
					t.Errorf("got %v", names(jobs))
				}
				w.checkInvariants()
			})
		})
	}
}

// limitedJobTypes are testJobTypes of which "part" runs at most two jobs at a time.
func limitedJobTypes() []engine.JobType {
	return testJobTypesWith("part", func(c *engine.JobType) { c.MaxRunning = 2 })
}

// A slot that becomes free wakes the claims to which the limit has left too little, and no other:
// where the limit is far away, the end of a run is one transaction.
func TestFreeSlotWakesWhoWaitsForIt(t *testing.T) {
	onCountingStore(t, limitedJobTypes(), func(w *world, updates func() int64) {
		w.submit(sub("part/a"), sub("part/b"))
		a, b := w.run("part/a"), w.run("part/b")
		w.submit(sub("part/c", in("r")))
		got := startClaims(w, w.ctx, "part", 0, 1, 1, "r")
		before := updates()
		w.finish(a, job.Succeeded)
		if jobs := <-got; len(jobs) != 1 || jobs[0].ID != id("part/c") {
			t.Errorf("got %v", names(jobs))
		}
		w.finish(b, job.Succeeded)
		startClaims(w, w.ctx, "part", 0, 1, 1, "q")
		c := w.get("part/c")
		if n := updates() - before; n != 4 {
			t.Errorf("%d transactions for two ends and two claims", n)
		}
		before = updates()
		w.finish(engine.Run{ID: c.ID, Run: c.Run}, job.Succeeded)
		w.engine.Close()
		if n := updates() - before; n != 1 {
			t.Errorf("%d transactions for the end of a run beside claims with no job", n)
		}
		w.checkInvariants()
	})
}

// Each of two claims that wait for slots gets one, also the one that came while the other waited.
func TestFreeSlotsWakeAllWhoWaitForThem(t *testing.T) {
	onCountingStore(t, limitedJobTypes(), func(w *world, _ func() int64) {
		w.submit(sub("part/a"), sub("part/b"))
		a, b := w.run("part/a"), w.run("part/b")
		w.submit(sub("part/c", in("r")), sub("part/d", in("r")))
		first := startClaims(w, w.ctx, "part", 0, 1, 1, "r")
		second := startClaims(w, w.ctx, "part", 1, 1, 1, "r")
		w.finish(a, job.Succeeded)
		w.finish(b, job.Succeeded)
		if n := len(<-first) + len(<-second); n != 2 {
			t.Errorf("got %d jobs", n)
		}
		w.checkInvariants()
	})
}

// A submission does not wait for a limit that another node has locked: its job is claimed later.
func TestSubmissionWaitsForNoLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "postgres", limitedJobTypes())
	got := startClaims(w, w.ctx, "part", 0, 1, 1, "q")
	locked, release := make(chan struct{}), make(chan struct{})
	var holder sync.WaitGroup
	holder.Go(func() {
		w.noError(w.store.Update(w.ctx, func(tx store.Tx) error {
			if err := tx.LockName("runs:part:"); err != nil {
				return err
			}
			close(locked)
			<-release
			return nil
		}))
	})
	<-locked
	w.submit(sub("part/a"))
	close(release)
	holder.Wait()
	if jobs := <-got; len(jobs) != 1 {
		t.Errorf("got %v", names(jobs))
	}
}

// A job that the submission makes ready by ending its run is claimed before one that it stores, as
// it is older.
func TestSubmissionServesTheRunThatItEnds(t *testing.T) {
	onCountingStore(t, testJobTypes(), func(w *world, _ func() int64) {
		w.submit(sub("brief/old"))
		run := w.run("brief/old")
		w.clock.Advance(time.Second)
		got := awaitClaims(w, w.ctx, 1, 1, "q")
		ctx := engine.WithFinish(w.ctx, run, func(*job.Job, time.Time) engine.Outcome {
			return engine.Outcome{On: job.Released, NoAttempt: true}
		})
		w.noError(errOf(w.engine.Submit(ctx, engine.Unique, subs(sub("brief/new")))))
		if jobs := <-got; len(jobs) != 1 || jobs[0].ID != id("brief/old") {
			t.Errorf("got %v", names(jobs))
		}
		w.checkInvariants()
	})
}

// A claim that wakes for a job while it is matched with another one leaves that to another claim.
func TestWakeUpOfAMatchedClaimIsPassedOn(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		counting := &countingStore{Store: w.store}
		s := &failingOnce{Store: counting}
		w.engine = testkit.NewEngine(w, s, w.clock, testJobTypes()...)
		engine.WithoutPolling(w.engine)
		got := awaitClaims(w, w.ctx, 1, 1, "q")
		before := counting.updates.Load()
		s.ran = func() {
			s.ran = nil
			engine.WakeOne(w.engine, "brief", "q")
			engine.AwaitIdle(w.engine, 0)
			go w.engine.Claim(w.ctx, engine.ClaimRequest{JobType: "brief", Queues: []string{"q"},
				Max: 1, Worker: "w", Wait: time.Minute})
			engine.AwaitAdded(w.engine, "brief", "q", 2)
		}
		w.submit(sub("brief/a"))
		if jobs := <-got; len(jobs) != 1 {
			t.Errorf("got %v", names(jobs))
		}
		for counting.updates.Load() < before+3 { // the other claim asks, and asks again
			runtime.Gosched()
		}
		w.checkInvariants()
	})
}

// A wake-up goes to a claim that is not matched: it asks while the submission is under way, which
// may wait for a lock.
func TestWakeUpBesideAMatchedClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "postgres", testJobTypes())
	counting := &countingStore{Store: w.store}
	s := &failingOnce{Store: counting}
	w.engine = testkit.NewEngine(w, s, w.clock, testJobTypes()...)
	engine.WithoutPolling(w.engine)
	got := awaitClaims(w, w.ctx, 1, 1, "q")
	startClaims(w, w.ctx, "brief", 1, 1, 1, "q")
	before := counting.updates.Load()
	var once sync.Once
	s.ran = func() {
		once.Do(func() {
			engine.WakeOne(w.engine, "brief", "q")
			for counting.updates.Load() < before+2 {
				runtime.Gosched()
			}
		})
	}
	w.submit(sub("brief/a"))
	if jobs := <-got; len(jobs) != 1 {
		t.Errorf("got %v", names(jobs))
	}
	w.checkInvariants()
}

// A submission may wait for the transaction of a node that stalls. The claims with which it is
// matched are free meanwhile: one leaves at once, another one gets a job that is stored after it.
func TestMatchedClaimsBesideALock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "postgres", testJobTypes())
	engine.WithoutPolling(w.engine)
	written, release := make(chan struct{}), make(chan struct{})
	s := &failingOnce{Store: w.store, ran: func() { close(written); <-release }}
	s.fails.Store(true)
	stalled := testkit.NewEngine(w, s, w.clock, testJobTypes()...)
	engine.WithoutPolling(stalled)
	var submissions sync.WaitGroup
	submissions.Go(func() {
		if err := errOf(stalled.Submit(w.ctx, engine.Unique,
			subs(sub("brief/a")))); !errors.Is(err, errDiscarded) {
			w.Errorf("got %v", err)
		}
	})
	<-written
	leaver, leave := context.WithCancel(w.ctx)
	left := awaitClaims(w, leaver, 1, 1, "q")
	got := startClaims(w, w.ctx, "brief", 1, 1, 1, "q")
	submissions.Go(func() {
		w.noError(errOf(w.engine.Submit(w.ctx, engine.Unique,
			subs(sub("brief/a"), sub("brief/b")))))
	})
	engine.AwaitMatched(w.engine, "brief", 2)
	leave()
	if jobs := <-left; len(jobs) > 0 {
		t.Errorf("the leaver got %v", names(jobs))
	}
	w.submit(sub("brief/c"))
	if jobs := <-got; len(jobs) != 1 || jobs[0].ID != id("brief/c") {
		t.Errorf("got %v", names(jobs))
	}
	close(release)
	submissions.Wait()
	if jobs := w.claim("brief", 3, "q"); len(jobs) != 2 {
		t.Errorf("got %v", names(jobs))
	}
	w.checkInvariants()
}

// A claim that waits for a slot and leaves has another one wait for it.
func TestFreeSlotIsPassedOn(t *testing.T) {
	onCountingStore(t, limitedJobTypes(), func(w *world, updates func() int64) {
		w.submit(sub("part/a"), sub("part/b"))
		a := w.run("part/a")
		leaver, leave := context.WithCancel(w.ctx)
		left := startClaims(w, leaver, "part", 0, 1, 1, "r")
		got := startClaims(w, w.ctx, "part", 1, 1, 1, "r")
		w.run("part/b") // has the last slot
		before := updates()
		w.submit(sub("part/c", in("r"))) // wakes the leaver, which finds no slot
		for updates() < before+2 {
			runtime.Gosched()
		}
		engine.AwaitWaiting(w.engine, engine.ClaimRequest{JobType: "part",
			Queues: []string{"r"}}, 2)
		engine.AwaitIdle(w.engine, 2)
		leave()
		if jobs := <-left; len(jobs) > 0 {
			t.Errorf("the leaver got %v", names(jobs))
		}
		w.finish(a, job.Succeeded)
		if jobs := <-got; len(jobs) != 1 || jobs[0].ID != id("part/c") {
			t.Errorf("got %v", names(jobs))
		}
		w.checkInvariants()
	})
}

// A claim that comes while another one waits for the same asks the store only where other processes
// write to it.
func TestClaimBesideOneThatWaits(t *testing.T) {
	onCountingStore(t, testJobTypes(), func(w *world, updates func() int64) {
		got := awaitClaims(w, w.ctx, 1, 1, "q")
		before := updates()
		more := startClaims(w, w.ctx, "brief", 1, 1, 1, "q")
		want := int64(min(w.store.Writers()-1, 1))
		if n := updates() - before; n != want {
			t.Errorf("the second claim made %d transactions, want %d", n, want)
		}
		startClaims(w, w.ctx, "brief", 2, 1, 1, "q", "r")
		if n := updates() - before; n != want+1 {
			t.Errorf("a claim for other queues made %d transactions", n-want)
		}
		w.submit(sub("brief/a"), sub("brief/b"))
		if first, second := <-got, <-more; len(first)+len(second) != 2 {
			t.Errorf("got %v and %v", names(first), names(second))
		}
		w.engine.Close()
		w.checkInvariants()
	})
}

// failingOnce fails the next update after it has run, if it is told so. ran is called when it has.
type failingOnce struct {
	store.Store
	fails atomic.Bool
	ran   func()
}

func (s *failingOnce) Update(ctx context.Context, fn func(store.Tx) error) error {
	return s.Store.Update(ctx, func(tx store.Tx) error {
		err := fn(tx)
		if s.ran != nil {
			s.ran()
		}
		if err == nil && s.fails.CompareAndSwap(true, false) {
			return errDiscarded
		}
		return err
	})
}

// A claim that is matched with a submission that fails gets nothing of it and goes on waiting.
func TestMatchedClaimOfAFailedSubmission(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		s := &failingOnce{Store: w.store}
		w.engine = testkit.NewEngine(w, s, w.clock, testJobTypes()...)
		engine.WithoutPolling(w.engine)
		got := awaitClaims(w, w.ctx, 1, 1, "q")
		s.fails.Store(true)
		if err := errOf(w.engine.Submit(w.ctx, engine.Unique,
			subs(sub("brief/a")))); !errors.Is(err, errDiscarded) {
			t.Errorf("got %v", err)
		}
		engine.AwaitIdle(w.engine, 1)
		w.wantSnapshot("")
		w.submit(sub("brief/b"))
		if jobs := <-got; len(jobs) != 1 || jobs[0].ID != id("brief/b") || jobs[0].Attempts != 1 {
			t.Errorf("got %v", names(jobs))
		}
		w.checkInvariants()
	})
}

// A transaction may run again. A claim that its first try has taken, and whose caller has left
// since, does not wait for the second.
func TestClaimTakenInVain(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		s := &failingOnce{Store: w.store}
		w.engine = testkit.NewEngine(w, rerunStore{s}, w.clock, testJobTypes()...)
		engine.WithoutPolling(w.engine)
		ctx, leave := context.WithCancel(w.ctx)
		got := awaitClaims(w, ctx, 1, 1, "q")
		second := func() {
			select {
			case jobs := <-got:
				if len(jobs) > 0 {
					t.Errorf("got %v", names(jobs))
				}
			case <-w.ctx.Done():
				t.Error("the claim waits for the second try")
			}
		}
		s.ran = func() {
			s.ran = second
			leave()
			engine.AwaitIdle(w.engine, 0)
		}
		w.submit(sub("brief/a"))
		w.wantSnapshot("brief/a: queued ready\nbrief q: 0 waiting 1 ready 0 leased")
		w.checkInvariants()
	})
}

// A caller that leaves while its claim is matched gets nothing, and the job is released at once.
func TestMatchedClaimOfALeavingCaller(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		s := &failingOnce{Store: w.store}
		w.engine = testkit.NewEngine(w, s, w.clock, testJobTypes()...)
		engine.WithoutPolling(w.engine)
		ctx, leave := context.WithCancel(w.ctx)
		got := awaitClaims(w, ctx, 1, 1, "q")
		s.ran = leave
		w.submit(sub("brief/a"))
		if jobs := <-got; len(jobs) > 0 {
			t.Errorf("got %v", names(jobs))
		}
		w.wantSnapshot("brief/a: queued ready\nbrief q: 0 waiting 1 ready 0 leased")
		w.checkInvariants()
	})
}

// Submissions, some of which are refused, and claims, some of whose callers leave, meet in every
// order: without any poll each job is claimed once and by one caller, or was released.
func TestMatchesLoseNoJob(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		engine.WithoutPolling(w.engine)
		w.submit(sub("brief/there", in("r")))
		const submitters, each, claimers = 6, 40, 8
		var mu sync.Mutex
		claimed := map[job.ID]int{}
		all := make(chan struct{})
		stop, cancel := context.WithCancel(w.ctx)
		defer cancel()
		var workers, producers sync.WaitGroup
		for i := range claimers {
			random := rand.New(rand.NewPCG(uint64(i), 41))
			workers.Go(func() {
				for stop.Err() == nil {
					jobs := claimBriefly(w, stop, random)
					mu.Lock()
					for _, j := range jobs {
						claimed[j.ID]++
					}
					if len(jobs) > 0 && len(claimed) == submitters*each {
						close(all)
					}
					mu.Unlock()
				}
			})
		}
		for i := range submitters {
			producers.Go(func() {
				for k := range each {
					one := sub(fmt.Sprintf("brief/%d-%d", i, k))
					if k%8 == 0 {
						w.wantKind(errOf(w.engine.Submit(w.ctx, engine.Unique,
							subs(one, sub("brief/there")))), job.Conflict)
					}
					w.noError(errOf(w.engine.Submit(w.ctx, engine.Unique, subs(one))))
				}
			})
		}
		producers.Wait()
		select {
		case <-all:
		case <-w.ctx.Done():
			t.Error("jobs were left lying")
		}
		cancel()
		workers.Wait()
		for id, n := range claimed {
			if n != 1 {
				t.Errorf("%s was claimed %d times", id.Key, n)
			}
		}
		w.checkInvariants()
	})
}

// claimBriefly claims one or two jobs, and one time of four the caller leaves soon.
func claimBriefly(w *world, ctx context.Context, random *rand.Rand) []*job.Job {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if stays := random.IntN(8000); stays < 2000 {
		go func() {
			for range stays {
				runtime.Gosched()
			}
			cancel()
		}()
	}
	jobs, err := w.engine.Claim(ctx, engine.ClaimRequest{JobType: "brief", Queues: []string{"q"},
		Max: 1 + random.IntN(2), Worker: "w", Wait: time.Minute})
	w.noError(err)
	return jobs
}
