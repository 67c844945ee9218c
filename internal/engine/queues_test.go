package engine_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// into is an edit that puts a job into another queue.
func into(queue string) func(*job.Job, time.Time) error {
	return func(j *job.Job, _ time.Time) error { j.Queue = queue; return nil }
}

// G-TF-25: the limits of the queues of a job type are replaced as a whole, on all nodes; pauses and
// other job types stay as they are.
func TestLimitQueues(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		for _, queue := range []string{"q", "r", "s"} {
			for _, n := range []string{"1", "2", "3"} {
				w.submit(sub("brief/"+queue+n, in(queue)), sub("part/"+queue+n, in(queue)))
			}
		}
		other := w.node(testJobTypes())
		limit := func(limits map[string]int) {
			w.Helper()
			w.noError(w.engine.LimitQueues(w.ctx, "brief", running(limits)))
			w.noError(other.LoadQueues(w.ctx))
		}
		// wantClaimed claims all jobs on both nodes in turn, compares them and releases them.
		wantClaimed := func(jobType string, want ...string) {
			w.Helper()
			for _, e := range []*engine.Engine{w.engine, other} {
				jobs, err := e.Claim(w.ctx,
					engine.ClaimRequest{JobType: jobType, Max: 99, Worker: "w"})
				w.noError(err)
				got := names(jobs)
				slices.Sort(got)
				if !slices.Equal(got, want) {
					w.Errorf("got %v, want %v", got, want)
				}
				for _, j := range jobs {
					w.finish(engine.Run{Run: j.Run}, job.Released)
				}
			}
		}
		w.noError(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "brief", Queue: "s",
			Paused: true, MaxRunning: 2}))
		w.noError(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "part", Queue: "q",
			MaxRunning: 1}))
		limit(map[string]int{"q": 1, "r": 2})
		wantClaimed("brief", "brief/q1", "brief/r1", "brief/r2")
		limit(map[string]int{"q": 2, "s": 1}) // r has none any more, s stays paused
		wantClaimed("brief", "brief/q1", "brief/q2", "brief/r1", "brief/r2", "brief/r3")
		w.noError(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "brief", Queue: "s",
			MaxRunning: 1}))
		limit(nil)
		wantClaimed("brief", "brief/q1", "brief/q2", "brief/q3", "brief/r1", "brief/r2", "brief/r3",
			"brief/s1", "brief/s2", "brief/s3")
		wantClaimed("part", "part/q1", "part/r1", "part/r2", "part/r3", "part/s1", "part/s2", "part/s3")
		w.wantKind(w.engine.LimitQueues(w.ctx, "unknown", nil), job.NotFound)
		w.wantKind(w.engine.LimitQueues(w.ctx, "brief", running(map[string]int{"q": -1})),
			job.Invalid)
		w.wantKind(w.engine.LimitQueues(w.ctx, "brief", running(map[string]int{"": 1})),
			job.Invalid)
	})
}

// G-TF-37: a claim of all queues leaves out the excluded ones, also while it waits.
func TestClaimExcept(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("brief/q1"), sub("brief/h1", in("here")), sub("brief/q2"),
			sub("brief/h2", in("here")))
		req := engine.ClaimRequest{JobType: "brief", Max: 9, Worker: "w",
			Skip: func(queue string) bool {
				return queue == "here"
			}}
		jobs, err := w.engine.Claim(w.ctx, req)
		w.noError(err)
		if got, want := names(jobs), []string{"brief/q1", "brief/q2"}; !slices.Equal(got, want) {
			w.Errorf("got %v, want %v", got, want)
		}
		req.Wait = time.Minute
		engine.WithoutPolling(w.engine)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			jobs, err = w.engine.Claim(w.ctx, req)
		})
		engine.AwaitWaiting(w.engine, req, 1)
		w.submit(sub("brief/h3", in("here"))) // wakes in vain
		engine.AwaitWaiting(w.engine, req, 1)
		w.submit(sub("brief/r1", in("r")))
		waiting.Wait()
		w.noError(err)
		if got, want := names(jobs), []string{"brief/r1"}; !slices.Equal(got, want) {
			w.Errorf("got %v, want %v", got, want)
		}
		w.wantSnapshot(`brief/h1: queued ready
			brief/h2: queued ready
			brief/h3: queued ready
			brief/q1: running leased runs=1 until=30s
			brief/q2: running leased runs=1 until=30s
			brief/r1: running leased runs=1 until=30s
			brief here: 0 waiting 3 ready 0 leased
			brief q: 0 waiting 0 ready 2 leased
			brief r: 0 waiting 0 ready 1 leased`)
	})
}

// A node that has just started gives out no job against the limits and pauses in force: it reads
// them before its first claim, without an explicit load.
func TestSettingsHoldFromTheStart(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("brief/a"), sub("brief/b"), sub("brief/c", in("paused")))
		w.noError(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "brief", Queue: "q",
			MaxRunning: 1}))
		w.noError(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "brief", Queue: "paused",
			Paused: true}))
		fresh := w.node(testJobTypes())
		jobs, err := fresh.Claim(w.ctx, engine.ClaimRequest{JobType: "brief", Max: 3, Worker: "w"})
		w.noError(err)
		if len(jobs) != 1 || jobs[0].Queue != "q" {
			w.Errorf("got %v", names(jobs))
		}
		w.wantKind(errOf(w.node(testJobTypes()).ClaimJob(w.ctx, id("brief/c"), "w")), job.Conflict)
	})
}

// What one node sets for a queue reaches long polls of another at once, without a poll of the store
// or maintenance.
func TestSettingsAreNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "postgres", testJobTypes())
	other := w.server()
	engine.WithoutPolling(other)
	ctx, stop := context.WithCancel(w.ctx)
	var listening sync.WaitGroup
	listening.Go(func() { other.Listen(ctx) })
	defer listening.Wait()
	defer stop()
	w.submit(sub("brief/a"))
	w.noError(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "brief", Queue: "q",
		Paused: true}))
	w.noError(other.LoadQueues(w.ctx))
	req := engine.ClaimRequest{JobType: "brief", Queues: []string{"q"}, Max: 1, Worker: "w",
		Wait: time.Minute}
	got := make(chan []*job.Job, 1)
	go func() {
		jobs, err := other.Claim(w.ctx, req)
		w.noError(err)
		got <- jobs
	}()
	engine.AwaitWaiting(other, req, 1)
	for { // it receives nothing until it listens
		w.noError(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "brief", Queue: "q"}))
		select {
		case jobs := <-got:
			if len(jobs) != 1 {
				w.Errorf("woke with %v", names(jobs))
			}
			return
		default:
		}
	}
}
