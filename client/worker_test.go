package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/client"
)

// workerBench is a worker on a double, inside a synctest bubble: time passes when everyone waits,
// and the bubble fails the test if a goroutine is left over.
type workerBench struct {
	*testing.T
	double *fakeRelay
	relay  *client.Relay
	log    *bytes.Buffer
	stop   context.CancelFunc // ends the worker's context
	done   chan error         // what Run returned
}

// withWorkerBench runs a test with a bench of its own.
func withWorkerBench(t *testing.T, test func(b *workerBench)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeRelay()
		test(&workerBench{T: t, double: d, relay: directRelay(t, d), log: &bytes.Buffer{},
			done: make(chan error, 1)})
	})
}

func (b *workerBench) start(w client.Worker) {
	w.Relay, w.Queue = b.relay, "q"
	w.Logger = slog.New(slog.NewTextHandler(b.log, nil))
	ctx, cancel := context.WithCancel(b.Context())
	b.stop = cancel
	go func() { b.done <- w.Run(ctx) }()
}

// finish ends the worker and checks what Run returned. The log is safe to read after it.
func (b *workerBench) finish(want error) {
	b.Helper()
	b.stop()
	if err := <-b.done; !errors.Is(err, want) || (want == nil && err != nil) {
		b.Errorf("Run = %v, want %v", err, want)
	}
}

func (b *workerBench) enqueue(id string, timeout time.Duration) {
	b.Helper()
	job := relaySpec("q", id)
	job.Timeout = timeout
	mustEnqueue(b, b.relay, job)
}

func (b *workerBench) wantLogged(want string) {
	b.Helper()
	if !strings.Contains(b.log.String(), want) {
		b.Errorf("log lacks %q:\n%s", want, b.log)
	}
}

// wantOnlyStartLogged checks that the worker has logged its start and nothing else.
func (b *workerBench) wantOnlyStartLogged() {
	b.Helper()
	if strings.Count(b.log.String(), "\n") != 1 {
		b.Errorf("logged:\n%s", b.log)
	}
	b.wantLogged("waiting for jobs")
}

func (b *workerBench) wantRequests(op string, want int) {
	b.Helper()
	if got := len(b.double.requestsOf(op)); got != want {
		b.Errorf("%d × %s, want %d", got, op, want)
	}
}

func TestWorker_completesWhatSucceeds(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		for i := range 5 {
			b.enqueue(fmt.Sprint(i), 30*time.Second)
		}
		var order []string // one handler at a time: no lock
		b.start(client.Worker{Handler: func(_ context.Context, run *client.Run) error {
			order = append(order, run.Job.ID)
			return nil
		}})
		synctest.Wait()
		for i := range 5 {
			mustExist(b, b.relay, "q", fmt.Sprint(i), false)
		}
		b.finish(nil)
		if want := []string{"0", "1", "2", "3", "4"}; !slices.Equal(order, want) {
			b.Errorf("order %v, want %v", order, want)
		}
		b.wantOnlyStartLogged()
	})
}

// Never more handlers than slots, and never more jobs asked for than are free.
func TestWorker_concurrencyIsBounded(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		const slots, jobs = 4, 40
		for i := range jobs {
			b.enqueue(fmt.Sprint(i), 30*time.Second)
		}
		var done atomic.Int32
		finished := make(chan struct{})
		b.start(client.Worker{Concurrency: slots,
			Handler: func(_ context.Context, run *client.Run) error {
				time.Sleep(time.Duration(run.Job.ID[0]%7+1) * time.Second)
				if done.Add(1) == jobs {
					close(finished)
				}
				return nil
			}})
		<-finished
		b.finish(nil)
		if b.double.maxInFlight != slots {
			b.Errorf("at most %d in flight at once, want %d", b.double.maxInFlight, slots)
		}
		for i, poll := range b.double.requestsOf("next") {
			asked := poll.query.Get("num_jobs")
			if (i == 0 && asked != "4") || asked > "4" {
				b.Errorf("poll %d asked for %s jobs", i, asked)
			}
		}
		for i := range jobs {
			mustExist(b, b.relay, "q", fmt.Sprint(i), false)
		}
	})
}

