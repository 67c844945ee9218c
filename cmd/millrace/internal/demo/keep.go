package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/clock"
)

// A demo that is kept goes on serving after its accounts, with work that comes in slowly, so that
// the console has something to show:
//
//	mail        many short jobs, of which some fail for good
//	thumbnails  jobs that come a little faster than they are done
//	invoices    a few long jobs, of which some fail and are tried again
//	reports     a graph of four jobs now and then
//	archive     jobs that nobody asks for

// stream is what comes into a queue.
type stream struct {
	queue string
	every time.Duration // from one job to the next
	runs  time.Duration // how long a job runs at most
	// fails is one of how many attempts fails, with what error; 0 for none.
	fails int
	error string
	// isFinal says that what has failed is not tried again.
	isFinal bool
}

// streams are what comes in.
var streams = []stream{
	{queue: "mail", every: 400 * time.Millisecond, runs: 900 * time.Millisecond, fails: 20,
		isFinal: true, error: "550 no such user"},
	{queue: "thumbnails", every: 800 * time.Millisecond, runs: 3 * time.Second},
	{queue: "invoices", every: 4 * time.Second, runs: 8 * time.Second, fails: 4,
		error: "the printer does not answer"},
	{queue: "archive", every: 30 * time.Second},
}

// graphInterval is the time from one graph to the next.
const graphInterval = 15 * time.Second

// keep prints a link to the console and goes on, with work that comes in, until it is interrupted
// or nobody reads its output any more, which is its end and no failure.
func (d *demo) keep(ctx context.Context) error {
	token, err := os.ReadFile(filepath.Join(d.dir, "data", "operator.token"))
	if err != nil {
		return cli.WithCode(cli.ExitUnable, err)
	}
	c, err := client.New(client.Config{BaseURL: d.url, Token: strings.TrimSpace(string(token))})
	if err != nil {
		return cli.WithCode(cli.ExitFailed, err)
	}
	code, err := c.Admin().CreateLoginCode(ctx)
	if err != nil {
		return cli.RemoteError(ctx, err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	for _, s := range streams {
		all.Go(func() { stop(s.submit(ctx, c.TaskFlow())) })
	}
	all.Go(func() { stop(submitReports(ctx, c.TaskFlow())) })
	for _, concurrency := range []int{3, 2} {
		all.Go(func() { stop(work(ctx, c, concurrency)) })
	}
	fmt.Fprintf(d.p.Stdout, "\nconsole: %s%s\nThe link is good for one login. The server goes on, "+
		"and work comes in. Ctrl-C ends it.\n", d.url, code.Path)
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return cli.RemoteError(context.WithoutCancel(ctx), err)
	}
	fmt.Fprintln(d.p.Stdout, "ended; the demo leaves nothing behind")
	return nil
}

// submit submits a job from time to time, until ctx ends or the server refuses one.
func (s *stream) submit(ctx context.Context, flow *client.TaskFlow) error {
	retry := client.TaskFlowRetryPolicy{MaxAttempts: 3, BaseDelay: 2 * time.Second}
	return repeat(ctx, s.every, func(n int) error {
		payload, err := json.Marshal(map[string]any{"number": n, "to": fmt.Sprintf(
			"customer-%d@example.com", rand.IntN(1000))})
		if err != nil {
			return err
		}
		_, err = flow.Submit(ctx, client.TaskFlowSpec{Name: "send " + s.queue, Queue: s.queue,
			Payload: payload, Retry: retry})
		return err
	})
}

// submitReports submits a graph from time to time.
func submitReports(ctx context.Context, flow *client.TaskFlow) error {
	return repeat(ctx, graphInterval, func(int) error {
		var b client.TaskFlowGraphBuilder
		for _, step := range []struct {
			name  string
			needs []string
		}{{"extract", nil}, {"clean", []string{"extract"}}, {"audit", []string{"extract"}},
			{"publish", []string{"clean", "audit"}}} {
			b.Add(step.name, client.TaskFlowSpec{Name: step.name, Queue: "reports"}, step.needs...)
		}
		_, err := flow.SubmitGraph(ctx, &b)
		return err
	})
}

// repeat calls fn at once and then from time to time, with how often it was called before, until
// ctx ends or fn fails.
func repeat(ctx context.Context, every time.Duration, fn func(n int) error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		if err := fn(n); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// work does what has come in, but for the archive, until ctx ends.
func work(ctx context.Context, c *client.Client, concurrency int) error {
	handlers := map[string]client.JobHandler{
		"reports": simulatedHandler(&stream{runs: 4 * time.Second})}
	for _, s := range streams {
		if s.runs > 0 {
			handlers[s.queue] = simulatedHandler(&s)
		}
	}
	w := &client.JobWorker{API: c.WorkerAPI(), Contract: client.ContractTaskFlow,
		Name: fmt.Sprintf("demo-%d", concurrency), Concurrency: concurrency, Handlers: handlers,
		DrainTimeout: -1}
	if err := w.Run(ctx); err != nil {
		return err
	}
	return ctx.Err()
}

// simulatedHandler makes a handler that takes some time and fails now and then.
func simulatedHandler(s *stream) client.JobHandler {
	return func(ctx context.Context, run *client.JobRun) (json.RawMessage, error) {
		if err := run.SetState(json.RawMessage(`{"at":"half"}`)); err != nil {
			return nil, err
		}
		if !clock.Sleep(ctx, s.runs/10+rand.N(s.runs)) {
			return nil, context.Cause(ctx)
		}
		if s.fails > 0 && rand.IntN(s.fails) == 0 {
			err := errors.New(s.error)
			if s.isFinal {
				err = client.Final(err)
			}
			return nil, err
		}
		return json.RawMessage(`{"ok":true}`), nil
	}
}
