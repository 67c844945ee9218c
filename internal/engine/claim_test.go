package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

func TestClaimOrder(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		old := func(s *engine.Submission) { s.Job.OrderTime = w.clock.Now().Add(-time.Minute) }
		w.submit(sub("brief/c"), sub("brief/a"), sub("brief/low", priority(-1), old),
			sub("brief/high", priority(1)),
			sub("brief/old", old), sub("brief/q2", in("q2"), old),
			sub("brief/q3", in("q3"), priority(5)))
		if got, want := names(w.claim("brief", 2, "q")),
			[]string{"brief/high", "brief/old"}; !slices.Equal(got, want) {
			w.Errorf("got %v, want %v", got, want)
		}
		if got, want := names(w.claim("brief", 2, "q2", "q", "q2", "empty")),
			[]string{"brief/q2", "brief/c"}; !slices.Equal(got, want) {
			w.Errorf("got %v, want %v", got, want)
		}
		if got, want := names(w.claim("brief", 9)),
			[]string{"brief/q3", "brief/a", "brief/low"}; !slices.Equal(got, want) {
			w.Errorf("got %v, want %v", got, want)
		}
		if got := w.claim("brief", 9); len(got) > 0 {
			w.Errorf("got %v of nothing", names(got))
		}
		w.checkInvariants()
	})
}

func TestClaimReturnsWhatIsStored(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("brief/a", with(func(j *job.Job) {
			j.Definition, j.Progress = []byte("{}"), []byte("7")
		})))
		w.clock.Advance(time.Second)
		j := w.claim("brief", 1, "q")[0]
		stored := *w.get("brief/a")
		if fmt.Sprintf("%+v", *j) != fmt.Sprintf("%+v", stored) {
			w.Errorf("claimed %+v\nstored  %+v", *j, stored)
		}
		if j.Run.Seq() != j.Seq || j.Worker != "worker" || j.Attempts != 1 ||
			!j.StartedAt.Equal(w.clock.Now()) || !j.LeaseUntil.Equal(w.clock.Now().Add(j.Lease)) {
			w.Errorf("claimed %+v", *j)
		}
	})
}

// G-RL-17: a claim that finds too little expires and promotes jobs itself, in one queue, in
// several, in all; it gets them in claim order.
func TestClaimExpiresAndPromotes(t *testing.T) {
	for _, queues := range [][]string{{"q"}, {"q", "r"}, nil} {
		t.Run(fmt.Sprint(len(queues)), func(t *testing.T) {
			onEveryStore(t, testJobTypes(), func(w *world) {
				w.submit(sub("brief/lost"))
				w.run("brief/lost")
				w.clock.Advance(time.Second)
				w.submit(sub("brief/due", due(20*time.Second)), sub("brief/ready"),
					sub("brief/far", due(time.Hour)), sub("graph/lost"))
				w.run("graph/lost")
				w.clock.Advance(31 * time.Second)
				if got, want := names(w.claim("brief", 9, queues...)),
					[]string{"brief/lost", "brief/due", "brief/ready"}; !slices.Equal(got, want) {
					w.Errorf("got %v, want %v", got, want)
				}
				w.wantSnapshot(`brief/due: running leased runs=1 until=30s
					brief/far: queued waiting due=59m28s
					brief/lost: running leased runs=2 failures=1 until=30s
					brief/ready: running leased runs=1 until=30s
					graph/lost: ready waiting runs=1 failures=1 due=10s [submitted>pending satisfied>ready claimed>running expired>ready]
					brief q: 1 waiting 0 ready 3 leased
					graph q: 1 waiting 0 ready 0 leased`)
			})
		})
	}
}