// A server that gives more than was asked for does not break the bound.
func TestWorker_surplusIsNotRun(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		const job = `{"queue":"q","id":"%d","timeout":30,"payload":1,"run_id":"r%d"}`
		b.double.inject(injectedFault{on: "next", status: 200,
			body: "[" + fmt.Sprintf(job, 1, 1) + "," + fmt.Sprintf(job, 2, 2) + "]"})
		var runs atomic.Int32
		b.start(client.Worker{Handler: func(context.Context, *client.Run) error {
			runs.Add(1)
			return nil
		}})
		synctest.Wait()
		b.finish(nil)
		if runs.Load() != 1 {
			b.Errorf("%d handlers ran, want 1", runs.Load())
		}
		b.wantLogged("surplus=1")
	})
}

// RL-058: heartbeats at a third of the timeout keep the job for ever.
func TestWorker_heartbeatsAtAThird(t *testing.T) {
	for _, tc := range []struct {
		timeout, maxInterval, work time.Duration
		heartbeats                 int
		first                      time.Duration
	}{
		{30 * time.Second, 0, 95 * time.Second, 9, 10 * time.Second},
		{time.Second, 0, 3100 * time.Millisecond, 9, time.Second / 3},
		{time.Hour, time.Minute, 5*time.Minute + time.Second, 5, time.Minute},
	} {
		t.Run(tc.timeout.String(), func(t *testing.T) {
			withWorkerBench(t, func(b *workerBench) {
				b.enqueue("1", tc.timeout)
				start := time.Now()
				b.start(client.Worker{MaxHeartbeatInterval: tc.maxInterval,
					Handler: func(ctx context.Context, _ *client.Run) error {
						time.Sleep(tc.work)
						return context.Cause(ctx)
					}})
				time.Sleep(tc.work + time.Millisecond)
				mustExist(b, b.relay, "q", "1", false)
				b.finish(nil)
				b.wantRequests("heartbeat", tc.heartbeats)
				if at := b.double.requestsOf("heartbeat")[0].at.Sub(start); at != tc.first {
					b.Errorf("first heartbeat after %s, want %s", at, tc.first)
				}
			})
		})
	}
}

// RL-090: timeout 0 cannot be kept, but the loss is noticed within a second.
func TestWorker_timeoutZero(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.enqueue("short", 0)
		b.enqueue("long", 0)
		var cause error
		b.start(client.Worker{Handler: func(ctx context.Context, run *client.Run) error {
			if run.Job.ID == "short" {
				return nil
			}
			if cause == nil {
				<-ctx.Done()
				cause = context.Cause(ctx)
			}
			return nil
		}})
		time.Sleep(2500 * time.Millisecond)
		mustExist(b, b.relay, "q", "short", false)
		mustExist(b, b.relay, "q", "long", true) // its lease has ended, but nobody has asked
		must(b, b.relay.Delete(b.Context(), "q", "long"))
		time.Sleep(time.Second)
		b.finish(nil)
		if !errors.Is(cause, client.ErrRunLost) {
			b.Errorf("cause = %v, want ErrRunLost", cause)
		}
		b.wantRequests("complete", 0)
		b.wantRequests("completions", 1) // which has brought the other job
	})
}

