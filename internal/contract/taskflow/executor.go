package taskflow

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/external"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/worker"
)

// The jobs of a queue are executed in one of four ways (G-TF-02):
//
//	Queue.Handler   executed by
//	exec            this server, which starts Queue.Command for each (executor_external.go)
//	http            this server, which sends the payload to Queue.URL (the same)
//	simulate        this server, which waits and ends as the payload says (executor_simulate.go)
//	none            remote workers, through the worker API (worker_api.go)

// A job is executed at least once. An attempt whose node dies ends with its lease, counts as
// failed and is retried by the job's policy (G-TF-26). A node that stops lets its attempts run for
// Grace and releases those that are left, which counts as nothing (G-TF-30). That of a job which is
// canceled is stopped.

// hasHandler reports whether nodes execute the jobs, so that remote workers must not.
func (q *Queue) hasHandler() bool {
	return q.Handler == handlerSimulate || slices.Contains(external.Kinds, q.Handler)
}

// validateQueues validates the queues in the order of their names, so that the same config has the
// same error every time.
func (c *Config) validateQueues() error {
	for _, name := range slices.Sorted(maps.Keys(c.Queues)) {
		q := c.Queues[name]
		switch {
		case q.MaxConcurrent < 0:
			return fmt.Errorf("taskflow: MaxConcurrent of queue %s must not be below 0", name)
		case !q.Rate.IsValid():
			return fmt.Errorf("taskflow: Rate of queue %s is out of range", name)
		case q.hasHandler() && !c.NoLocalWorkers && c.Node == "":
			return fmt.Errorf("taskflow: queue %s has a handler and needs Node", name)
		}
	}
	return nil
}

// maxSlots bounds the concurrent attempts of one queue on one node.
const maxSlots = 1000

// makePools makes a pool for each queue with a handler, so that a slow handler delays no other
// queue. Heartbeats come at a third of the lease, so that a lost one does not end it. A handler
// that cannot be made is an error of the setting that names it.
func (t *TaskFlow) makePools() error {
	t.pools = map[string]*worker.Pool{}
	for _, name := range slices.Sorted(maps.Keys(t.Queues)) {
		q := t.Queues[name]
		if t.NoLocalWorkers || !q.hasHandler() {
			continue
		}
		handler, err := t.handler(name, q)
		if err != nil {
			return &contract.SettingError{
				Setting: queuesSection + "." + name + ".handler", Err: err}
		}
		// More slots than the limits allow would never be filled.
		slots := t.MaxConcurrent
		if q.MaxConcurrent > 0 {
			slots = min(slots, q.MaxConcurrent)
		}
		t.pools[name] = worker.MustNew(worker.Config{
			Engine:            t.Engine,
			JobType:           Name,
			Queues:            []string{name},
			Name:              t.Node + "/" + name,
			Slots:             min(slots, maxSlots),
			HeartbeatInterval: t.Lease / 3,
			Handler:           handler,
			Log:               t.Log,
			OnPanic:           panicOutcome,
		})
	}
	return nil
}

// handler returns the handler of a queue that has one. All attempts of the queue share it.
func (t *TaskFlow) handler(name string, q *Queue) (worker.Handler, error) {
	if q.Handler == handlerSimulate {
		return &simulator{timer: t.Timer}, nil
	}
	h, err := t.External.New(name, q.Handler, &q.Settings)
	return &externalHandler{h, t.Log}, err
}

// panicOutcome is the outcome of an attempt whose handler panicked: a failure that is retried. The
// value of the panic is not stored with the job, where clients could read it.
func panicOutcome(task *worker.ClaimedJob, _ any) engine.Outcome {
	return failureOutcome(task.Job, "the handler panicked", typePanic, true)
}

// storeQueueLimits stores the configured limits and rates of queues (TF-059, G-TF-25). It reports
// false when ctx has ended before the store accepts them.
func (t *TaskFlow) storeQueueLimits(ctx context.Context) bool {
	limits := map[string]job.QueueLimits{}
	for name, q := range t.Queues {
		limits[name] = job.QueueLimits{MaxRunning: q.MaxConcurrent, Rate: q.Rate}
	}
	return contract.StoreQueueLimits(ctx, t.Engine, t.Log, Name, limits)
}
