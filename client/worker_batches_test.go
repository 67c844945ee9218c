package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// Which runs of a Worker share a request. The double answers after a while, during which entries
// gather: of those that come in one moment, up to maxSenders requests go at once, and the rest goes
// together in the next one.
const (
	maxSenders   = 4
	answersAfter = 50 * time.Millisecond
)

// slow makes the double answer everything but claims after a while.
func (b *workerBench) slow() {
	b.double.latency = func(op string) time.Duration {
		if op == "next" || op == "enqueue" {
			return 0
		}
		return answersAfter
	}
}

// count is how often the double was asked for something.
func (b *workerBench) count(op string) int { return len(b.double.requestsOf(op)) }

// wantBatched checks how many requests have been made for several runs in all, and that together
// with those for one there were no more than a number. Runs that end at one moment reach the
// senders one after the other, so a round may take the senders a few times.
func (b *workerBench) wantBatched(single, several string, rounds int) {
	b.Helper()
	singles, batches := b.count(single), b.count(several)
	maxSize := rounds * 3 * (maxSenders + 1)
	if batches < rounds || singles+batches > maxSize {
		b.Errorf("%d × %s and %d × %s, want at most %d, %d of them batches", singles, single,
			batches, several, maxSize, rounds)
	}
}

// wave runs n jobs that end at the same time, and waits until they are gone.
func (b *workerBench) wave(name string, n int) {
	b.Helper()
	for i := range n {
		b.enqueue(fmt.Sprint(name, i), 30*time.Second)
	}
	time.Sleep(4 * time.Second) // for the jobs, and pauses between tries
	for i := range n {
		mustExist(b, b.relay, "q", fmt.Sprint(name, i), false)
	}
}

// endsTogether is a handler of a wave.
func endsTogether(context.Context, *client.Run) error {
	time.Sleep(time.Second)
	return nil
}

func TestWorker_completesInBatches(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.slow()
		b.start(client.Worker{Concurrency: 30, PollInterval: time.Millisecond, PollWait: -1,
			Handler: endsTogether})
		b.wave("a", 30)
		b.wantBatched("complete", "completions", 1)
		b.wave("b", 10)
		b.wantBatched("complete", "completions", 2)
		b.finish(nil)
		b.wantOnlyStartLogged()
	})
}

// Runs that end one at a time wait for nothing: each is completed in the moment of its end.
func TestWorker_singleEndsWaitForNone(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.slow()
		const jobs = 20
		for i := range jobs {
			b.enqueue(fmt.Sprint(i), 30*time.Second)
		}
		var ends []time.Time
		var mu sync.Mutex
		var started atomic.Int64
		b.start(client.Worker{Concurrency: jobs,
			Handler: func(context.Context, *client.Run) error {
				time.Sleep(time.Duration(started.Add(1)) * answersAfter / (maxSenders - 1))
				mu.Lock()
				defer mu.Unlock()
				ends = append(ends, time.Now())
				return nil
			}})
		time.Sleep(3 * time.Second)
		b.finish(nil)
		// The first ones ask for the next job: until there is a slot, the worker does not poll.
		sent := append(b.double.requestsOf("completions"), b.double.requestsOf("complete")...)
		if len(sent) != jobs || b.count("complete") < jobs/2 {
			b.Fatalf("%d requests, %d of them × complete", len(sent), b.count("complete"))
		}
		for i, r := range sent {
			if late := r.at.Sub(ends[i]); late != 0 {
				b.Errorf("job %d was completed %s after its end", i, late)
			}
		}
	})
}

// A run whose completion finds it lost is a lost run, also in a batch (G-RL-32).
func TestWorker_lostRunsInABatch(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.slow()
		const jobs = 60
		var lost atomic.Int64
		b.start(client.Worker{Concurrency: jobs, PollWait: -1,
			Handler: func(ctx context.Context, run *client.Run) error {
				time.Sleep(2 * time.Second)
				return b.relay.Delete(context.WithoutCancel(ctx), "q", run.Job.ID)
			},
			AfterRun: func(_ client.RelayJob, reason error) {
				if errors.Is(reason, client.ErrRunLost) {
					lost.Add(1)
				}
			}})
		b.wave("a", jobs)
		b.finish(nil)
		b.wantBatched("complete", "completions", 1)
		logged := strings.Count(b.log.String(), "run lost; its outcome is dropped")
		if lost.Load() != jobs || logged != jobs {
			b.Errorf("%d runs were lost, %d of them logged:\n%s", lost.Load(), logged, b.log)
		}
	})
}