// RL-020, RL-054, RL-073: a replaced or deleted job's handler is canceled, and its success is not
// reported.
func TestWorker_lostRunIsNeverCompleted(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.enqueue("1", 30*time.Second)
		started := make(chan *client.Run, 1)
		var cause, requeue, save, set error
		b.start(client.Worker{Handler: func(ctx context.Context, run *client.Run) error {
			started <- run
			<-ctx.Done()
			cause = context.Cause(ctx)
			free := context.WithoutCancel(ctx)
			requeue = run.Requeue(free, []client.RelaySpec{run.Job.RelaySpec}, client.RelayReplace)
			save = run.SaveState(free, json.RawMessage(`1`))
			set = run.SetState(json.RawMessage(`1`))
			return nil
		}})
		<-started
		future := relaySpec("q", "1")
		future.RunAt = time.Now().Add(time.Hour)
		must(b, b.relay.Enqueue(b.Context(), []client.RelaySpec{future}, client.RelayReplace))
		time.Sleep(11 * time.Second)
		b.finish(nil)
		for name, err := range map[string]error{"cause": cause, "Requeue": requeue,
			"SaveState": save, "SetState": set} {
			if !errors.Is(err, client.ErrRunLost) {
				b.Errorf("%s = %v, want ErrRunLost", name, err)
			}
		}
		mustExist(b, b.relay, "q", "1", true)
		b.wantRequests("heartbeat", 1)
		b.wantRequests("complete", 0)
		b.wantRequests("requeue", 0)
		b.wantLogged("run lost")
	})
}

// RL-052, RL-057: a state set goes out with the next heartbeat, once; one saved goes out at once;
// what a failing handler had set is there for the next run.
func TestWorker_state(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.enqueue("1", 30*time.Second)
		raw := json.RawMessage(`{"n": 9007199254740993 }`)
		second := make(chan json.RawMessage, 1)
		b.start(client.Worker{Handler: func(ctx context.Context, run *client.Run) error {
			if run.Job.State != nil {
				second <- run.Job.State
				return nil
			}
			must(b, run.SetState(json.RawMessage(`"old"`)))
			must(b, run.SetState(raw))
			time.Sleep(21 * time.Second) // two heartbeats
			must(b, run.SaveState(ctx, json.RawMessage(`2`)))
			last := json.RawMessage(`"last"`)
			must(b, run.SetState(last))
			copy(last, `"gone"`) // the bytes are the worker's own
			return errors.New("failed")
		}})
		if got := <-second; string(got) != `"last"` {
			b.Errorf("second run's state = %s, want %q", got, "last")
		}
		b.finish(nil)
		var bodies []string
		for _, heartbeat := range b.double.requestsOf("heartbeat") {
			bodies = append(bodies, heartbeat.body)
		}
		if want := []string{string(raw), "", "2", `"last"`}; !slices.Equal(bodies, want) {
			b.Errorf("heartbeats %q, want %q", bodies, want)
		}
		b.wantLogged("handler failed")
	})
}

// A state the server refuses must not cost the lease.
func TestWorker_refusedStateIsDropped(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.enqueue("1", 30*time.Second)
		b.double.inject(injectedFault{on: "heartbeat", times: -1, status: 422, body: "too large",
			match: func(e recordedRequest) bool { return e.body != "" }})
		b.start(client.Worker{Handler: func(ctx context.Context, run *client.Run) error {
			must(b, run.SetState(json.RawMessage(`1`)))
			time.Sleep(45 * time.Second)
			if err := run.SaveState(ctx, json.RawMessage(`2`)); !errors.Is(err, client.ErrInvalid) {
				b.Errorf("SaveState = %v, want ErrInvalid", err)
			}
			if err := run.SetState(json.RawMessage(`{`)); !errors.Is(err, client.ErrInvalid) {
				b.Errorf("SetState = %v, want ErrInvalid", err)
			}
			return context.Cause(ctx)
		}})
		time.Sleep(46 * time.Second)
		mustExist(b, b.relay, "q", "1", false)
		b.finish(nil)
		b.wantLogged("state refused")
		b.wantRequests("heartbeat", 6) // one refused and repeated, three plain, one saved
	})
}

