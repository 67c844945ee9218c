package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/contract/taskflow"
)

// maxHeartbeatInterval bounds how late a command learns that its job was deleted or replaced.
const maxHeartbeatInterval = 30 * time.Second

type workFlags struct {
	contract    string
	remote      cli.RemoteFlags
	concurrency int
	maxJobs     int
	untilEmpty  bool
	drain       time.Duration
	killAfter   time.Duration
	quiet       bool
}

const workHelp = `Run a command for each job of a queue of Relay, or of one or more queues of the
contract that --contract names. The command gets the payload on its standard
input and, in its environment, MILLRACE_QUEUE, MILLRACE_JOB_ID, MILLRACE_RUN_ID
and MILLRACE_STATE (the job's state, empty when there is none). What it writes is
passed through; on its standard error millrace adds what it waits for, and each
job that it takes and how that ended (--quiet leaves it at failures).

While it runs the job is kept alive by heartbeats. When it exits with 0 the job
is completed. A command whose run is lost, because the job was deleted, replaced
or timed out, is terminated with the next heartbeat: they go out at a third of
its timeout or lease.

Relay hears of no failure: the reason is logged and the heartbeats end, so that
the job comes back after its timeout. Other contracts get the outcome. On exit 0
the standard output is the result: as it is if it is JSON, else as a string. Of
more than 64 KiB the first 64 KiB are, as a string, and a warning is logged. The
exit codes 64 to 78 (sysexits) fail the job for good, all others fail this try,
with the last line of the standard error as the reason. A result that the server
refuses fails the job for good, and of Images this try. A command that was ended
by a signal to millrace gives its job back. The environment then also has
MILLRACE_CONTRACT and MILLRACE_ATTEMPT, from 1 on.

A command that cannot be started, or exits with 126 or 127, as a shell does when a
program is missing or not executable, is never the job's fault: the job goes back
to its queue (of Images the attempt counts, of ForgeRun the run is lost), no more
jobs are taken, and millrace ends with 3.

The first SIGINT, SIGTERM or SIGHUP stops polling and lets commands finish, for --drain;
a second one is passed on to them, as is SIGTERM when --drain is over. What does
not end within --kill-after is killed, with everything it started in its process
group. On Linux a command is killed as well when millrace itself is; what it has
started is not.

Stopped by a signal, or done with --max-jobs or --until-empty, it ends with 0, also
where commands have failed: that is the end of their jobs, not of the worker. It
ends with 130 when commands were cut short, and with 1 when the server refuses to
hand out jobs.`

