package taskflow

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/uuids"
	"github.com/millrace/millrace/internal/webhook"
	"github.com/millrace/millrace/internal/worker"
	workerapi "github.com/millrace/millrace/internal/worker/api"
)

// The handlers that run the jobs of a queue in the process. Without one a queue's
// jobs are for workers (G-TF-02).
const (
	handlerHTTP     = config.HandlerHTTP
	handlerSimulate = config.HandlerSimulate
)

// Queue is what is set for one queue.
type Queue struct {
	Handler       string // http, simulate; anything else is none
	URL           string // of http
	Secret        config.Secret
	Timeout       time.Duration
	MaxConcurrent int // over all nodes, 0: no limit of its own (G-TF-25)
}

func (q *Queue) hasHandler() bool {
	return q.Handler == handlerHTTP || q.Handler == handlerSimulate
}

// Runner is how a node runs the jobs of queues with a handler.
type Runner struct {
	Disabled bool // not on this node
	Node     string
	Client   webhook.Doer  // makes the requests of http
	Grace    time.Duration // that runs get to end in when the node stops

	// Timer is how time passes for simulated runs; nil is real time.
	Timer func(time.Duration) (passed <-chan time.Time, stop func())
}

func (c *Config) validateQueues() error {
	for name, q := range c.Queues {
		switch {
		case q.MaxConcurrent < 0:
			return fmt.Errorf("taskflow: MaxConcurrent of queue %s must not be below 0", name)
		case q.hasHandler() && !c.Runner.Disabled && c.Runner.Node == "":
			return fmt.Errorf("taskflow: queue %s has a handler and Runner no Node", name)
		case q.Handler == handlerHTTP && (q.URL == "" || q.Timeout <= 0 || c.Runner.Client == nil):
			return fmt.Errorf("taskflow: queue %s needs URL, Timeout and Runner.Client", name)
		}
	}
	if c.Runner.Timer == nil {
		c.Runner.Timer = realTimer
	}
	return nil
}

func realTimer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// RemoteWorkers is how jobs are run by workers outside the process: those of queues
// without a handler.
func (t *TaskFlow) RemoteWorkers() workerapi.Contract {
	return workerapi.Contract{Name: Name, Attempt: Attempt, State: StatusOf,
		Complete: CompletedWith, Fail: FailedWith,
		ID: func(jobID string) (job.ID, bool) {
			key, ok := uuids.Parse(jobID)
			return job.ID{Contract: Name, Key: key}, ok
		},
		RunsLocally: func(queue string) bool { q := t.Queues[queue]; return q.hasHandler() }}
}

// maxSlots bounds the runs of one queue on one node.
const maxSlots = 1000

// Run sets the limits of queues and runs the jobs of those that have a handler,
// until ctx ends and what is under way is over.
func (t *TaskFlow) Run(ctx context.Context) {
	if !t.limitQueues(ctx) || t.Runner.Disabled {
		return
	}
	var all sync.WaitGroup
	for name, q := range t.Queues {
		if !q.hasHandler() {
			continue
		}
		slots := t.MaxConcurrent
		if q.MaxConcurrent > 0 {
			slots = min(slots, q.MaxConcurrent)
		}
		pool, err := worker.New(worker.Config{Engine: t.engine, Contract: Name,
			Queues: []string{name}, Name: t.Runner.Node + "/" + name,
			Slots: min(slots, maxSlots), HeartbeatInterval: t.Lease / 3, Handler: t.handler(&q),
			Log: t.Log, OnPanic: panicOutcome})
		if err != nil {
			panic(err) // New has let nothing pass that is refused here
		}
		all.Go(func() { pool.Run(ctx, t.Runner.Grace) })
	}
	all.Wait()
}

func (t *TaskFlow) handler(q *Queue) worker.Handler {
	if q.Handler == handlerHTTP {
		return &httpHandler{queue: *q, client: t.Runner.Client, now: t.Now}
	}
	return &simulator{timer: t.Runner.Timer}
}

func panicOutcome(task *worker.Task, _ any) engine.Outcome {
	return FailedWith(task.Job, "the handler broke", "panic", true)
}

// limitRetryInterval is between two tries to set limits while the store is away.
const limitRetryInterval = time.Second

// limitQueues gives queues the limits that are set for them, and takes those away
// that are not set any more. False is the end of ctx.
func (t *TaskFlow) limitQueues(ctx context.Context) bool {
	limits := map[string]int{}
	for name, q := range t.Queues {
		if q.MaxConcurrent > 0 {
			limits[name] = q.MaxConcurrent
		}
	}
	tries := outage.Loop{Log: t.Log, Name: "limits of queues"}
	for {
		err := t.engine.LimitQueues(ctx, Name, limits)
		if tries.Report(ctx, err); err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		passed, stop := realTimer(limitRetryInterval)
		select {
		case <-passed:
		case <-ctx.Done():
			stop()
			return false
		}
	}
}
