package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// A caller that leaves while its call waits for a group is answered at once and nothing of the
// call happens; one whose call is being served gets its outcome.
func TestLeavingCallersAreWithdrawn(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		gate := &gatedStore{Store: w.store, open: make(chan struct{})}
		w.engine = testkit.NewEngine(w, gate, w.clock, testJobTypes()...)
		ctx, leave := context.WithCancel(w.ctx)
		submit := func(ctx context.Context, key string) error {
			return errOf(w.engine.Submit(ctx, engine.Unique, subs(sub(key))))
		}

		var served sync.WaitGroup
		servers := engine.MaxGroups(w.engine)
		for i := range servers {
			served.Go(func() { w.noError(submit(ctx, fmt.Sprint("brief/served-", i))) })
			engine.AwaitSubmits(w.engine, i+1, 0)
		}
		served.Go(func() { w.noError(submit(w.ctx, "brief/stays")) })
		engine.AwaitSubmits(w.engine, servers, 1)
		left := make(chan error)
		for i := range 3 {
			go func() { left <- submit(ctx, fmt.Sprint("brief/left-", i)) }()
			engine.AwaitSubmits(w.engine, servers, 2+i)
		}
		leave()
		for range 3 {
			w.wantKind(<-left, job.Aborted)
		}
		engine.AwaitSubmits(w.engine, servers, 1)
		late, cancel := context.WithDeadline(w.ctx, time.Unix(0, 0))
		defer cancel()
		w.wantKind(submit(late, "brief/late"), job.Unavailable)

		close(gate.open)
		served.Wait()
		c, err := w.engine.Queues(w.ctx, "brief")
		if want := int64(servers + 1); err != nil || len(c) != 1 || c[0].Ready != want {
			w.Errorf("counts %v, %v, want %d ready", c, err, want)
		}
		w.checkInvariants()
	})
}

// A heartbeat and a claim whose callers have left are withdrawn as well; the end of a run is
// written nevertheless, as the work is done.
func TestLeavingWorkers(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("brief/ends"), sub("brief/goes-on"))
		jobs := w.claim("brief", 2)
		ends := engine.Run{Run: jobs[0].Run}
		goesOn := engine.Run{Run: jobs[1].Run}
		gone, leave := context.WithCancel(w.ctx)
		leave()
		request := engine.ClaimRequest{JobType: "brief", Max: 1}

		gate := &gatedStore{Store: w.store, open: make(chan struct{})}
		w.engine = testkit.NewEngine(w, gate, w.clock, testJobTypes()...)
		servers := engine.MaxGroups(w.engine)
		var served sync.WaitGroup
		for i := range servers { // keep both combiners busy
			served.Go(func() { w.noError(errOf(w.engine.Heartbeat(w.ctx, goesOn, nil))) })
			engine.AwaitUpdates(w.engine, 2*i+1)
			served.Go(func() { w.noError(errOf(w.engine.Claim(w.ctx, request))) })
			engine.AwaitUpdates(w.engine, 2*i+2)
		}
		w.wantKind(errOf(w.engine.Heartbeat(gone, goesOn, []byte("unwritten"))), job.Aborted)
		if jobs, err := w.engine.Claim(gone, request); len(jobs) > 0 || err != nil {
			w.Errorf("claimed %v, %v for a caller that has left", jobs, err)
		}
		served.Go(func() {
			_, err := w.engine.Finish(gone, ends, engine.Outcome{On: job.Succeeded})
			w.noError(err)
		})
		close(gate.open)
		served.Wait()
		w.wantKind(errOf(w.engine.Heartbeat(w.ctx, ends, nil)), job.RunLost)
		if got := w.get("brief/goes-on").Progress; got != nil {
			w.Errorf("progress %q of a heartbeat that was withdrawn", got)
		}
		w.checkInvariants()
	})
}