// A server that does not take batches, or a proxy in front of it, costs no run its completion,
// whatever it answers. It is asked again after ten minutes, unless its answer was that it may
// succeed later.
func TestWorker_serverWithoutBatches(t *testing.T) {
	for name, tt := range map[string]struct {
		fault     injectedFault
		transient bool
	}{
		"not found":     {fault: injectedFault{status: 404}},
		"wrong method":  {fault: injectedFault{status: 405, header: http.Header{"Allow": {"GET"}}}},
		"bad request":   {fault: injectedFault{status: 400}},
		"forbidden":     {fault: injectedFault{status: 403}},
		"unprocessable": {fault: injectedFault{status: 422}},
		"a defect":      {fault: injectedFault{status: 500}},
		"unimplemented": {fault: injectedFault{status: 501}},
		"accepted":      {fault: injectedFault{status: 202}},
		"a page":        {fault: injectedFault{status: 200, body: "<html>Welcome</html>"}},
		"another list":  {fault: injectedFault{status: 200, body: "[]"}},
		"other runs": {fault: injectedFault{status: 200, body: "[" + strings.Repeat(
			`{"id":"x","run_id":"y","known":true},`, 25) + `{"id":"x","run_id":"y","known":true}]`}},
		"unavailable": {fault: injectedFault{status: 503}, transient: true},
		"overloaded": {fault: injectedFault{status: 429,
			header: http.Header{"Retry-After": {"3600"}}}, transient: true},
		"bad gateway":     {fault: injectedFault{status: 502}, transient: true},
		"cut off":         {fault: injectedFault{drop: true}, transient: true},
		"answer cut off":  {fault: injectedFault{drop: true, after: true}, transient: true},
		"answer replaced": {fault: injectedFault{status: 504, after: true}, transient: true},
	} {
		t.Run(name, func(t *testing.T) {
			withWorkerBench(t, func(b *workerBench) {
				b.slow()
				tt.fault.on, tt.fault.times = "completions", -1
				b.double.inject(tt.fault)
				const jobs = 30
				b.start(client.Worker{Concurrency: jobs, PollWait: -1, Handler: endsTogether})
				// The runs of the first wave may all end one by one, each with a claim of the next,
				// before one is answered: batches are then tried with the second wave.
				b.wave("a", jobs)
				b.wave("b", jobs)
				b.wantRequests("complete", 2*jobs)
				asked := b.count("completions")
				if asked < 1 || (asked > jobs+2*maxSenders && !tt.transient) {
					b.Errorf("%d batches were tried", asked)
				}
				b.wave("c", jobs)
				b.wantRequests("complete", 3*jobs)
				if again := b.count("completions") > asked; again != tt.transient {
					b.Errorf("batches were tried again: %v", again)
				}
				b.double.clearFaults()
				time.Sleep(10 * time.Minute)
				b.wave("d", jobs)
				if singles := b.count("complete"); singles > 3*jobs+jobs/2 {
					b.Errorf("%d requests for one run after ten minutes", singles-3*jobs)
				}
				b.finish(nil)
				b.wantLostAnswersOnly()
			})
		})
	}
}

// wantLostAnswersOnly checks that nothing was logged but the start, and runs that an answer was
// lost about.
func (b *workerBench) wantLostAnswersOnly() {
	b.Helper()
	for line := range strings.Lines(b.log.String()) {
		if !strings.Contains(line, "its outcome was probably accepted") &&
			!strings.Contains(line, "waiting for jobs") {
			b.Errorf("logged: %s", line)
		}
	}
}

// Heartbeats that are due together share a request, and those with a state have one each. A run
// that the answer does not know ends its handler and no other.
func TestWorker_heartbeatsInBatches(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.slow()
		const jobs = 12
		for i := range jobs {
			b.enqueue(fmt.Sprint(i), 30*time.Second)
		}
		var lost, done atomic.Int64
		states := make(chan *client.Run, jobs)
		b.start(client.Worker{Concurrency: jobs,
			Handler: func(ctx context.Context, run *client.Run) error {
				states <- run
				select {
				case <-ctx.Done():
					if !errors.Is(context.Cause(ctx), client.ErrRunLost) {
						b.Errorf("cause = %v, want ErrRunLost", context.Cause(ctx))
					}
					lost.Add(1)
				case <-time.After(50 * time.Second):
					done.Add(1)
				}
				return context.Cause(ctx)
			}})
		time.Sleep(15 * time.Second) // one round of heartbeats
		b.wantBatched("heartbeat", "heartbeats", 1)
		for i := 0; i < jobs; i += 2 {
			must(b, b.relay.Delete(b.Context(), "q", fmt.Sprint(i)))
		}
		time.Sleep(10 * time.Second) // the second round finds out
		b.wantBatched("heartbeat", "heartbeats", 2)
		if lost.Load() != jobs/2 {
			b.Errorf("%d runs were lost, want %d", lost.Load(), jobs/2)
		}
		for range jobs {
			run := <-states
			if err := run.SetState(json.RawMessage(`1`)); err != nil &&
				!errors.Is(err, client.ErrRunLost) {
				b.Error(err)
			}
		}
		singles, batches := b.count("heartbeat"), b.count("heartbeats")
		time.Sleep(10 * time.Second) // the third round has states
		b.wantRequests("heartbeat", singles+jobs/2)
		b.wantRequests("heartbeats", batches)
		time.Sleep(time.Minute)
		b.finish(nil)
		if done.Load() != jobs/2 {
			b.Errorf("%d handlers ended, want %d", done.Load(), jobs/2)
		}
		for i := range jobs {
			mustExist(b, b.relay, "q", fmt.Sprint(i), false)
		}
	})
}