// A job whose lease has expired and that is claimed by its identity keeps what LostFailure says of
// the run that was lost.
func TestClaimJobKeepsLostFailure(t *testing.T) {
	onEveryStore(t, testJobTypesWith("locked", func(c *engine.JobType) {
		c.LostFailure = []byte("the worker was lost")
	}), func(w *world) {
		w.submit(sub("locked/a", limit(3)))
		w.noError(errOf(w.engine.ClaimJob(w.ctx, id("locked/a"), "w")))
		w.clock.Advance(30 * time.Second)
		again, err := w.engine.ClaimJob(w.ctx, id("locked/a"), "w")
		w.noError(err)
		for what, j := range map[string]*job.Job{"claimed": again, "stored": w.get("locked/a")} {
			if string(j.Failure) != "the worker was lost" || string(j.Payload) != "locked/a" {
				w.Errorf("%s: failure %q, payload %q", what, j.Failure, j.Payload)
			}
		}
	})
}

func TestClaimJob(t *testing.T) {
	onEveryStore(t, testJobTypesWith("locked", func(c *engine.JobType) {
		c.MaxRunning = 2
	}), func(w *world) {
		claim := func(key string) (*job.Job, error) {
			return w.engine.ClaimJob(w.ctx, id("locked/"+key), "w")
		}
		w.submit(sub("locked/a", limit(2)), sub("locked/b"), sub("locked/c"),
			sub("locked/later", due(time.Hour)), sub("locked/paused", in("p")))
		w.wantKind(errOf(claim("none")), job.NotFound)
		w.wantKind(errOf(claim("later")), job.Conflict)
		w.noError(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "locked", Queue: "p",
			Paused: true}))
		w.wantKind(errOf(claim("paused")), job.Conflict)
		first, err := claim("a")
		w.noError(err)
		if string(first.Payload) != "locked/a" || first.Attempts != 1 || first.Run.IsZero() {
			w.Errorf("claimed %+v", first)
		}
		w.wantKind(errOf(claim("a")), job.Conflict)
		w.noError(errOf(claim("b")))
		w.wantKind(errOf(claim("c")), job.Conflict) // the limit of the job type
		// IP-044, G-IP-03: a stale lock is taken over, which counts as an attempt and keeps the old
		// owner out (G-IP-04).
		w.clock.Advance(30 * time.Second)
		again, err := claim("a")
		w.noError(err)
		w.wantKind(errOf(w.engine.Finish(w.ctx, engine.Run{Run: first.Run},
			engine.Outcome{On: job.Succeeded})), job.RunLost)
		w.noError(errOf(w.engine.Heartbeat(w.ctx, engine.Run{ID: id("locked/a"), Run: again.Run},
			nil)))
		w.wantSnapshot(`locked/a: processing leased runs=2 failures=1 until=30s [submitted>queued claimed>processing expired>stale claimed>processing]
			locked/b: processing leased runs=1 until=0s [submitted>queued claimed>processing]
			locked/c: queued ready [submitted>queued]
			locked/later: queued waiting due=59m30s [submitted>queued]
			locked/paused: queued ready [submitted>queued]
			locked p: 0 waiting 1 ready 0 leased
			locked q: 1 waiting 1 ready 2 leased`)
		// With the attempts used up there is nothing to take over.
		w.clock.Advance(time.Minute)
		w.wantKind(errOf(claim("a")), job.Conflict)
		if n, err := w.engine.Expire(w.ctx); n != 2 || err != nil {
			w.Error(n, err)
		}
		w.wantSnapshot(`locked/a: failed done runs=2 failures=2 [submitted>queued claimed>processing expired>stale claimed>processing expired_for_good>failed]
			locked/b: stale ready runs=1 failures=1 [submitted>queued claimed>processing expired>stale]
			locked/c: queued ready [submitted>queued]
			locked/later: queued waiting due=58m30s [submitted>queued]
			locked/paused: queued ready [submitted>queued]
			locked p: 0 waiting 1 ready 0 leased
			locked q: 1 waiting 2 ready 0 leased
			dead locked/a expired_for_good payload= failure=`)
	})
}

