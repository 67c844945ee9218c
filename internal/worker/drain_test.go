package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/worker"
)

// TestOperatorsDrain (AD-041, AD-042): a pool whose node or worker is drained finishes what it
// executes and takes nothing more, until that is resumed. It is listed as long as it runs.
func TestOperatorsDrain(t *testing.T) {
	t.Parallel()
	for kind, name := range map[engine.DrainKind]string{engine.DrainNode: "",
		engine.DrainWorker: "n/1"} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if kind == engine.DrainNode {
				name = w.engine.Node()
			}
			started, finish := make(chan string, 3), make(chan struct{})
			p := w.startPool(worker.Config{Slots: 2, Handler: startFirst(
				func(_ context.Context, t *worker.ClaimedJob) engine.Outcome {
					started <- t.Job.ID.Key
					<-finish
					return succeeded
				})}, time.Minute)
			w.submit(1, time.Minute)
			testkit.Receive(t, "the first job to begin", started)
			drain(w, kind, name, true)
			testkit.WaitUntil(t, "the pool to stop claiming", func() bool {
				return p.Available() == 0
			})
			if all := w.engine.Workers(); len(all) != 1 || all[0].Name != "n/1" ||
				all[0].Slots != 2 {
				t.Errorf("AD-040 the workers are %+v", all)
			}
			w.submitOne("later")
			finish <- struct{}{}
			w.waitForState("succeeded", 1)
			if got := w.state("later"); got != "queued" {
				t.Errorf("a drained pool has taken a job: it is %s", got)
			}
			drain(w, kind, name, false)
			if key := testkit.Receive(t, "the second job to begin", started); key != "later" {
				t.Errorf("got %s", key)
			}
			finish <- struct{}{}
			w.waitForState("succeeded", 1)
			p.stop()
			p.wait()
			if all := w.engine.Workers(); len(all) != 0 {
				t.Errorf("a pool that has stopped is listed: %+v", all)
			}
		})
	}
}

func drain(w *world, kind engine.DrainKind, name string, draining bool) {
	w.Helper()
	err := w.engine.SetDrain(w.Context(), kind, name, draining,
		func(engine.RecordWriter, bool) error { return nil })
	if err != nil {
		w.Fatal(err)
	}
}
