package engine_test

import (
	"context"
	"testing"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// meanwhileStore calls meanwhile once within a view, after the view has begun to read.
type meanwhileStore struct {
	store.Store
	meanwhile func()
}

func (s *meanwhileStore) View(ctx context.Context, fn func(store.Reader) error) error {
	meanwhile := s.meanwhile
	if meanwhile == nil {
		return s.Store.View(ctx, fn)
	}
	s.meanwhile = nil
	return s.Store.View(ctx, func(r store.Reader) error {
		if _, err := r.QueueSettings(); err != nil {
			return err
		}
		meanwhile()
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
			reads := &meanwhileStore{Store: w.store}
			e := testkit.NewEngine(t, reads, w.clock, testJobTypes()...)
			w.submit(sub("brief/1"))
			w.noError(e.LoadQueues(w.ctx))
			reads.meanwhile = func() {
				w.noError(e.SetQueue(w.ctx, job.QueueSettings{JobType: "brief", Queue: "q",
					Paused: true}))
				w.noError(e.SetDrain(w.ctx, engine.DrainWorker, "w", true,
					func(engine.RecordWriter, bool) error { return nil }))
			}
			w.noError(e.Refresh(w.ctx))
			if reads.meanwhile != nil {
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
