package engine_test

import (
	"context"
	"testing"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// heldStore calls held once within a view, after the view has begun to read.
type heldStore struct {
	store.Store
	held func()
}

func (s *heldStore) View(ctx context.Context, fn func(store.Reader) error) error {
	held := s.held
	if held == nil {
		return s.Store.View(ctx, fn)
	}
	s.held = nil
	return s.Store.View(ctx, func(r store.Reader) error {
		if _, err := r.QueueSettings(); err != nil {
			return err
		}
		held()
		return fn(r)
	})
}

// AD-031: what is set while Refresh reads what there was before stays in force: a queue that is
// paused, and a worker that is drained.
func TestRefreshKeepsWhatIsSetMeanwhile(t *testing.T) {
	t.Parallel()
	for _, database := range []string{"file", "postgres"} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, database, testJobTypes())
			held := &heldStore{Store: w.store}
			e := testkit.NewEngine(t, held, w.clock, testJobTypes()...)
			w.submit(sub("brief/1"))
			w.noError(e.LoadQueues(w.ctx))
			held.held = func() {
				w.noError(e.SetQueue(w.ctx, job.QueueSettings{JobType: "brief", Queue: "q",
					Paused: true}))
				w.noError(e.SetDrain(w.ctx, engine.DrainWorker, "w", true,
					func(engine.RecordWriter, bool) error { return nil }))
			}
			w.noError(e.Refresh(w.ctx))
			if held.held != nil {
				t.Fatal("Refresh has read nothing")
			}
			if !e.IsDraining(engine.DrainWorker, "w") {
				t.Error("the worker is not drained")
			}
			jobs, err := e.Claim(w.ctx, engine.ClaimRequest{JobType: "brief", Queues: []string{"q"},
				Max: 1, Worker: "other"})
			if err != nil || len(jobs) > 0 {
				t.Errorf("of a paused queue %v, %v are claimed", jobs, err)
			}
		})
	}
}