// RL-059, G-RL-01: requeueing ends the run; a conflict does not.
func TestWorker_requeue(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.enqueue("1", 30*time.Second)
		mustEnqueue(b, b.relay, relaySpec("other", "taken"))
		b.start(client.Worker{Handler: func(ctx context.Context, run *client.Run) error {
			err := run.Requeue(ctx, []client.RelaySpec{relaySpec("other", "taken")},
				client.RelayUnique)
			if !errors.Is(err, client.ErrConflict) {
				b.Errorf("Requeue = %v, want ErrConflict", err)
			}
			time.Sleep(11 * time.Second) // still ours: a heartbeat goes through
			repeated := run.Job.RelaySpec
			repeated.RunAt = time.Now().Add(24 * time.Hour)
			must(b, run.Requeue(ctx, []client.RelaySpec{repeated, relaySpec("other", "new")},
				client.RelayUnique))
			if err := run.Requeue(ctx, nil, ""); !errors.Is(err, client.ErrRunFinished) {
				b.Errorf("second Requeue = %v, want ErrRunFinished", err)
			}
			time.Sleep(30 * time.Second) // no heartbeats for a run that has ended
			return ctx.Err()
		}})
		time.Sleep(time.Minute)
		b.finish(nil)
		mustExist(b, b.relay, "q", "1", true)
		mustExist(b, b.relay, "other", "new", true)
		b.wantRequests("heartbeat", 1)
		b.wantRequests("complete", 0)
		b.wantRequests("requeue", 2)
	})
}

// A heartbeat must not mistake a requeue in progress for a loss.
func TestWorker_requeueUnderHeartbeats(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.enqueue("1", 3*time.Second)
		b.double.inject(injectedFault{on: "requeue", after: true, status: 429,
			header: http.Header{"Retry-After": {"2"}}})
		b.start(client.Worker{Handler: func(ctx context.Context, run *client.Run) error {
			must(b, run.Requeue(ctx, []client.RelaySpec{relaySpec("other", "new")},
				client.RelayUnique))
			return ctx.Err()
		}})
		time.Sleep(5 * time.Second)
		b.finish(nil)
		mustExist(b, b.relay, "q", "1", false)
		b.wantRequests("heartbeat", 0)
		if strings.Contains(b.log.String(), "lost") {
			b.Errorf("taken for lost:\n%s", b.log)
		}
	})
}

// TX-007: a run that its handler ends itself gets no heartbeat meanwhile, and no completion.
func TestWorker_endsWithHandler(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.enqueue("1", 3*time.Second)
		b.start(client.Worker{Handler: func(ctx context.Context, run *client.Run) error {
			return run.FinishWith(ctx, func(ctx context.Context) error {
				time.Sleep(2 * time.Second)
				return b.relay.Complete(ctx, run.Job.Run())
			})
		}})
		time.Sleep(5 * time.Second)
		b.finish(nil)
		mustExist(b, b.relay, "q", "1", false)
		b.wantRequests("heartbeat", 0)
		b.wantRequests("complete", 1) // that of the handler
		if strings.Contains(b.log.String(), "lost") {
			b.Errorf("taken for lost:\n%s", b.log)
		}
	})
}

// RL-085, RL-087: a failed or panicking handler leaves its job to the timeout.
func TestWorker_failures(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error":     func() error { return errors.New("boom") },
		"panic":     func() error { panic("boom") },
		"nil panic": func() error { panic(nil) },
		"goexit":    func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			withWorkerBench(t, func(b *workerBench) {
				retries := 1
				job := relaySpec("q", "1")
				job.MaxRetries = &retries
				mustEnqueue(b, b.relay, job)
				var starts []time.Time
				b.start(client.Worker{Handler: func(context.Context, *client.Run) error {
					starts = append(starts, time.Now())
					return fail()
				}})
				time.Sleep(90 * time.Second)
				mustExist(b, b.relay, "q", "1", false)
				b.finish(nil)
				if len(starts) != 2 || starts[1].Sub(starts[0]) < 30*time.Second {
					b.Errorf("started at %v, want twice, a timeout apart", starts)
				}
				b.wantRequests("heartbeat", 0)
				b.wantRequests("complete", 0)
				b.wantLogged("job_id=1")
				b.wantLogged("the run ends with its lease")
			})
		})
	}
}

