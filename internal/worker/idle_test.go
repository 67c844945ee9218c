package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/worker"
)

// TestIdleWorkersAskSeldom: workers that wait ask the store only every few minutes, and get a job
// at once that is submitted meanwhile.
func TestIdleWorkersAskSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ran := make(chan time.Time, 1)
		p := w.startPool(worker.Config{Workers: 4, Handler: startFirst(func(context.Context,
			*worker.ClaimedJob) engine.Outcome {
			ran <- time.Now()
			return succeeded
		})}, time.Minute)
		synctest.Wait()
		asked := w.store.updates.Load()
		const idle = 4 * time.Minute
		time.Sleep(idle)
		if n := w.store.updates.Load() - asked; n > 0 {
			t.Errorf("%d updates within %v", n, idle)
		}
		began := time.Now()
		w.submit(1, time.Minute)
		if waited := (<-ran).Sub(began); waited > 0 {
			t.Errorf("the job has waited %v", waited)
		}
		w.waitForState("succeeded", 1)
		p.stop()
		p.wait()
	})
}