// Heartbeats go on without batches, and no run is lost by them.
func TestWorker_heartbeatsWithoutBatches(t *testing.T) {
	for _, status := range []int{404, 405, 500, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			withWorkerBench(t, func(b *workerBench) {
				b.slow()
				b.double.inject(injectedFault{on: "heartbeats", times: -1, status: status})
				const jobs, rounds = 12, 6
				for i := range jobs {
					b.enqueue(fmt.Sprint(i), 30*time.Second)
				}
				b.start(client.Worker{Concurrency: jobs,
					Handler: func(ctx context.Context, _ *client.Run) error {
						time.Sleep((rounds*10 + 5) * time.Second)
						return context.Cause(ctx)
					}})
				time.Sleep(80 * time.Second)
				b.finish(nil)
				b.wantRequests("heartbeat", rounds*jobs)
				if again := b.count("heartbeats") > maxSenders+1; again != (status == 503) {
					b.Errorf("%d batches were tried", b.count("heartbeats"))
				}
				for i := range jobs {
					mustExist(b, b.relay, "q", fmt.Sprint(i), false)
				}
				b.wantOnlyStartLogged()
			})
		})
	}
}

// A run that ends while a batch with its heartbeat is under way does not wait for the answer.
func TestWorker_endsDuringABatchOfHeartbeats(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.double.latency = func(op string) time.Duration {
			return map[string]time.Duration{"heartbeat": answersAfter,
				"heartbeats": 8 * time.Second}[op]
		}
		const jobs = 12
		for i := range jobs {
			b.enqueue(fmt.Sprint(i), 30*time.Second)
		}
		start := time.Now()
		b.start(client.Worker{Concurrency: jobs,
			Handler: func(context.Context, *client.Run) error {
				time.Sleep(12 * time.Second)
				return nil
			}})
		time.Sleep(25 * time.Second)
		b.finish(nil)
		if b.count("heartbeats") == 0 {
			b.Error("no heartbeats were sent together")
		}
		for _, op := range []string{"complete", "completions"} {
			for _, r := range b.double.requestsOf(op) {
				if at := r.at.Sub(start); at != 12*time.Second {
					b.Errorf("%s after %s", op, at)
				}
			}
		}
		for i := range jobs {
			mustExist(b, b.relay, "q", fmt.Sprint(i), false)
		}
	})
}

// A worker that is killed does not wait for a server that hangs, and leaves no request behind.
func TestWorker_killedDuringABatch(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.double.latency = func(op string) time.Duration {
			return map[string]time.Duration{"complete": answersAfter, "completions": time.Hour}[op]
		}
		const jobs = 12
		for i := range jobs {
			b.enqueue(fmt.Sprint(i), 30*time.Second)
		}
		kill, end := context.WithCancel(b.Context())
		b.start(client.Worker{Concurrency: jobs, Kill: kill, Handler: endsTogether})
		time.Sleep(2 * time.Second)
		if b.count("completions") == 0 {
			b.Error("no runs were completed together")
		}
		end()
		start := time.Now()
		b.finish(client.ErrDrainTimeout)
		if took := time.Since(start); took > 15*time.Second {
			b.Errorf("it ended %s after it was killed", took)
		}
	})
}

// batchTransport counts the requests by which runs of Relay are completed.
type batchTransport struct{ batches, singles atomic.Int64 }

func (c *batchTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/v2/queues/completions"):
		c.batches.Add(1)
	case r.Method == http.MethodDelete:
		c.singles.Add(1)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// The same against a real server: many runs that end together make few requests.
func TestWorker_batchesOnARealServer(t *testing.T) {
	t.Parallel()
	const jobs = 200
	baseURL, end := exampleServer()
	t.Cleanup(end)
	counted := &batchTransport{}
	c := mustClient(t, client.Config{BaseURL: baseURL,
		HTTPClient: &http.Client{Transport: counted}})
	relay := c.Relay()
	var specs []client.RelaySpec
	for i := range jobs {
		specs = append(specs, relaySpec("q / ü", fmt.Sprint("a/", i)))
	}
	must(t, relay.Enqueue(t.Context(), specs, client.RelayUnique))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var started, over sync.WaitGroup
	started.Add(jobs)
	over.Add(jobs)
	go func() {
		over.Wait()
		stop()
	}()
	w := &client.Worker{Relay: relay, Queue: "q / ü", Concurrency: jobs,
		Handler: func(context.Context, *client.Run) error {
			started.Done()
			started.Wait()
			return nil
		},
		AfterRun: func(_ client.RelayJob, reason error) {
			if reason != nil {
				t.Error(reason)
			}
			over.Done()
		}}
	must(t, w.Run(ctx))
	for _, spec := range specs {
		mustExist(t, relay, spec.Queue, spec.ID, false)
	}
	batches, singles := counted.batches.Load(), counted.singles.Load()
	if batches == 0 || batches > jobs/4 || singles > jobs/4 {
		t.Errorf("%d batches and %d requests for one run", batches, singles)
	}
}