// The worker's end leaves handlers their time, still sending heartbeats.
func TestWorker_drains(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.enqueue("1", 3*time.Second)
		b.enqueue("2", 3*time.Second)
		started := make(chan struct{}, 2)
		b.start(client.Worker{DrainTimeout: time.Minute,
			Handler: func(ctx context.Context, _ *client.Run) error {
				started <- struct{}{}
				time.Sleep(20*time.Second + time.Millisecond)
				return ctx.Err()
			}})
		<-started
		b.finish(nil)
		mustExist(b, b.relay, "q", "1", false)
		mustExist(b, b.relay, "q", "2", true) // not claimed: there was no slot
		b.wantRequests("heartbeat", 20)
		b.wantRequests("next", 1)
	})
}

// After the drain timeout the handlers are canceled; each outcome still counts.
func TestWorker_drainTimeout(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.enqueue("yields", 3*time.Second)
		b.enqueue("stubborn", 3*time.Second)
		started := make(chan struct{}, 2)
		b.start(client.Worker{Concurrency: 2, DrainTimeout: 10 * time.Second,
			Handler: func(ctx context.Context, run *client.Run) error {
				started <- struct{}{}
				<-ctx.Done()
				if run.Job.ID == "stubborn" {
					time.Sleep(10 * time.Second)
					return nil
				}
				return context.Cause(ctx)
			}})
		<-started
		<-started
		start := time.Now()
		b.finish(client.ErrDrainTimeout)
		if took := time.Since(start); took != 20*time.Second {
			b.Errorf("Run ended after %s, want 20s", took)
		}
		mustExist(b, b.relay, "q", "stubborn", false)
		mustExist(b, b.relay, "q", "yields", true)
		b.wantLogged("drain timeout")
	})
}

func TestWorker_noDrain(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.enqueue("1", 30*time.Second)
		started := make(chan struct{})
		b.start(client.Worker{DrainTimeout: -1,
			Handler: func(ctx context.Context, _ *client.Run) error {
				close(started)
				<-ctx.Done()
				return context.Cause(ctx)
			}})
		<-started
		start := time.Now()
		b.finish(client.ErrDrainTimeout)
		if took := time.Since(start); took != 0 {
			b.Errorf("Run ended after %s, want at once", took)
		}
	})
}

// Stopping an idle worker cuts its long poll off, when that has had the time to bring what was on
// its way.
func TestWorker_stopsWhilePolling(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.start(client.Worker{Concurrency: 3, Handler: func(context.Context, *client.Run) error {
			return nil
		}})
		time.Sleep(45 * time.Second) // in the middle of the second poll
		start := time.Now()
		b.finish(nil)
		if took := time.Since(start); took != 500*time.Millisecond {
			b.Errorf("Run ended after %s, want half a second", took)
		}
		b.wantRequests("next", 2)
	})
}