// IP-050: of many claims of one job exactly one wins.
func TestOneOfManyClaimsWins(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("locked/a"))
		other := w.node(testJobTypes())
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for i := range 20 {
			e := w.engine
			if i%2 == 0 {
				e = other
			}
			wg.Go(func() {
				_, err := e.ClaimJob(w.ctx, id("locked/a"), "w")
				if err != nil {
					if !job.IsKind(err, job.Conflict) {
						w.Error(err)
					}
					return
				}
				mu.Lock()
				defer mu.Unlock()
				won++
			})
		}
		wg.Wait()
		if won != 1 {
			w.Errorf("%d claims won", won)
		}
		w.checkInvariants()
	})
}

func TestPauseAndQueueLimit(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		for i := range 4 {
			w.submit(sub(fmt.Sprintf("brief/q%d", i)), sub(fmt.Sprintf("brief/r%d", i), in("r")))
		}
		other := w.node(testJobTypes())
		set := func(paused bool, limit int) {
			w.Helper()
			w.noError(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "brief", Queue: "q",
				Paused: paused, MaxRunning: limit}))
			w.noError(other.LoadQueues(w.ctx))
		}
		w.wantKind(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "brief"}), job.Invalid)
		w.wantKind(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "brief", Queue: "q",
			MaxRunning: -1}), job.Invalid)
		set(true, 0)
		if got := w.claim("brief", 9, "q"); len(got) > 0 {
			w.Errorf("claimed %v of a paused queue", names(got))
		}
		if got, want := names(w.claim("brief", 1)), []string{"brief/r0"}; !slices.Equal(got, want) {
			w.Errorf("got %v, want %v", got, want)
		}
		set(false, 2)
		claimed := w.claim("brief", 9) // of all queues, with one limited
		if got, want := names(claimed), []string{"brief/q0", "brief/q1", "brief/r1", "brief/r2",
			"brief/r3"}; !slices.Equal(got, want) {
			w.Errorf("got %v, want %v", got, want)
		}
		if got, err := other.Claim(w.ctx,
			engine.ClaimRequest{JobType: "brief", Queues: []string{"q"}, Max: 9}); len(got) > 0 ||
			err != nil {
			w.Errorf("another node claimed %v, %v beyond the limit", names(got), err)
		}
		w.finish(engine.Run{Run: claimed[0].Run}, job.Succeeded)
		if got, err := other.Claim(w.ctx,
			engine.ClaimRequest{JobType: "brief", Queues: []string{"q"}, Max: 9}); len(got) != 1 ||
			err != nil {
			w.Errorf("another node claimed %v, %v of one free slot", names(got), err)
		}
		w.clock.Advance(time.Minute) // lapsed runs leave their slots
		if got := w.claim("brief", 9, "q"); len(got) != 2 {
			w.Errorf("claimed %v of two free slots", names(got))
		}
		set(false, 0)
		if got := w.claim("brief", 9, "q"); len(got) != 1 {
			w.Errorf("claimed %v", names(got))
		}
		w.checkInvariants()
	})
}

