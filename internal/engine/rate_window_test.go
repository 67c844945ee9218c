package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// rate gives queue q of a job type a rate.
func (w *world) rate(jobType string, starts int, period time.Duration) {
	w.Helper()
	w.noError(w.engine.LimitQueues(w.ctx, jobType, map[string]job.QueueLimits{
		"q": {Rate: job.Rate{Starts: starts, Period: period}}}))
}

// allowed returns how many starts a rate allows at a time after the starts that have been. It looks
// at every window that holds that time.
func allowed(rate job.Rate, starts []time.Time, now time.Time) int {
	peak := 0
	for _, first := range append([]time.Time{now}, starts...) {
		n := 0
		for _, at := range starts {
			if !at.Before(first) && at.Before(first.Add(rate.Period)) {
				n++
			}
		}
		if !now.Before(first) && now.Before(first.Add(rate.Period)) {
			peak = max(peak, n)
		}
	}
	return rate.Starts - peak
}

// AD-032: two nodes together start as many jobs as the rate allows and as are ready, never more and
// never fewer.
func TestRateIsExact(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		seed := rand.Uint64()
		w.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 1))
		rate := job.Rate{Starts: 5, Period: 10 * time.Second}
		w.rate("brief", rate.Starts, rate.Period)
		nodes := []*engine.Engine{w.engine, w.node(testJobTypes())}
		var starts []time.Time
		stored, ready := 0, 0
		for range 150 {
			for range random.IntN(4) {
				w.submit(sub(fmt.Sprintf("brief/%d", stored), with(func(j *job.Job) {
					j.Lease = 24 * time.Hour
				})))
				stored, ready = stored+1, ready+1
			}
			requested := 1 + random.IntN(4)
			jobs, err := nodes[random.IntN(2)].Claim(w.ctx, engine.ClaimRequest{
				JobType: "brief", Queues: []string{"q"}, Max: requested, Worker: "w"})
			w.noError(err)
			want := min(requested, ready, allowed(rate, starts, w.clock.Now()))
			if len(jobs) != want {
				w.Fatalf("started %d of %d at %v, want %d; before: %v", len(jobs), requested,
					w.clock.Now(), want, starts)
			}
			for range jobs {
				starts, ready = append(starts, w.clock.Now()), ready-1
			}
			w.clock.Advance(time.Duration(random.IntN(300)) * 10 * time.Millisecond)
		}
		if len(starts) < 50 {
			w.Errorf("only %d starts", len(starts))
		}
	})
}

// AD-032, G-AD-12: every start counts, whichever verb makes it and however it ends; a queue
// without a rate is not concerned.
func TestEveryStartCounts(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.rate("brief", 4, time.Minute)
		for i := range 6 {
			w.submit(sub(fmt.Sprintf("brief/%d", i)))
		}
		w.submit(sub("brief/r", in("r")))
		first := w.claim("brief", 1, "q")[0]
		w.finish(engine.Run{Run: first.Run}, job.Released)
		first = w.claim("brief", 1, "q")[0]
		next := &engine.ClaimRequest{JobType: "brief", Queues: []string{"q"}, Max: 1, Worker: "w"}
		ended := w.engine.FinishAll(w.ctx, []engine.FinishRequest{{Run: engine.Run{Run: first.Run},
			Outcome: engine.Outcome{On: job.Succeeded}, Next: next}})[0]
		w.noError(ended.Err)
		if len(ended.Next) != 1 {
			w.Fatalf("the end brought %v", names(ended.Next))
		}
		w.noError(errOf(w.engine.ClaimJob(w.ctx, id("brief/5"), "w")))
		w.wantKind(errOf(w.engine.ClaimJob(w.ctx, id("brief/4"), "w")), job.Conflict)
		if got := names(w.claim("brief", 9)); !slices.Equal(got, []string{"brief/r"}) {
			w.Errorf("got %v, want the job of the queue without a rate", got)
		}
		var status engine.QueueStatus
		w.noError(w.engine.ViewQueues(w.ctx, func(r engine.QueueReader) (err error) {
			status, err = r.Queue("brief", "q")
			return err
		}))
		if want := w.clock.Now().Add(time.Minute); !status.NextStart.Equal(want) ||
			status.Leased != 2 {
			w.Errorf("got %+v, want the next start at %v", status, want)
		}
		w.clock.Advance(time.Minute - time.Millisecond)
		w.noError(errOf(w.engine.Expire(w.ctx))) // the leases of 30 s: both jobs are ready again
		if got := w.claim("brief", 9, "q"); len(got) != 0 {
			w.Errorf("started %v before it was time", names(got))
		}
		w.clock.Advance(time.Millisecond)
		if got := w.claim("brief", 9, "q"); len(got) != 4 {
			w.Errorf("started %v, want 4", names(got))
		}
	})
}

