package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/client"
)

// A server that is unavailable, or asks to try again, gives no job away: handlers go on, and what
// is done is completed when it is back, however long that takes.

// indefinite are the faults after which a request may succeed. Relay answers 429 while its store is
// unavailable (G-RL-05).
var indefinite = map[string]injectedFault{
	"no answer":   {drop: true},
	"429":         {status: http.StatusTooManyRequests, header: http.Header{"Retry-After": {"1"}}},
	"bad gateway": {status: http.StatusBadGateway},
	"503":         {status: http.StatusServiceUnavailable},
	"gateway":     {status: http.StatusGatewayTimeout},
}

// injectFault injects a fault into everything but submissions in a time after now.
func (b *workerBench) injectFault(fault injectedFault, from, to time.Duration) {
	start := time.Now()
	for _, op := range []string{"next", "heartbeat", "heartbeats", "complete", "completions"} {
		fault.on, fault.times = op, -1
		fault.match = func(r recordedRequest) bool {
			return r.at.Sub(start) > from && r.at.Sub(start) < to
		}
		b.double.inject(fault)
	}
}

// injectEnds injects a fault into all requests that complete runs.
func (b *workerBench) injectEnds(fault injectedFault) {
	for _, op := range []string{"complete", "completions"} {
		fault.on = op
		b.double.inject(fault)
	}
}

// wantOutage checks that the log has, after the start of the worker, one outage and its end, with a
// duration, and nothing else.
func wantOutage(t *testing.T, log string, minWait, maxWait time.Duration) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(log), "\n")
	if len(lines) != 3 || !strings.Contains(lines[1], "level=WARN") ||
		!strings.Contains(lines[2], "the server answers again") {
		t.Fatalf("want the start and the end of an outage:\n%s", log)
	}
	_, text, _ := strings.Cut(lines[2], "duration=")
	duration, err := time.ParseDuration(strings.Fields(text + " -")[0])
	if err != nil || duration < minWait || duration > maxWait {
		t.Errorf("duration %s, want %s to %s:\n%s", duration, minWait, maxWait, log)
	}
}

func TestWorker_completesAfterALongOutage(t *testing.T) {
	const end = 5 * time.Minute
	for kind, fault := range indefinite {
		for name, work := range map[string]time.Duration{
			"the handler goes on in the outage": 10 * time.Minute,
			"the handler ends in the outage":    20 * time.Second,
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				withWorkerBench(t, func(b *workerBench) {
					b.enqueue("1", 30*time.Second)
					start := time.Now()
					b.injectFault(fault, 15*time.Second, end)
					reasons := make(chan error, 2)
					b.start(client.Worker{
						Handler: func(ctx context.Context, _ *client.Run) error {
							time.Sleep(work)
							return context.Cause(ctx)
						},
						AfterRun: func(_ client.RelayJob, reason error) { reasons <- reason }})
					if reason := <-reasons; reason != nil {
						b.Errorf("not completed: %v", reason)
					}
					if took := time.Since(start); took > max(work, end)+5*time.Second {
						b.Errorf("completed after %s", took)
					}
					mustExist(b, b.relay, "q", "1", false)
					b.finish(nil)
					if len(reasons) > 0 {
						b.Error("the job ran twice")
					}
					wantOutage(b.T, b.log.String(), end-35*time.Second, end)
				})
			})
		}
	}
}

// Runs that end together in an outage are all completed, once, when it is over.
func TestWorker_completesManyAfterALongOutage(t *testing.T) {
	for kind, fault := range indefinite {
		t.Run(kind, func(t *testing.T) {
			withWorkerBench(t, func(b *workerBench) {
				const jobs, end = 30, 3 * time.Minute
				for i := range jobs {
					b.enqueue(fmt.Sprint(i), 30*time.Second)
				}
				b.slow()
				b.injectFault(fault, 5*time.Second, end)
				var started, completed atomic.Int64
				b.start(client.Worker{Concurrency: jobs,
					Handler: func(context.Context, *client.Run) error {
						started.Add(1)
						time.Sleep(20 * time.Second)
						return nil
					},
					AfterRun: func(_ client.RelayJob, reason error) {
						if reason == nil {
							completed.Add(1)
						}
					}})
				time.Sleep(end - 5*time.Second)
				b.finish(nil) // no more polls: the double does not keep leases over outages
				if started.Load() != jobs || completed.Load() != jobs {
					b.Errorf("%d runs, %d completed, want %d", started.Load(), completed.Load(),
						jobs)
				}
				for i := range jobs {
					mustExist(b, b.relay, "q", fmt.Sprint(i), false)
				}
				wantOutage(b.T, b.log.String(), end-35*time.Second, end)
			})
		})
	}
}

