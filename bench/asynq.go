package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// asynqRunner is asynq on one Redis. It has no bulk enqueue, so jobs are enqueued one by one from
// many goroutines (flag --asynq-clients). Its server takes tasks off Redis in one loop, one at a
// time, however large Concurrency is; several servers in the process (--asynq-servers) take more:
// with a durable Redis, one fsync then serves many of them, and 32 servers of 16 workers did
// several times the work of one. The pool has a connection for each worker. Finished tasks are
// deleted, which is its default and cheaper than keeping them. The work is done when Redis holds no
// pending and no active task, not when the last handler returned.
type asynqRunner struct {
	env       *Env
	redis     *Redis
	opt       asynq.RedisClientOpt
	queue     string
	inspector *asynq.Inspector
}

func setupAsynqMemory(ctx context.Context, env *Env) (Runner, error) {
	r, err := redisMemory(ctx, env)
	if err != nil {
		return nil, err
	}
	return newAsynq(env, r), nil
}

func setupAsynqDurable(ctx context.Context, env *Env) (Runner, error) {
	r, err := redisDurable(ctx, env)
	if err != nil {
		return nil, err
	}
	return newAsynq(env, r), nil
}

func newAsynq(env *Env, r *Redis) *asynqRunner {
	opt := asynq.RedisClientOpt{
		Addr:     r.Addr,
		PoolSize: max(env.Tuning.AsynqClients, env.Tuning.AsynqConcurrency) + 8,
	}
	return &asynqRunner{
		env: env, redis: r, opt: opt, inspector: asynq.NewInspector(opt),
		// A queue of its own: a Redis that was there before may hold others.
		queue: "millrace-bench-" + env.Name,
	}
}

func (a *asynqRunner) Durability() string { return a.redis.Durability() }

func (a *asynqRunner) Run(ctx context.Context, n int) ([]Phase, error) {
	if err := a.clear(); err != nil {
		return nil, err
	}
	insert, err := a.insert(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("insert: %w", err)
	}
	work, err := a.work(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("work: %w", err)
	}
	return []Phase{insert, work, totalPhase(n, insert, work)}, nil
}

// clear removes the queue with whatever a failed run left in it.
func (a *asynqRunner) clear() error {
	err := a.inspector.DeleteQueue(a.queue, true)
	if errors.Is(err, asynq.ErrQueueNotFound) {
		return nil
	}
	return err
}

func (a *asynqRunner) insert(ctx context.Context, n int) (Phase, error) {
	client := asynq.NewClient(a.opt)
	defer client.Close()
	started := time.Now()
	latency, err := runParallel(ctx, a.env.Tuning.AsynqClients, n,
		func(ctx context.Context, _, i int) error {
			task := asynq.NewTask(Job{}.Kind(), appendPayload(nil, i))
			_, err := client.EnqueueContext(ctx, task, asynq.Queue(a.queue))
			return err
		})
	return Phase{Name: phaseInsert, Jobs: n, Took: time.Since(started), Latency: latency}, err
}

func (a *asynqRunner) work(ctx context.Context, n int) (Phase, error) {
	checklist := newChecklist(n)
	handler := asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		var job Job
		if err := json.Unmarshal(task.Payload(), &job); err != nil {
			return err
		}
		checklist.MarkWorked(job.Num)
		return nil
	})
	for range a.env.Tuning.AsynqServers {
		server := asynq.NewServer(a.opt, asynq.Config{
			Concurrency:       a.env.Tuning.AsynqConcurrency,
			Queues:            map[string]int{a.queue: 1},
			TaskCheckInterval: 10 * time.Millisecond, // matters only when the queue is empty
			LogLevel:          asynq.FatalLevel,
			ShutdownTimeout:   5 * time.Second,
		})
		if err := server.Start(handler); err != nil {
			return Phase{}, err
		}
		defer server.Shutdown()
	}
	started := checklist.StartTime(time.Now())
	if err := checklist.Wait(ctx); err != nil {
		return Phase{}, err
	}
	if err := a.awaitEmpty(ctx); err != nil {
		return Phase{}, err
	}
	return Phase{Name: phaseWork, Jobs: n, Took: time.Since(started)}, checklist.Check()
}

// awaitEmpty waits until Redis has recorded the end of every task.
func (a *asynqRunner) awaitEmpty(ctx context.Context) error {
	for ctx.Err() == nil {
		info, err := a.inspector.GetQueueInfo(a.queue)
		if err != nil {
			return err
		}
		if info.Pending+info.Active+info.Retry+info.Scheduled+info.Archived == 0 {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("tasks are still active: %w", context.Cause(ctx))
}

// Close leaves a Redis that was there before as it was found.
func (a *asynqRunner) Close() error {
	var errs []error
	if a.redis.child == nil {
		errs = append(errs, a.clear(), a.sweep())
	}
	return errors.Join(append(errs, a.inspector.Close(), a.redis.Close())...)
}

// sweep removes the counters that outlive a deleted queue.
func (a *asynqRunner) sweep() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: a.redis.Addr})
	defer client.Close()
	keys := client.Scan(ctx, 0, "asynq:{"+a.queue+"}*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := client.Del(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}