func workCommand(p cli.Process) *cobra.Command {
	var f workFlags
	c := &cobra.Command{
		Use:   "work QUEUE... -- COMMAND [ARG...]",
		Short: "Run a command for each job of a queue",
		Long:  workHelp,
		Args: func(c *cobra.Command, args []string) error {
			if n := c.ArgsLenAtDash(); n < 1 || n == len(args) ||
				(n > 1 && f.contract == contractRelay) {
				return cli.UsageError(
					"work takes a queue, or several with --contract, then -- and a command: millrace work QUEUE -- COMMAND [ARG...]")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			queues, command := args[:c.ArgsLenAtDash()], args[c.ArgsLenAtDash():]
			// an unset variable, which would mean the jobs of all queues
			if slices.Contains(queues, "") {
				return cli.UsageError("the name of the queue is empty")
			}
			if f.concurrency < 1 || f.maxJobs < 0 || f.drain < 0 || f.killAfter < 0 {
				return cli.UsageError(
					"--concurrency is at least 1; --max-jobs, --drain and --kill-after are not negative")
			}
			if !slices.Contains(workContracts, f.contract) {
				return cli.UsageError("--contract is one of %s", strings.Join(workContracts, ", "))
			}
			if err := f.checkQueues(queues); err != nil {
				return err
			}
			return f.run(p, queues, command)
		},
	}
	f.remote.Register(c)
	c.Flags().Lookup("token").Usage = "worker.token of the server, or relay.token for Relay " +
		"(MILLRACE_TOKEN, which others cannot see)"
	c.Flags().StringVar(&f.contract, "contract", contractRelay,
		"whose queue it is: relay, taskflow, forgerun, images or fetchbox")
	c.Flags().IntVar(&f.concurrency, "concurrency", 1, "commands at a time")
	c.Flags().IntVar(&f.maxJobs, "max-jobs", 0, "stop after so many jobs; 0 is no limit")
	c.Flags().BoolVar(&f.untilEmpty, "until-empty", false,
		"stop when the queue has nothing to hand out and no command runs; what waits for its retry is left")
	c.Flags().BoolVar(&f.quiet, "quiet", false, "write about failures only")
	c.Flags().DurationVar(&f.drain, "drain", 25*time.Second,
		"time that running commands get after the first signal")
	c.Flags().DurationVar(&f.killAfter, "kill-after", 5*time.Second,
		"time that a terminated command gets before it is killed")
	return c
}

// checkQueues refuses a name that no queue can have: its jobs would be waited for in vain.
func (f *workFlags) checkQueues(queues []string) error {
	for _, queue := range queues {
		if f.contract == client.ContractTaskFlow && !taskflow.IsQueue(queue) {
			return cli.UsageError(
				"%q can be no queue of TaskFlow: they have 1 to 64 letters, digits "+
					"and underscores", queue)
		}
	}
	return nil
}

func (f *workFlags) run(p cli.Process, queues, command []string) error {
	if _, err := exec.LookPath(command[0]); err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	polling, stopPolling := context.WithCancel(context.Background())
	defer stopPolling()
	transport, err := f.remote.Transport(p)
	if err != nil {
		return err
	}
	// the beats and completions of all commands, and the poll
	transport.MaxIdleConnsPerHost = f.concurrency + 1
	g := &pollGate{polls: relayPolls{}, next: transport, stop: stopPolling, remaining: f.maxJobs,
		limited: f.maxJobs > 0, untilEmpty: f.untilEmpty}
	if f.contract != contractRelay {
		g.polls = claimPolls{}
	}
	c, err := f.remote.Client(p, g)
	if err != nil {
		return err
	}
	log := f.log(p.Stderr)
	r := &commandRunner{contract: f.contract, args: command, environ: p.Environ, stdout: p.Stdout,
		stderr: p.Stderr, killAfter: f.killAfter, log: log, gate: g}
	hard, end := context.WithCancelCause(context.Background())
	defer end(nil)
	r.killCtx = hard
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, cli.StopSignals()...) // before the first line that tells of the worker
	go f.handleSignals(signals, g, log, polling, stopPolling, end)

	log.Info("waiting for jobs", "contract", f.contract, "queues", strings.Join(queues, ","),
		"server", f.remote.Address(p), "concurrency", f.concurrency)
	n := &queueNameWatch{metrics: strings.TrimRight(f.remote.Address(p), "/") + "/metrics",
		http: &http.Client{Transport: transport}, contract: f.contract, queues: queues, log: log}
	n.check(polling)
	go n.run(polling, g)

	if err := f.worker(c, queues, r, log).Run(polling); err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	log.Info("stopped", "jobs", g.jobCount())
	if err := g.stopError(); err != nil {
		return err
	}
	if r.cut.Load() {
		return cli.WithCode(cli.ExitInterrupted,
			errors.New("stopped before all commands had finished; their jobs come back"))
	}
	return nil
}

// log writes what the worker has to say. That a job was started or completed is a detail in the log
// of a server, and what this command is watched for.
func (f *workFlags) log(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: aboutCommands}
	if f.quiet {
		options.Level = slog.LevelWarn
	}
	return slog.New(slog.NewTextHandler(w, options))
}

const contractRelay = "relay"

// workContracts are the contracts whose jobs commands can do.
var workContracts = []string{contractRelay, client.ContractTaskFlow, client.ContractForgeRun,
	client.ContractImages, client.ContractFetchBox}

