package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/client"
)

// asksForNext matches completions that ask for the next jobs.
func asksForNext(r recordedRequest) bool { return r.query.Has("next") }

// nexts returns what the completions of a worker have asked for.
func (b *workerBench) nexts() (asked []string) {
	for _, r := range b.double.requestsOf("completions") {
		if asksForNext(r) {
			asked = append(asked, r.query.Get("next"))
		}
	}
	return asked
}

// G-RL-35: a worker whose slots are all in use gets its jobs with its completions, one request for
// each job, in order. After the last one it polls.
func TestWorker_completionsBringTheNext(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		want := []string{}
		for i := range 6 {
			b.enqueue(fmt.Sprint(i), 30*time.Second)
			want = append(want, fmt.Sprint(i))
		}
		var order []string // one handler at a time: no lock
		var after []string
		b.start(client.Worker{Name: "w", Handler: func(_ context.Context, run *client.Run) error {
			order = append(order, run.Job.ID)
			return nil
		}, AfterRun: func(job client.RelayJob, reason error) {
			after = append(after, fmt.Sprint(job.ID, reason))
		}})
		synctest.Wait()
		b.enqueue("late", 30*time.Second)
		synctest.Wait()
		b.finish(nil)
		if want = append(want, "late"); !slices.Equal(order, want) {
			b.Errorf("order %v, want %v", order, want)
		}
		if len(after) != 7 || after[6] != "late<nil>" {
			b.Errorf("after the runs: %v", after)
		}
		b.wantRequests("next", 3) // the first, one that waits for the late job, and one after it
		b.wantRequests("complete", 0)
		if asked := b.nexts(); len(asked) != 7 || asked[0] != "1" {
			b.Errorf("completions asked for %v", asked)
		}
		for _, r := range b.double.requestsOf("completions") {
			if r.header.Get("Millrace-Worker") != "w" {
				b.Errorf("the request has %v", r.header)
			}
		}
		b.wantOnlyStartLogged()
	})
}

// A completion that finds its run lost brings the next job all the same (G-RL-36).
func TestWorker_lostRunsBringTheNext(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		for i := range 3 {
			b.enqueue(fmt.Sprint(i), 30*time.Second)
		}
		var after []string
		b.start(client.Worker{
			Handler: func(ctx context.Context, run *client.Run) error {
				if run.Job.ID == "1" {
					return nil
				}
				return b.relay.Delete(ctx, "q", run.Job.ID)
			},
			AfterRun: func(job client.RelayJob, reason error) {
				after = append(after, fmt.Sprint(job.ID, errors.Is(reason, client.ErrRunLost)))
			},
		})
		synctest.Wait()
		b.finish(nil)
		if want := []string{"0true", "1false", "2true"}; !slices.Equal(after, want) {
			b.Errorf("lost runs %v, want %v", after, want)
		}
		if asked := b.nexts(); len(asked) != 3 {
			b.Errorf("completions asked for %v", asked)
		}
		b.wantRequests("complete", 0)
	})
}

// A batch whose answer was lost may have ended its runs: they are not logged as lost.
func TestWorker_lostAnswerIsNoLostRun(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.enqueue("0", 30*time.Second)
		b.double.inject(injectedFault{on: "completions", after: true, drop: true})
		var reason error
		b.start(client.Worker{
			Handler:  func(context.Context, *client.Run) error { return nil },
			AfterRun: func(_ client.RelayJob, err error) { reason = err },
		})
		time.Sleep(time.Second)
		b.finish(nil)
		var fail *client.Error
		if !errors.As(reason, &fail) || !fail.Uncertain || !errors.Is(reason, client.ErrRunLost) {
			b.Errorf("reason = %v, want an uncertain ErrRunLost", reason)
		}
		b.wantLogged("its outcome was probably accepted")
		b.wantRequests("complete", 1)
	})
}

// Runs that end together share the request, which asks for as many jobs as there are slots for.
func TestWorker_completionsBringTheNextInBatches(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.slow()
		const slots, jobs = 30, 90
		for i := range jobs {
			b.enqueue(fmt.Sprint(i), 30*time.Second)
		}
		var mu sync.Mutex
		runs := map[string]int{}
		b.start(client.Worker{Concurrency: slots,
			Handler: func(ctx context.Context, run *client.Run) error {
				mu.Lock()
				runs[run.Job.ID]++
				mu.Unlock()
				return endsTogether(ctx, run)
			}})
		time.Sleep(10 * time.Second)
		b.finish(nil)
		if len(runs) != jobs || b.double.maxInFlight > slots {
			b.Errorf("%d jobs ran, at most %d at a time", len(runs), b.double.maxInFlight)
		}
		for id, n := range runs {
			if n != 1 {
				b.Errorf("job %s ran %d times", id, n)
			}
			mustExist(b, b.relay, "q", id, false)
		}
		if polls := b.count("next"); polls > 4 {
			b.Errorf("%d polls", polls)
		}
		if asked := b.nexts(); !slices.ContainsFunc(asked, func(n string) bool {
			return len(n) > 1
		}) {
			b.Errorf("completions asked for %v", asked)
		}
		b.wantBatched("complete", "completions", 3)
	})
}