// FR: limits of a job type and of a queue hold exactly, with 32 claimants on two nodes that claim
// by themselves and with the end of a run.
func TestRunningLimitsAreExact(t *testing.T) {
	jobTypes := testJobTypesWith("brief", func(c *engine.JobType) { c.MaxRunning = 7 })
	onEveryStore(t, jobTypes, func(w *world) {
		nodes := []*engine.Engine{w.engine, w.node(jobTypes)}
		w.noError(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "brief", Queue: "q",
			MaxRunning: 3}))
		w.noError(nodes[1].LoadQueues(w.ctx))
		var batch []engine.Submission
		for i := range 300 {
			batch = append(batch, sub(fmt.Sprintf("brief/%d", i), in([]string{"q", "r", "s"}[i%3])))
		}
		w.submit(batch...)
		var mu sync.Mutex
		leased, maxLeased := map[string]int{}, map[string]int{}
		var finished atomic.Int64
		take := func(queue string, n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, key := range []string{"", queue} {
				leased[key] += n
				maxLeased[key] = max(maxLeased[key], leased[key])
			}
		}
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				queues := [][]string{nil, {"q"}, {"r", "q"}, {"q", "s"}}[i%4]
				for finished.Load() < 300 {
					jobs, err := nodes[i%2].Claim(w.ctx,
						engine.ClaimRequest{JobType: "brief", Queues: queues, Max: 1 + i%3,
							Worker: "w"})
					if err != nil {
						w.Error(err)
						return
					}
					for _, j := range jobs {
						take(j.Queue, 1)
					}
					for len(jobs) > 0 {
						request := engine.FinishRequest{Run: engine.Run{Run: jobs[0].Run},
							Outcome: engine.Outcome{On: job.Succeeded}}
						if i >= 16 { // these go on with what the end brings
							request.Next = &engine.ClaimRequest{JobType: "brief", Queues: queues,
								Max: 1, Worker: "w"}
						}
						// before the end, so that a slot is never counted twice
						take(jobs[0].Queue, -1)
						results := nodes[(i+1)%2].FinishAll(w.ctx,
							[]engine.FinishRequest{request})[0]
						if results.Err != nil {
							w.Error(results.Err)
						}
						for _, j := range results.Next {
							take(j.Queue, 1)
						}
						jobs = append(jobs[1:], results.Next...)
						finished.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if maxLeased[""] > 7 || maxLeased["q"] > 3 || maxLeased[""] < 2 {
			w.Errorf("at most %v were leased at a time", maxLeased)
		}
		w.wantSnapshot("")
	})
}