// worker is the worker of the contract, with a drain that never ends: obey ends the commands.
func (f *workFlags) worker(c *client.Client, queues []string, r *commandRunner,
	log *slog.Logger) interface {
	Run(context.Context) error
} {
	wait, interval := time.Duration(0), time.Duration(0) // the usual ones
	if f.untilEmpty {
		wait, interval = -1, 100*time.Millisecond
	}
	if f.contract == contractRelay {
		return &client.Worker{Relay: c.Relay(), Queue: queues[0], Concurrency: f.concurrency,
			Handler: r.handle, Logger: log,
			MaxHeartbeatInterval: maxHeartbeatInterval, DrainTimeout: math.MaxInt64, PollWait: wait,
			PollInterval: interval}
	}
	handlers := map[string]client.JobHandler{}
	for _, queue := range queues {
		handlers[queue] = r.handleJob
	}
	return &client.JobWorker{API: c.WorkerAPI(), Contract: f.contract, Handlers: handlers,
		Concurrency: f.concurrency, Logger: log, AfterRun: func(client.ClaimedJob) {
			r.gate.runEnded()
		},
		MaxHeartbeatInterval: maxHeartbeatInterval, DrainTimeout: math.MaxInt64, PollWait: wait,
		PollInterval: interval}
}

// handleSignals turns signals into the end of polling, then into the end of the commands.
func (f *workFlags) handleSignals(signals <-chan os.Signal, g *pollGate, log *slog.Logger,
	polling context.Context, stopPolling context.CancelFunc, end context.CancelCauseFunc) {
	select {
	case <-signals:
	case <-polling.Done(): // --max-jobs or --until-empty: running commands are not hurried
		<-signals
	}
	if g.idle() {
		log.Info("stopping: no new jobs")
	} else {
		log.Info("stopping: no new jobs; running commands may finish", "drain", f.drain)
	}
	stopPolling()
	limit := time.NewTimer(f.drain)
	defer limit.Stop()
	var last os.Signal = syscall.SIGTERM
	select {
	case last = <-signals:
	case <-limit.C:
	}
	if !g.idle() {
		log.Warn("ending running commands", "signal", last)
	}
	end(signalCause{last})
}

// signalCause is why commands end: the signal to pass on to them.
type signalCause struct{ signal os.Signal }

func (s signalCause) Error() string { return "stopped by signal: " + s.signal.String() }

// commandRunner runs the command for a job.
type commandRunner struct {
	contract  string
	args      []string
	environ   []string
	stdout    io.Writer
	stderr    io.Writer
	killAfter time.Duration
	log       *slog.Logger
	gate      *pollGate
	killCtx   context.Context // commands are ended with it; the cause may name the signal
	cut       atomic.Bool     // a command was ended with killCtx
}

// handle is the worker's handler: nil completes the job.
func (r *commandRunner) handle(ctx context.Context, run *client.Run) error {
	r.gate.runStarted()
	defer r.gate.runEnded()
	ctx, cancel := r.withKill(ctx)
	defer cancel()
	reason := &tailBuffer{limit: maxReasonBytes}
	err := r.execute(ctx, relayTask(run.Job), r.stdout, io.MultiWriter(r.stderr, reason))
	if err != nil {
		return r.commandFailed(ctx, run, withReason(err, reason))
	}
	return nil
}

// commandFailed returns the error of an attempt at a Relay job. A command that cannot run here is
// no fault of the job: Relay has no release, and a timeout would count as an attempt, so the job is
// requeued as it was.
func (r *commandRunner) commandFailed(ctx context.Context, run *client.Run, err error) error {
	if errors.Is(err, errCannotRun) {
		r.stopWorker(err)
		err = errors.Join(err, run.Requeue(context.WithoutCancel(ctx),
			[]client.RelaySpec{run.Job.RelaySpec}, client.RelayUnique))
	}
	return r.logged(err)
}

// stopWorker stops the worker because of a command that would fail for every other job too.
func (r *commandRunner) stopWorker(err error) {
	r.gate.stopWith(cli.ExitUnable, fmt.Errorf("no more jobs are taken, and this one went back: %w",
		err))
}

// withKill returns a context that ends with killCtx as well.
func (r *commandRunner) withKill(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(r.killCtx, func() { cancel(context.Cause(r.killCtx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
