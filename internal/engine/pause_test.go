package engine_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// AD-031: of a queue that one node pauses while workers claim from it on two, nothing is claimed on
// either node once the other has loaded the settings, which it does every second. It takes new
// jobs, running ones go on, and after it is resumed every job runs once.
func TestPauseOfTwoNodes(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		const jobs, before, workers = 60, 20, 2
		nodes := []*engine.Engine{w.engine, w.node(testJobTypes())}
		w.submit(sub("brief/held"))
		running := w.claim("brief", 1, "q")[0]
		for i := range jobs {
			w.submit(sub(fmt.Sprintf("brief/%d", i)))
		}
		req := engine.ClaimRequest{JobType: "brief", Queues: []string{"q"}, Max: 1, Worker: "w"}
		var paused, over atomic.Bool
		ran := make(chan string, 2*jobs)
		work := func(e *engine.Engine) {
			for !over.Load() && w.ctx.Err() == nil {
				wasPaused := paused.Load()
				claimed, err := e.Claim(w.ctx, req)
				if err != nil {
					w.Errorf("claim: %v", err)
				}
				if len(claimed) > 0 && wasPaused && paused.Load() {
					w.Errorf("%s was started in a paused queue", claimed[0].ID)
				}
				for _, j := range claimed {
					if _, err := e.Finish(w.ctx, engine.Run{Run: j.Run},
						engine.Outcome{On: job.Succeeded}); err != nil {
						w.Errorf("finish: %v", err)
					}
					ran <- j.ID.Key
				}
			}
		}
		var all sync.WaitGroup
		defer all.Wait()
		defer over.Store(true)
		for i := range workers * len(nodes) {
			all.Go(func() { work(nodes[i%len(nodes)]) })
		}
		runs := map[string]int{}
		await := func(n int) {
			for len(runs) < n {
				select {
				case key := <-ran:
					runs[key]++
				case <-w.ctx.Done():
					w.Fatalf("%d jobs ran, want %d", len(runs), n)
				}
			}
		}
		pause := func(at, other *engine.Engine, value bool) {
			w.noError(at.ChangeQueue(w.ctx, "brief", "q",
				func(_ engine.RecordWriter, q *job.QueueSettings) error {
					q.Paused = value
					return nil
				}))
			w.noError(other.Refresh(w.ctx))
		}
		await(before)
		pause(nodes[0], nodes[1], true)
		paused.Store(true)
		w.submit(sub("brief/late"))
		for i, e := range nodes {
			claimed, err := e.Claim(w.ctx, req)
			w.noError(err)
			if len(claimed) != 0 {
				w.Errorf("node %d started %v", i, names(claimed))
			}
			w.wantKind(errOf(e.ClaimJob(w.ctx, id("brief/late"), "w")), job.Conflict)
		}
		w.finish(engine.Run{Run: running.Run}, job.Succeeded)
		paused.Store(false)
		pause(nodes[1], nodes[0], false)
		await(jobs + 1)
		over.Store(true)
		all.Wait()
		if len(ran) > 0 {
			w.Errorf("%d more runs than jobs", len(ran))
		}
		for key, n := range runs {
			if n != 1 {
				w.Errorf("%s ran %d times", key, n)
			}
		}
	})
}