func TestLongPollWakes(t *testing.T) {
	limited := testJobTypesWith("part", func(c *engine.JobType) { c.MaxRunning = 1 })
	for what, c := range map[string]struct {
		jobType, queue string
		before         func(w *world) func() // prepares and returns what wakes
	}{
		"on submit": {"brief", "q", func(w *world) func() {
			return func() { w.submit(sub("brief/a")) }
		}},
		"any queue on submit": {"brief", "", func(w *world) func() {
			return func() { w.submit(sub("brief/a", in("x"))) }
		}},
		"on release": {"brief", "q", func(w *world) func() {
			w.submit(sub("brief/a"))
			r := w.run("brief/a")
			return func() { w.finish(r, job.Released) }
		}},
		"on requeue": {"brief", "r", func(w *world) func() {
			w.submit(sub("brief/a"))
			r := w.run("brief/a")
			return func() {
				w.noError(w.engine.Requeue(w.ctx, r, engine.Unique, subs(sub("brief/b", in("r")))))
			}
		}},
		"on promote": {"phased", "q", func(w *world) func() {
			w.submit(sub("phased/a", due(time.Minute)))
			return func() {
				w.clock.Advance(time.Minute)
				w.noError(errOf(w.engine.Promote(w.ctx)))
			}
		}},
		"on expire": {"brief", "q", func(w *world) func() {
			w.submit(sub("brief/a"))
			w.run("brief/a")
			return func() { w.clock.Advance(time.Minute); w.noError(errOf(w.engine.Expire(w.ctx))) }
		}},
		"on retry": {"phased", "q", func(w *world) func() {
			w.submit(sub("phased/a"))
			r := w.run("phased/a")
			w.noError(errOf(w.engine.Start(w.ctx, r)))
			w.finish(r, job.Failed)
			return func() { w.noError(errOf(w.engine.Retry(w.ctx, id("phased/a"), 0))) }
		}},
		"on a dependency that is done": {"graph", "q", func(w *world) func() {
			w.submit(sub("graph/a"), sub("graph/b", after("graph/a")))
			r := w.run("graph/a")
			return func() { w.finish(r, job.Succeeded) }
		}},
		"on the end of a pause": {"brief", "q", func(w *world) func() {
			w.submit(sub("brief/a"))
			w.noError(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "brief", Queue: "q",
				Paused: true}))
			return func() {
				w.noError(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "brief",
					Queue: "q"}))
			}
		}},
		"on a raised limit of a queue": {"brief", "", func(w *world) func() {
			w.submit(sub("brief/a"), sub("brief/b"))
			w.noError(w.engine.LimitQueues(w.ctx, "brief", running(map[string]int{"q": 1})))
			w.claim("brief", 1)
			return func() {
				w.noError(w.engine.LimitQueues(w.ctx, "brief",
					running(map[string]int{"q": 2})))
			}
		}},
		"on the end of a pause by another node": {"brief", "q", func(w *world) func() {
			w.submit(sub("brief/a"))
			other := w.node(limited)
			w.noError(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "brief", Queue: "q",
				Paused: true}))
			w.noError(other.SetQueue(w.ctx, job.QueueSettings{JobType: "brief", Queue: "q"}))
			return func() { w.noError(w.engine.LoadQueues(w.ctx)) }
		}},
		"on a job that is put into the queue": {"graph", "q", func(w *world) func() {
			w.submit(sub("graph/a", in("r")))
			return func() {
				w.noError(errOf(w.engine.Change(w.ctx, id("graph/a"), job.Replaced,
					into("q"))))
			}
		}},
		"on a slot that a job left for another queue": {"graph", "q", func(w *world) func() {
			w.noError(w.engine.LimitQueues(w.ctx, "graph", running(map[string]int{"q": 1})))
			w.submit(sub("graph/a"), sub("graph/b"))
			w.claim("graph", 1)
			return func() {
				w.noError(errOf(w.engine.Change(w.ctx, id("graph/a"), job.Replaced,
					into("r"))))
			}
		}},
		"on a free slot of the contract": {"part", "r", func(w *world) func() {
			w.submit(sub("part/a"))
			r := w.run("part/a")
			w.submit(sub("part/b", in("r")))
			return func() { w.finish(r, job.Succeeded) }
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "memory", limited)
			wake := c.before(w)
			req := engine.ClaimRequest{JobType: c.jobType, Max: 5, Worker: "w", Wait: time.Minute}
			if c.queue != "" {
				req.Queues = []string{c.queue}
			}
			engine.WithoutPolling(w.engine)
			got := make(chan []*job.Job)
			go func() {
				jobs, err := w.engine.Claim(w.ctx, req)
				if err != nil {
					w.Error(err)
				}
				got <- jobs
			}()
			engine.AwaitWaiting(w.engine, req, 1)
			wake()
			if jobs := <-got; len(jobs) != 1 {
				w.Errorf("woke with %v", names(jobs))
			}
		})
	}
}

// A wake-up that reaches a claim whose caller is leaving is passed to another claim.
func TestWakeUpIsPassedOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "memory", testJobTypes())
	engine.WithoutPolling(w.engine)
	req := engine.ClaimRequest{JobType: "brief", Queues: []string{"q"}, Max: 1, Worker: "w",
		Wait: time.Minute}
	for i := range 50 {
		leaver, leave := context.WithCancel(w.ctx)
		stayer, stop := context.WithCancel(w.ctx)
		var wg sync.WaitGroup
		got := make(chan int, 2)
		claim := func(ctx context.Context) {
			jobs, err := w.engine.Claim(ctx, req)
			if err != nil {
				w.Error(err)
			}
			got <- len(jobs)
		}
		wg.Go(func() { claim(leaver) })
		engine.AwaitWaiting(w.engine, req, 1)
		wg.Go(func() { claim(stayer) })
		engine.AwaitWaiting(w.engine, req, 2)
		wg.Go(leave)
		wg.Go(func() { w.submit(sub(fmt.Sprint("brief/", i))) })
		first := <-got
		if first == 1 {
			stop()
		}
		// if the leaver got nothing the other does, without any further wake-up
		if first+<-got != 1 {
			w.Fatal("the job was left lying")
		}
		stop()
		wg.Wait()
	}
	w.checkInvariants()
}