// A rate bounds the starts of a group of callers together, those of all queues included, and a
// limit of running jobs holds beside it.
func TestRateOfGroups(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.noError(w.engine.LimitQueues(w.ctx, "brief", map[string]job.QueueLimits{
			"q": {Rate: job.Rate{Starts: 3, Period: time.Second}},
			"r": {MaxRunning: 1, Rate: job.Rate{Starts: 3, Period: time.Second}}}))
		for i := range 9 {
			w.submit(sub(fmt.Sprintf("brief/q%d", i)), sub(fmt.Sprintf("brief/r%d", i), in("r")))
		}
		got, err := engine.ClaimTogether(w.engine, 5,
			engine.ClaimRequest{JobType: "brief", Queues: []string{"q"}, Max: 1, Worker: "w"})
		w.noError(err)
		if n := got[0] + got[1] + got[2] + got[3] + got[4]; n != 3 {
			w.Errorf("started %v of q, want 3", got)
		}
		w.clock.Advance(time.Second)
		got, err = engine.ClaimTogether(w.engine, 2,
			engine.ClaimRequest{JobType: "brief", Max: 9, Worker: "w"})
		w.noError(err)
		if got[0]+got[1] != 4 {
			w.Errorf("started %v, want 3 of q and 1 of r", got)
		}
	})
}

// AD-032: a claim that waits wakes when the next start is allowed. The engine does not poll.
func TestRateWakes(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		engine.WithoutPolling(w.engine)
		w.rate("brief", 1, 100*time.Millisecond)
		w.submit(sub("brief/a"), sub("brief/b"), sub("brief/c"))
		w.claim("brief", 1, "q")
		for _, queues := range [][]string{{"q"}, nil} {
			req := engine.ClaimRequest{JobType: "brief", Queues: queues, Max: 1, Worker: "w",
				Wait: 2 * time.Minute}
			got := make(chan []*job.Job, 1)
			go func() {
				jobs, err := w.engine.Claim(w.ctx, req)
				w.noError(err)
				got <- jobs
			}()
			engine.AwaitWaiting(w.engine, req, 1)
			w.clock.Advance(100 * time.Millisecond)
			if jobs := testkit.Receive(w, "a job", got); len(jobs) != 1 {
				w.Errorf("a claim wakes for %v", names(jobs))
			}
		}
	})
}

// After the clock of the store jumped back, the starts that seem to come hold back others for one
// period and not for the length of the jump.
func TestRateAfterAJumpBack(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.rate("brief", 2, time.Second)
		for i := range 4 {
			w.submit(sub(fmt.Sprintf("brief/%d", i)))
		}
		w.claim("brief", 2, "q")
		w.clock.Jump(-time.Hour)
		for range 3 {
			if got := w.claim("brief", 2, "q"); len(got) != 0 {
				w.Errorf("started %v", names(got))
			}
			w.clock.Advance(300 * time.Millisecond)
		}
		w.clock.Advance(100 * time.Millisecond)
		if got := w.claim("brief", 2, "q"); len(got) != 2 {
			w.Errorf("started %v, want 2", names(got))
		}
	})
}