// Retry-After is obeyed, up to a minute.
func TestWorker_outcomesObeyRetryAfter(t *testing.T) {
	for seconds, want := range map[string]int{"20": 15, "3600": 5} { // in five minutes
		t.Run(seconds, func(t *testing.T) {
			withWorkerBench(t, func(b *workerBench) {
				b.enqueue("1", 30*time.Second)
				b.injectEnds(injectedFault{times: -1, status: 429,
					header: http.Header{"Retry-After": {seconds}}})
				b.start(client.Worker{DrainTimeout: -1,
					Handler: func(context.Context, *client.Run) error { return nil }})
				time.Sleep(5 * time.Minute)
				if tries := b.count("complete"); tries > want || tries < want-2 {
					b.Errorf("%d tries in five minutes, want about %d", tries, want)
				}
				b.finish(client.ErrDrainTimeout)
				b.wantLogged("done but not completed")
				if strings.Contains(b.log.String(), "answers again") {
					b.Errorf("the outage has ended while the server refuses:\n%s", b.log)
				}
			})
		})
	}
}

// The answer that a run is lost ends an outage, and nothing is sent about the run after it.
func TestWorker_lostInAnOutage(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		const end = 2 * time.Minute
		b.enqueue("1", 30*time.Second)
		b.injectFault(injectedFault{status: 429}, 5*time.Second, end)
		b.start(client.Worker{Handler: func(ctx context.Context, run *client.Run) error {
			time.Sleep(time.Minute)
			if err := b.relay.Delete(context.WithoutCancel(ctx), "q", run.Job.ID); err != nil {
				return err
			}
			<-ctx.Done()
			time.Sleep(time.Hour) // a handler that ends late
			return nil
		}})
		time.Sleep(2 * time.Hour)
		b.finish(nil)
		b.wantRequests("complete", 0)
		outage, _, _ := strings.Cut(b.log.String(), "run lost")
		wantOutage(b.T, outage[:strings.LastIndexByte(outage, '\n')], end-35*time.Second, end)
	})
}

// The outcomes of a JobWorker are repeated as those of a Worker, in batches too.
func TestJobWorker_refusedForLong(t *testing.T) {
	t.Parallel()
	for _, status := range []int{429, 502, 503, 504} {
		for _, jobs := range []int{1, 30} {
			t.Run(fmt.Sprint(status, " ", jobs), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { refuseForLong(t, status, jobs) })
			})
		}
	}
}

func refuseForLong(t *testing.T, status, jobs int) {
	const from, end = 5 * time.Second, 3 * time.Minute
	d := &fakeWorkerAPI{}
	for i := range jobs {
		d.put(fmt.Sprintf("r%d", i), "q", "1")
	}
	start := time.Now()
	api := directWorker(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(answersAfter)
		if since := time.Since(start); since > from && since < end {
			answerRefusal(w, status, "STORE_UNAVAILABLE")
			return
		}
		d.ServeHTTP(w, r)
	}))
	var text bytes.Buffer
	var completed atomic.Int64
	w := client.JobWorker{API: api, Contract: client.ContractTaskFlow, Concurrency: jobs,
		Logger: slog.New(slog.NewTextHandler(&text, nil)),
		AfterRun: func(_ client.ClaimedJob, reason error) {
			if reason == nil {
				completed.Add(1)
			}
		},
		Handlers: map[string]client.JobHandler{"q": func(ctx context.Context,
			_ *client.JobRun) (json.RawMessage, error) {
			time.Sleep(time.Minute)
			return nil, context.Cause(ctx)
		}}}
	ctx, stop := context.WithTimeout(t.Context(), end+10*time.Second)
	defer stop()
	if err := w.Run(ctx); err != nil {
		t.Error(err)
	}
	said := slices.DeleteFunc(d.outcomes(), func(s string) bool {
		return strings.HasPrefix(s, "heartbeat")
	})
	if len(said) != jobs || completed.Load() != int64(jobs) {
		t.Errorf("%d outcomes were accepted, %d completed, want %d\n%s", len(said),
			completed.Load(), jobs, &text)
	}
	wantOutage(t, text.String(), end-35*time.Second, end+5*time.Second)
}