// A server that does not have next, or a proxy in front of it, costs no run its completion and no
// job its run. It is asked again after ten minutes, unless its answer was that it may succeed
// later.
func TestWorker_serverWithoutNext(t *testing.T) {
	known := `[{"id":"0","run_id":"00000000-0000-4000-8000-000000000001","known":true}]`
	job := `{"queue":"%s","id":"x","timeout":30,"payload":1,"run_id":"%s"}`
	for name, tt := range map[string]struct {
		fault     injectedFault
		transient bool
	}{
		"bad request":         {fault: injectedFault{status: 400}},
		"not found":           {fault: injectedFault{status: 404}},
		"a defect":            {fault: injectedFault{status: 500}},
		"accepted":            {fault: injectedFault{status: 202}},
		"a page":              {fault: injectedFault{status: 200, body: "<html>Welcome</html>"}},
		"next is passed over": {fault: injectedFault{status: 200, body: known, after: true}},
		"another queue": {fault: injectedFault{status: 200,
			body: "[" + fmt.Sprintf(job, "other", "r") + "]"}},
		"no jobs": {fault: injectedFault{status: 200, body: "[]"}},
		"no run":  {fault: injectedFault{status: 200, body: "[" + fmt.Sprintf(job, "q", "") + "]"}},
		"more jobs": {fault: injectedFault{status: 200, body: "[" + fmt.Sprintf(job, "q", "r") +
			"," + fmt.Sprintf(job, "q", "s") + "]"}},
		"unavailable": {fault: injectedFault{status: 503}, transient: true},
		"overloaded": {fault: injectedFault{status: 429,
			header: http.Header{"Retry-After": {"3600"}}}, transient: true},
		"cut off": {fault: injectedFault{drop: true}, transient: true},
	} {
		t.Run(name, func(t *testing.T) {
			withWorkerBench(t, func(b *workerBench) {
				tt.fault.on, tt.fault.times, tt.fault.match = "completions", -1, asksForNext
				b.double.inject(tt.fault)
				var runs atomic.Int64
				b.start(client.Worker{Handler: func(_ context.Context, run *client.Run) error {
					runs.Add(1)
					return nil
				}})
				const jobs = 10
				wave := func(name string) {
					for i := range jobs {
						b.enqueue(fmt.Sprint(name, i), 5*time.Second)
					}
					time.Sleep(time.Minute)
					for i := range jobs {
						mustExist(b, b.relay, "q", fmt.Sprint(name, i), false)
					}
				}
				wave("a")
				asked := len(b.nexts())
				if tt.transient == (asked == 1) {
					b.Errorf("it was asked %d times", asked)
				}
				time.Sleep(10 * time.Minute)
				b.double.clearFaults()
				wave("b")
				if again := len(b.nexts()) - asked; again < jobs {
					b.Errorf("after ten minutes it was asked %d times", again)
				}
				b.finish(nil)
				if runs.Load() != 2*jobs {
					b.Errorf("%d runs of %d jobs", runs.Load(), 2*jobs)
				}
				b.wantLostAnswersOnly()
			})
		})
	}
}

// Where the answer is lost the run has ended, and the job that it had comes back after its timeout.
func TestWorker_lostAnswerOfNext(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.enqueue("1", 30*time.Second)
		b.enqueue("2", 30*time.Second)
		b.double.inject(injectedFault{on: "completions", drop: true, after: true})
		starts := map[string]time.Duration{}
		begin := time.Now()
		b.start(client.Worker{Handler: func(_ context.Context, run *client.Run) error {
			starts[run.Job.ID] = time.Since(begin)
			return nil
		}})
		time.Sleep(time.Minute)
		b.finish(nil)
		if at := starts["2"]; len(starts) != 2 || at < 30*time.Second || at > 31*time.Second {
			b.Errorf("the jobs started after %v", starts)
		}
		mustExist(b, b.relay, "q", "1", false)
		mustExist(b, b.relay, "q", "2", false)
		b.wantRequests("complete", 1)
	})
}

// nextTransport counts the requests of a worker.
type nextTransport struct{ polls, nexts, others atomic.Int64 }

func (c *nextTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/completions") && r.URL.Query().Has("next"):
		c.nexts.Add(1)
	case r.Method == http.MethodGet:
		c.polls.Add(1)
	default:
		c.others.Add(1)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// The same against a real server: a worker with one slot makes one request for each job.
func TestWorker_nextOnARealServer(t *testing.T) {
	t.Parallel()
	const jobs = 40
	baseURL, end := exampleServer()
	t.Cleanup(end)
	counted := &nextTransport{}
	relay := mustClient(t, client.Config{BaseURL: baseURL}).Relay()
	worker := mustClient(t, client.Config{BaseURL: baseURL,
		HTTPClient: &http.Client{Transport: counted}}).Relay()
	var specs []client.RelaySpec
	for i := range jobs {
		specs = append(specs, relaySpec("q / ü", fmt.Sprint("a/", i)))
	}
	must(t, relay.Enqueue(t.Context(), specs, client.RelayUnique))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var order []string
	w := &client.Worker{Relay: worker, Queue: "q / ü",
		Handler: func(_ context.Context, run *client.Run) error {
			if order = append(order, run.Job.ID); len(order) == jobs {
				stop()
			}
			return nil
		}}
	must(t, w.Run(ctx))
	for i, spec := range specs {
		mustExist(t, relay, spec.Queue, spec.ID, false)
		if len(order) != jobs || order[i] != spec.ID {
			t.Fatalf("the order is %v", order)
		}
	}
	// The last run ends after the stop, and so without a job in its place.
	if n := counted.nexts.Load(); n != jobs-1 || counted.others.Load() != 1 ||
		counted.polls.Load() > 2 {
		t.Errorf("%d ends brought jobs, %d did not, and there were %d polls", n,
			counted.others.Load(), counted.polls.Load())
	}
}
