package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// What a worker does while its server does not answer or refuses its requests.

// When the server has refused heartbeats for a whole timeout, the run must be taken for lost.
func TestWorker_lostByRefusals(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.enqueue("1", 30*time.Second)
		b.double.inject(injectedFault{on: "heartbeat", times: -1, status: 401})
		start := time.Now()
		lostAfter := make(chan time.Duration, 1)
		stopped := make(chan struct{}) // else the worker would soon have the job again
		b.start(client.Worker{Handler: func(ctx context.Context, _ *client.Run) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), client.ErrRunLost) {
				b.Errorf("cause = %v, want ErrRunLost", context.Cause(ctx))
			}
			lostAfter <- time.Since(start)
			<-stopped
			return nil
		}})
		if after := <-lostAfter; after < 30*time.Second || after > 40*time.Second {
			b.Errorf("lost after %s, want 30s to 40s", after)
		}
		b.stop()
		close(stopped)
		b.finish(nil)
		b.wantRequests("complete", 0)
		b.wantLogged("no heartbeat was accepted")
	})
}

// A short outage costs nothing.
func TestWorker_survivesAnOutage(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.enqueue("1", 30*time.Second)
		b.double.inject(injectedFault{on: "heartbeat", times: 7, status: 503})
		b.injectEnds(injectedFault{times: 3, status: 429,
			header: http.Header{"Retry-After": {"2"}}})
		b.start(client.Worker{Handler: func(ctx context.Context, _ *client.Run) error {
			time.Sleep(50 * time.Second)
			return context.Cause(ctx)
		}})
		time.Sleep(60 * time.Second)
		mustExist(b, b.relay, "q", "1", false)
		b.finish(nil)
	})
}

// After a heartbeat that failed in all its tries the next ones are sent at the usual pace, and one
// that was confirmed makes up for those that failed before.
func TestWorker_heartbeatsAfterAFailure(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.enqueue("1", 30*time.Second)
		start := time.Now()
		down := func(e recordedRequest) bool { // during every second heartbeat
			return e.at.Sub(start)/(10*time.Second)%2 == 1
		}
		b.double.inject(injectedFault{on: "heartbeat", times: -1, drop: true, match: down})
		b.start(client.Worker{Handler: func(ctx context.Context, _ *client.Run) error {
			time.Sleep(65 * time.Second)
			return context.Cause(ctx)
		}})
		time.Sleep(66 * time.Second)
		mustExist(b, b.relay, "q", "1", false)
		b.finish(nil)
		var confirmed []time.Duration
		for _, heartbeat := range b.double.requestsOf("heartbeat") {
			if !heartbeat.faulted {
				confirmed = append(confirmed, heartbeat.at.Sub(start))
			}
		}
		want := []time.Duration{20 * time.Second, 40 * time.Second, 60 * time.Second}
		if !slices.Equal(confirmed, want) {
			b.Errorf("heartbeats were confirmed at %v, want %v", confirmed, want)
		}
		const unanswered, answered = "the server does not answer", "the server answers again"
		if outages := strings.Count(b.log.String(), unanswered); outages != 3 {
			b.Errorf("%d outages are logged, want 3:\n%s", outages, b.log)
		}
		if ended := strings.Count(b.log.String(), answered); ended != 3 {
			b.Errorf("%d ends of outages are logged, want 3:\n%s", ended, b.log)
		}
	})
}

// One outage is one line and its end another, whatever the number of runs that miss heartbeats.
func TestWorker_logsAnOutageOnce(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		const runs = 8
		for i := range runs {
			b.enqueue(fmt.Sprint(i), 60*time.Second)
		}
		start := time.Now()
		down := func(e recordedRequest) bool {
			return e.at.Sub(start) > 10*time.Second && e.at.Sub(start) < 50*time.Second
		}
		for _, op := range []string{"heartbeat", "heartbeats"} {
			b.double.inject(injectedFault{on: op, times: -1, drop: true, match: down})
		}
		b.start(client.Worker{Concurrency: runs,
			Handler: func(ctx context.Context, _ *client.Run) error {
				time.Sleep(2 * time.Minute)
				return context.Cause(ctx)
			}})
		time.Sleep(150 * time.Second)
		b.finish(nil)
		if got := strings.Count(b.log.String(), "\n"); got != 3 {
			b.Errorf("%d lines, want 3:\n%s", got, b.log)
		}
		b.wantLogged("waiting for jobs")
		b.wantLogged("the server does not answer")
		b.wantLogged("the server answers again")
	})
}

// A worker that is stopped in an outage tries to complete until its drain timeout is over, and 10 s
// longer.
func TestWorker_stopsInAnOutage(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.enqueue("1", 30*time.Second)
		b.injectEnds(injectedFault{times: -1, drop: true})
		b.start(client.Worker{DrainTimeout: time.Minute,
			Handler: func(context.Context, *client.Run) error { return nil }})
		time.Sleep(5 * time.Minute)
		start := time.Now()
		b.finish(client.ErrDrainTimeout)
		if took := time.Since(start); took != 70*time.Second {
			b.Errorf("Run ended after %s, want 70s", took)
		}
		b.wantLogged("done but not completed")
	})
}

// Kill ends the contexts of the handlers with its cause, long before the drain timeout.
func TestWorker_kill(t *testing.T) {
	withWorkerBench(t, func(b *workerBench) {
		b.enqueue("1", 30*time.Second)
		kill, end := context.WithCancelCause(b.Context())
		cause := errors.New("second signal")
		started := make(chan struct{})
		b.start(client.Worker{Kill: kill, DrainTimeout: time.Hour,
			Handler: func(ctx context.Context, _ *client.Run) error {
				close(started)
				<-ctx.Done()
				if got := context.Cause(ctx); !errors.Is(got, cause) ||
					!errors.Is(got, client.ErrDrainTimeout) {
					b.Errorf("cause %v", got)
				}
				return context.Cause(ctx)
			}})
		<-started
		start := time.Now()
		end(cause)
		if err := <-b.done; !errors.Is(err, client.ErrDrainTimeout) {
			b.Errorf("Run = %v", err)
		}
		if took := time.Since(start); took > time.Second {
			b.Errorf("Run ended after %s", took)
		}
	})
}

// A worker whose polls have failed reports soon that they succeed again, although a poll that
// brings no job takes half a minute.
func TestWorker_logsTheEndOfAnOutageOfPolls(t *testing.T) {
	for name, fault := range map[string]injectedFault{
		"no answer": {drop: true}, "refused": {status: 401}} {
		t.Run(name, func(t *testing.T) {
			withWorkerBench(t, func(b *workerBench) {
				fault.on, fault.times = "next", 3
				b.double.inject(fault)
				b.start(client.Worker{Handler: func(context.Context, *client.Run) error {
					return nil
				}})
				time.Sleep(5 * time.Second)
				b.finish(nil)
				b.wantLogged("the server answers again")
			})
		})
	}
}
