package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/client"
)

// A job enqueued, claimed, kept alive and completed, without a worker.
func Example() {
	baseURL, stop := exampleServer()
	defer stop()
	ctx := context.Background()
	c, err := client.New(client.Config{BaseURL: baseURL})
	if err != nil {
		fmt.Println(err)
		return
	}
	relay := c.Relay()

	err = relay.Enqueue(ctx, []client.RelaySpec{{
		Queue: "mail", ID: "welcome/42", Timeout: 30 * time.Second,
		Payload: json.RawMessage(`{"to":"a@example.org"}`),
	}}, client.RelayUnique)
	fmt.Println("enqueued:", err)

	jobs, err := relay.Claim(ctx, "mail", 10, 0)
	fmt.Println("claimed:", len(jobs), err)
	job := jobs[0]
	fmt.Println(job.ID, string(job.Payload))
	fmt.Println("heartbeat:", relay.Heartbeat(ctx, job.Run(), json.RawMessage(`{"sent":1}`)))
	fmt.Println("completed:", relay.Complete(ctx, job.Run()))

	_, err = relay.Get(ctx, "mail", "welcome/42")
	fmt.Println("gone:", errors.Is(err, client.ErrNotFound))
	// Output:
	// enqueued: <nil>
	// claimed: 1 <nil>
	// welcome/42 {"to":"a@example.org"}
	// heartbeat: <nil>
	// completed: <nil>
	// gone: true
}

// A worker with typed payloads. It ends when its context does.
func ExampleWorker() {
	baseURL, stop := exampleServer()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := client.New(client.Config{BaseURL: baseURL})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = c.Relay().Enqueue(ctx, []client.RelaySpec{{
		Queue: "mail", ID: "1", Timeout: 30 * time.Second,
		Payload: json.RawMessage(`{"to":"a@example.org"}`),
	}}, client.RelayUnique)
	if err != nil {
		fmt.Println(err)
		return
	}

	type mail struct{ To string }
	w := &client.Worker{
		Relay: c.Relay(), Queue: "mail", Concurrency: 4, DrainTimeout: 10 * time.Second,
		Logger: slog.New(slog.DiscardHandler),
		Handler: client.Typed(func(ctx context.Context, run *client.Run, m mail) error {
			fmt.Println("sending to", m.To)
			cancel() // enough for an example
			return nil
		}),
	}
	fmt.Println("stopped:", w.Run(ctx))
	// Output:
	// sending to a@example.org
	// stopped: <nil>
}

// A job that repeats itself: it requeues its own definition for later, instead of being completed
// (RL-070).
func ExampleRun_Requeue() {
	baseURL, stop := exampleServer()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := client.New(client.Config{BaseURL: baseURL})
	if err != nil {
		fmt.Println(err)
		return
	}
	relay := c.Relay()
	err = relay.Enqueue(ctx, []client.RelaySpec{{Queue: "reports", ID: "daily",
		Timeout: time.Minute}}, client.RelayIgnore)
	if err != nil {
		fmt.Println(err)
		return
	}

	w := &client.Worker{Relay: relay, Queue: "reports",
		Handler: func(ctx context.Context, run *client.Run) error {
			defer cancel()
			repeated := run.Job.RelaySpec
			repeated.RunAt = time.Now().Add(24 * time.Hour)
			return run.Requeue(ctx, []client.RelaySpec{repeated}, client.RelayUnique)
		}}
	fmt.Println("stopped:", w.Run(ctx))
	there, err := relay.Exists(context.Background(), "reports", "daily")
	fmt.Println("waits for tomorrow:", there, err)
	// Output:
	// stopped: <nil>
	// waits for tomorrow: true <nil>
}

// Middleware sees each run from outside the handler.
func ExampleMiddleware() {
	timed := func(logger *slog.Logger) client.Middleware {
		return func(next client.Handler) client.Handler {
			return func(ctx context.Context, run *client.Run) error {
				start := time.Now()
				err := next(ctx, run)
				logger.Info("run", "job_id", run.Job.ID, "took", time.Since(start), "error_message",
					err)
				return err
			}
		}
	}
	hello := func(context.Context, *client.Run) error { fmt.Println("hello"); return nil }

	handler := timed(slog.New(slog.DiscardHandler))(hello)
	fmt.Println(handler(context.Background(), &client.Run{}))
	// Output:
	// hello
	// <nil>
}