// A lower rate counts the starts under the higher one, and without a rate nothing is held back.
func TestRateChanges(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		for i := range 30 {
			w.submit(sub(fmt.Sprintf("brief/%d", i), with(func(j *job.Job) { j.Lease = time.Hour })))
		}
		started := func(want int) {
			w.Helper()
			if got := w.claim("brief", 9, "q"); len(got) != want {
				w.Errorf("started %d, want %d", len(got), want)
			}
		}
		w.rate("brief", 8, time.Second)
		started(8)
		w.rate("brief", 3, time.Second)
		w.clock.Advance(time.Second - 1)
		started(0)
		w.clock.Advance(1)
		started(3)
		w.rate("brief", 8, time.Second)
		started(5)
		w.noError(w.engine.LimitQueues(w.ctx, "brief", nil))
		started(9)
		w.wantKind(w.engine.LimitQueues(w.ctx, "brief", map[string]job.QueueLimits{
			"q": {Rate: job.Rate{Starts: 1}}}), job.Invalid)
	})
}

// AD-032: 16 callers on two nodes with clocks of their own start 100 jobs in every second,
// whichever second of the stored times is looked at, and none waits for a poll. At full length at
// least 98 % of what is allowed is used.
func TestRateOfTwoNodes(t *testing.T) {
	t.Parallel()
	const callers = 16
	periods, isFull := testkit.Size(t, "MILLRACE_TEST_RATE_SECONDS", 3)
	rate := job.Rate{Starts: 100, Period: time.Second}
	jobs := rate.Starts * periods
	ctx, cancel := context.WithTimeout(context.Background(),
		time.Minute+2*time.Duration(periods)*rate.Period)
	defer cancel()
	url, started := pgtest.URL(t), time.Now()
	var nodes []*engine.Engine
	for i := range 2 {
		e, err := engine.New(engine.Config{Store: openPostgresURL(t, url, nil),
			Node: fmt.Sprint(i), Random: testkit.RandomBytes,
			Monotonic: func() time.Duration { return time.Since(started) }})
		if err != nil {
			t.Fatal(err)
		}
		testkit.Register(t, e, testJobTypes()...)
		t.Cleanup(e.Close)
		engine.WithoutPolling(e)
		nodes = append(nodes, e)
	}
	if err := nodes[0].LimitQueues(ctx, "graph",
		map[string]job.QueueLimits{"q": {Rate: rate}}); err != nil {
		t.Fatal(err)
	}
	var batch []engine.Submission
	for i := range jobs {
		batch = append(batch, sub(fmt.Sprintf("graph/%d", i), with(func(j *job.Job) {
			j.Lease = time.Hour // nobody ends them
		})))
	}
	for part := range slices.Chunk(batch, 500) {
		if _, err := nodes[0].Submit(ctx, engine.Unique, part); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	left := make(chan struct{}, jobs)
	ctx, done := context.WithCancel(ctx)
	defer done()
	for i := range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				claimed, err := nodes[i%2].Claim(ctx, engine.ClaimRequest{JobType: "graph",
					Queues: []string{"q"}, Max: 1, Worker: "w", Wait: time.Minute})
				if err != nil {
					t.Error(err)
				}
				for range claimed {
					left <- struct{}{}
				}
			}
		})
	}
	for range jobs {
		testkit.Receive(t, "a start", left)
	}
	done()
	all.Wait()
	starts := storedStarts(t, nodes[1], batch)
	took := starts[len(starts)-1].Sub(starts[0])
	used := float64(periods-1) * rate.Period.Seconds() / took.Seconds()
	t.Logf("%d starts in %v: %.2f %% of what is allowed", len(starts), took, 100*used)
	if isFull && used < 0.98 {
		t.Errorf("AD-032 %.2f %% of what is allowed is used, want 98 %%", 100*used)
	}
	for i := range starts {
		if j := i + rate.Starts; j < len(starts) && starts[j].Before(starts[i].Add(rate.Period)) {
			t.Fatalf("%d starts in %v from %v on", rate.Starts+1, starts[j].Sub(starts[i]), starts[i])
		}
	}
}

// storedStarts returns when jobs were started by their histories, the earliest first.
func storedStarts(t *testing.T, e *engine.Engine, batch []engine.Submission) (all []time.Time) {
	t.Helper()
	for _, s := range batch {
		events, err := e.History(context.Background(), s.Job.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events {
			if ev.Cause == job.Claimed {
				all = append(all, ev.At)
			}
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	if len(all) != len(batch) {
		t.Fatalf("%d starts of %d jobs", len(all), len(batch))
	}
	return all
}