func TestLongPollEndsEmpty(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		req := engine.ClaimRequest{JobType: "brief", Queues: []string{"q"}, Max: 1, Worker: "w",
			Wait: 20 * time.Millisecond}
		if jobs, err := w.engine.Claim(w.ctx, req); len(jobs) > 0 || err != nil {
			w.Errorf("after its time: %v, %v", jobs, err)
		}
		req.Wait = time.Minute
		ctx, cancel := context.WithCancel(w.ctx)
		got := make(chan []*job.Job)
		wait := func(ctx context.Context) {
			jobs, err := w.engine.Claim(ctx, req)
			if err != nil {
				w.Error(err)
			}
			got <- jobs
		}
		go wait(ctx)
		engine.AwaitWaiting(w.engine, req, 1)
		cancel()
		if jobs := <-got; len(jobs) > 0 {
			w.Errorf("a caller that left got %v", names(jobs))
		}
		for range 3 {
			go wait(w.ctx)
		}
		engine.AwaitWaiting(w.engine, req, 3)
		w.engine.Close()
		for range 3 {
			if jobs := <-got; len(jobs) > 0 {
				w.Errorf("got %v from a closed engine", names(jobs))
			}
		}
		w.submit(sub("brief/a"))
		if jobs := w.claim("brief", 1); len(jobs) > 0 {
			w.Errorf("a claim of a closed engine got %v", names(jobs))
		}
		w.wantSnapshot("brief/a: queued ready\nbrief q: 0 waiting 1 ready 0 leased")
	})
}

// Jobs that were claimed for a caller that has left meanwhile are released, and nothing is counted
// as an attempt: a job that is given up later says how often it was tried.
func TestClaimOfALeavingCallerIsReleased(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("brief/a"), sub("brief/b"), sub("brief/c"))
		ctx, leave := context.WithCancel(w.ctx)
		defer leave()
		w.engine = testkit.NewEngine(w, leavingStore{w.store, leave}, w.clock, testJobTypes()...)
		for _, wait := range []time.Duration{0, time.Minute} {
			if jobs, err := w.engine.Claim(ctx,
				engine.ClaimRequest{JobType: "brief", Queues: []string{"q"}, Max: 2, Worker: "w",
					Wait: wait}); len(jobs) > 0 || err != nil {
				w.Errorf("the leaver got %v, %v", names(jobs), err)
			}
		}
		w.wantSnapshot(`brief/a: queued ready
			brief/b: queued ready
			brief/c: queued ready
			brief q: 0 waiting 3 ready 0 leased`)
	})
}

// leavingStore lets a caller leave when the first update is written and not answered.
type leavingStore struct {
	store.Store
	leave func()
}

func (s leavingStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	defer s.leave()
	return s.Store.Update(ctx, fn)
}

// Callers come and go; at the end each job is ready, or its run was returned to a caller.
func TestNoJobLeaks(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		var batch []engine.Submission
		for i := range 200 {
			batch = append(batch, sub(fmt.Sprint("brief/", i)))
		}
		w.submit(batch...)
		var wg sync.WaitGroup
		var mu sync.Mutex
		known := map[string]bool{}
		for i := range 40 {
			ctx, leave := context.WithCancel(w.ctx)
			defer leave()
			wg.Go(func() {
				jobs, err := w.engine.Claim(ctx,
					engine.ClaimRequest{JobType: "brief", Queues: []string{"q"}, Max: 5,
						Worker: "w", Wait: time.Millisecond})
				if err != nil {
					w.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, j := range jobs {
					known[name(j.ID)] = true
				}
			})
			if i%2 == 0 {
				wg.Go(leave)
			}
		}
		wg.Wait()
		counts, err := w.engine.Queues(w.ctx, "brief")
		if err != nil || counts[0].Leased != int64(len(known)) ||
			counts[0].Ready != int64(200-len(known)) {
			w.Errorf("%d jobs are known to be leased; counts %+v, %v", len(known), counts, err)
		}
		w.checkInvariants()
	})
}