// Neither errors nor servers that do not wait make the worker spin.
func TestWorker_doesNotSpin(t *testing.T) {
	for name, tc := range map[string]struct {
		worker   client.Worker
		fault    injectedFault
		min, max int // polls in a minute
	}{
		"errors":       {fault: injectedFault{status: 500}, min: 8, max: 40},
		"broken":       {fault: injectedFault{drop: true}, min: 8, max: 40},
		"unauthorized": {fault: injectedFault{status: 401}, min: 8, max: 40},
		"Retry-After": {fault: injectedFault{status: 429,
			header: http.Header{"Retry-After": {"20"}}}, min: 2, max: 4},
		"answers nobody": {fault: injectedFault{status: 200, body: "[]"}, min: 60, max: 61},
		"empty at once": {fault: injectedFault{status: 204,
			header: http.Header{"Preference-Applied": {"wait=30"}}}, min: 60, max: 61},
		"slow interval": {worker: client.Worker{PollInterval: 20 * time.Second},
			fault: injectedFault{status: 204}, min: 3, max: 4},
		"no long poll": {worker: client.Worker{PollWait: -1}, fault: injectedFault{status: 204},
			min: 60, max: 61},
	} {
		t.Run(name, func(t *testing.T) {
			withWorkerBench(t, func(b *workerBench) {
				tc.fault.on, tc.fault.times = "next", -1
				b.double.inject(tc.fault)
				var runs atomic.Int32
				tc.worker.Handler = func(context.Context, *client.Run) error {
					runs.Add(1)
					return nil
				}
				b.start(tc.worker)
				time.Sleep(time.Minute)
				polls := b.double.requestsOf("next")
				if n := len(polls); n < tc.min || n > tc.max {
					b.Errorf("%d polls in a minute, want %d to %d", n, tc.min, tc.max)
				}
				if asks := polls[0].header.Get("Prefer") != ""; asks == (tc.worker.PollWait < 0) {
					b.Errorf("Prefer = %q", polls[0].header.Get("Prefer"))
				}
				b.double.clearFaults() // and it goes on by itself
				b.enqueue("1", 30*time.Second)
				time.Sleep(time.Minute)
				b.finish(nil)
				if runs.Load() != 1 {
					b.Errorf("%d runs after the fault, want 1", runs.Load())
				}
			})
		})
	}
}

func TestWorker_middleware(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		type key struct{}
		b.enqueue("1", 30*time.Second)
		var trace []string
		wrap := func(name string) client.Middleware {
			return func(next client.Handler) client.Handler {
				return func(ctx context.Context, run *client.Run) error {
					trace = append(trace, "in "+name)
					defer func() { trace = append(trace, "out "+name) }()
					return next(context.WithValue(ctx, key{}, name), run)
				}
			}
		}
		b.start(client.Worker{Middleware: []client.Middleware{wrap("a"), wrap("b")},
			Handler: func(ctx context.Context, _ *client.Run) error {
				trace = append(trace, "handler in "+ctx.Value(key{}).(string))
				panic("through both")
			}})
		synctest.Wait()
		b.finish(nil)
		if got, want := strings.Join(trace, ", "),
			"in a, in b, handler in b, out b, out a"; got != want {
			b.Errorf("trace %s, want %s", got, want)
		}
		b.wantLogged("through both")
	})
}

