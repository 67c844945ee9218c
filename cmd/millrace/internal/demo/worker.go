package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// A worker of the demo is this same binary with a hidden subcommand. It is a separate process
// because the demo kills one with SIGKILL: its connections break and its heartbeats end as in a
// crash.

// The queues of the demo. A worker requeues a job of the first as a result in the second. That is
// one transaction, so every file is in exactly one of the queues at any time.
const (
	filesQueue   = "files"
	resultsQueue = "results"
)

// victimWorker is the number of the worker that is killed. It never finishes its first file, so
// that it holds a file whenever it is killed.
const victimWorker = 1

// fileTask is the payload of a job: one file to measure.
type fileTask struct {
	Path string `json:"path"`
}

// fileResult is the payload of a result.
type fileResult struct {
	Path string `json:"path"`
	fileStats
	Error  string `json:"error,omitempty"`
	Worker int    `json:"worker"`
	// Run is the id of the run that made the result.
	Run string `json:"run"`
	// Attempt is the number of attempts at the job so far.
	Attempt int `json:"attempt"`
}

// maxRetries is more than the demo ever needs. From the retries that remain follows the number of
// an attempt.
const maxRetries = 100

// WorkerCommand is `millrace demo-worker`, a worker of the demo in a process of its own, so that it
// can be killed. It prints a line with each file that it starts with, and ends when its standard
// input does, so that no worker outlives the demo.
func WorkerCommand(p cli.Process) *cobra.Command {
	var remote cli.RemoteFlags
	var root string
	victim := make(chan struct{}, 1) // has a value while the victim has its file
	var number, concurrency int
	var pace time.Duration
	c := &cobra.Command{
		Use:    "demo-worker",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := cli.UntilSignal(context.Background())
			defer stop()
			ctx, stopStdin := p.UntilStdinEnds(ctx)
			defer stopStdin()
			api, err := remote.Client(p, nil)
			if err != nil {
				return err
			}
			w := &client.Worker{Relay: api.Relay(), Queue: filesQueue, Concurrency: concurrency,
				DrainTimeout: 5 * time.Second,
				Logger: slog.New(slog.NewTextHandler(p.Stderr,
					&slog.HandlerOptions{Level: slog.LevelError})),
				Handler: client.Typed(func(ctx context.Context, run *client.Run,
					task fileTask) error {
					fmt.Fprintf(p.Stdout, "begin %q\n", run.Job.ID)
					if number == victimWorker {
						select {
						case victim <- struct{}{}:
							<-ctx.Done()
							<-victim
							return context.Cause(ctx)
						default:
						}
					}
					return handleTask(ctx, run, task, root, number, pace)
				})}
			return cli.WithCode(cli.ExitFailed, w.Run(ctx))
		},
	}
	remote.Register(c)
	c.Flags().StringVar(&root, "root", ".", "folder of the files")
	c.Flags().IntVar(&number, "number", 0, "of this worker")
	c.Flags().IntVar(&concurrency, "concurrency", 4, "files at a time")
	c.Flags().DurationVar(&pace, "pace", 0, "least time for a file")
	return c
}

// handleTask measures a file and requeues its job as a result, pace after the start at the
// earliest. A file that cannot be read has a result with the error. When the run is lost meanwhile,
// as after a late heartbeat, ctx ends and nothing is requeued: another worker has the job.
func handleTask(ctx context.Context, run *client.Run, task fileTask, root string, number int,
	pace time.Duration) error {
	minRunTime := time.NewTimer(pace)
	defer minRunTime.Stop()
	result := fileResult{Path: task.Path, Worker: number, Run: run.Job.RunID, Attempt: 1}
	if left := run.Job.RetriesRemaining; left != nil {
		result.Attempt += maxRetries - *left
	}
	found, err := measureFile(filepath.Join(root, filepath.FromSlash(task.Path)))
	if err != nil {
		result.Error = err.Error()
	}
	result.fileStats = found
	payload, err := json.Marshal(result)
	if err != nil {
		return err
	}
	select {
	case <-minRunTime.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return run.Requeue(ctx, []client.RelaySpec{{Queue: resultsQueue, ID: run.Job.ID,
		Timeout: time.Minute, Payload: payload}}, client.RelayUnique)
}