func TestTyped(t *testing.T) {
	t.Parallel()
	type mail struct {
		ID    int64 `json:"id"`
		Extra any   `json:"extra"`
	}
	run := &client.Run{Job: client.RelayJob{RelaySpec: client.RelaySpec{
		Payload: json.RawMessage(`{"id":9223372036854775807,"extra":18446744073709551616}`)}}}
	var got mail
	handle := client.Typed(func(_ context.Context, _ *client.Run, m mail) error {
		got = m
		return nil
	})
	must(t, handle(t.Context(), run))
	if got.ID != 9223372036854775807 || got.Extra != json.Number("18446744073709551616") {
		t.Errorf("got %+v, want the numbers unrounded", got)
	}
	run.Job.Payload = json.RawMessage(`[]`)
	var mistyped *json.UnmarshalTypeError
	if err := handle(t.Context(), run); !errors.As(err, &mistyped) {
		t.Errorf("mistyped payload: %v, want an UnmarshalTypeError", err)
	}
	for _, err := range []error{ // a run made by hand has no lease
		run.SetState(json.RawMessage(`1`)),
		run.SaveState(t.Context(), json.RawMessage(`1`)),
		run.Requeue(t.Context(), nil, ""),
		run.FinishWith(t.Context(), nil),
		(&client.JobRun{}).FinishWith(t.Context(), nil),
	} {
		if !errors.Is(err, client.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
	}
}

func TestWorker_validates(t *testing.T) {
	t.Parallel()
	err := (&client.Worker{Concurrency: -1}).Run(t.Context())
	if !errors.Is(err, client.ErrInvalid) {
		t.Fatalf("got %v, want ErrInvalid", err)
	}
	for _, field := range []string{"Relay", "Queue", "Handler", "Concurrency"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

// The same against a real server, with several workers on one queue: every job is done once.
func TestWorker_onARealServer(t *testing.T) {
	t.Parallel()
	baseURL, end := exampleServer()
	t.Cleanup(end)
	c, err := client.New(client.Config{BaseURL: baseURL})
	must(t, err)
	relay := c.Relay()
	const workers, jobs = 3, 60
	var batch []client.RelaySpec
	for i := range jobs {
		batch = append(batch, relaySpec("q/ü", fmt.Sprint(i)))
	}
	must(t, relay.Enqueue(t.Context(), batch, client.RelayUnique))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ran := make(chan string, 2*jobs)
	done := make(chan error)
	for range workers {
		w := &client.Worker{Relay: relay, Queue: "q/ü", Concurrency: 4,
			Handler: func(_ context.Context, run *client.Run) error {
				ran <- run.Job.ID
				return nil
			}}
		go func() { done <- w.Run(ctx) }()
	}
	visited := map[string]bool{}
	for range jobs {
		visited[<-ran] = true
	}
	stop()
	for range workers {
		must(t, <-done)
	}
	if len(visited) != jobs || len(ran) != 0 {
		t.Errorf("%d different jobs and %d more runs, want %d and none", len(visited), len(ran),
			jobs)
	}
	for id := range visited {
		mustExist(t, relay, "q/ü", id, false)
	}
}

// A run that the server has given up is logged and counted as lost by the answer to its end, with
// and without a next job in that answer, and with a requeue. Its job runs again.
func TestWorker_lostByItsEnd(t *testing.T) {
	t.Parallel()
	baseURL, end := exampleServer()
	t.Cleanup(end)
	c, err := client.New(client.Config{BaseURL: baseURL})
	must(t, err)
	relay := c.Relay()
	ends := map[string]func(ctx context.Context, run *client.Run) error{
		"complete": func(context.Context, *client.Run) error { return nil },
		"requeue": func(ctx context.Context, run *client.Run) error {
			err := run.Requeue(ctx, []client.RelaySpec{relaySpec("other", "1")}, "")
			if !errors.Is(err, client.ErrRunLost) {
				t.Errorf("the requeue of a lost run: %v", err)
			}
			return err
		},
	}
	for name, ending := range ends {
		for slots := 1; slots <= 2; slots++ { // with one the completion asks for the next job
			queue := fmt.Sprint(name, slots)
			mustEnqueue(t, relay, relaySpec(queue, "1"))
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var log bytes.Buffer
			var mu sync.Mutex
			var reasons []error
			w := &client.Worker{Relay: relay, Queue: queue, Concurrency: slots,
				Logger: slog.New(slog.NewTextHandler(&log,
					&slog.HandlerOptions{Level: slog.LevelDebug})),
				Handler: func(ctx context.Context, run *client.Run) error {
					if string(run.Job.Payload) == `"again"` {
						return nil
					}
					again := run.Job.RelaySpec
					again.Payload = json.RawMessage(`"again"`)
					must(t, relay.Enqueue(ctx, []client.RelaySpec{again}, client.RelayReplace))
					return ending(ctx, run)
				},
				AfterRun: func(_ client.RelayJob, reason error) {
					mu.Lock()
					defer mu.Unlock()
					if reasons = append(reasons, reason); len(reasons) == 2 {
						stop()
					}
				}}
			must(t, w.Run(ctx))
			if len(reasons) != 2 || !errors.Is(errors.Join(reasons...), client.ErrRunLost) ||
				!slices.Contains(reasons, nil) {
				t.Errorf("%s: the runs ended with %v", queue, reasons)
			}
			lost := strings.Count(log.String(), "run lost; its outcome is dropped")
			if completed := strings.Count(log.String(), "job completed"); lost != 1 ||
				completed != 1 {
				t.Errorf("%s: %d lost and %d completed in\n%s", queue, lost, completed, &log)
			}
			mustExist(t, relay, queue, "1", false)
		}
	}
	mustExist(t, relay, "other", "1", false)
}
