// Package work is a worker that runs a command for each job.
//
// The workers of the SDK do the claiming, the heartbeats and the outcomes. This package adds what a
// command needs:
//
//	work.go         flags, signals, and the worker of the contract
//	command.go      the process that runs for a job
//	claims.go       results and errors of a command, for contracts that have results
//	gate.go         when to stop claiming, seen from the polls that pass
//	log.go          the worker's log in the words of this command
//	queue_names.go  a warning about a queue that another contract has under the same name
//
// A worker stops in two steps. Polling ends first (pollGate.stop, or the first signal) while
// commands go on; the commands end with killCtx (the second signal, or the end of --drain).
package work

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
	"github.com/millrace/millrace/internal/child"
)

// maxHeartbeatInterval bounds how long a command goes on after its job was deleted or replaced.
const maxHeartbeatInterval = 30 * time.Second

// Target is a contract whose jobs a command can run, as its server declares it.
type Target struct {
	Name string
	// CheckQueue returns why no queue has a name; nil where all names may be used.
	CheckQueue func(name string) error
}

// flags are the flags of the command.
type flags struct {
	// all are the contracts whose jobs a command can run, Relay first.
	all      []Target
	contract string
	remote   cli.RemoteFlags
	// commands at a time
	concurrency int
	// after which the worker stops; 0 for no limit
	maxJobs int
	// stop when the queue is empty and no command runs
	untilEmpty bool
	// that running commands get after the first signal
	drain time.Duration
	// that a terminated command gets before it is killed
	killAfter time.Duration
	quiet     bool
}

// help is the long help text. Its exit codes and signals are promises to scripts.
const help = `Run a command for each job of a queue of Relay, or of one or more queues of the
contract that --contract names. The command gets the payload on its standard
input and, in its environment, MILLRACE_QUEUE, MILLRACE_JOB_ID, MILLRACE_RUN_ID
and MILLRACE_STATE (the job's state, empty when there is none). What it writes is
passed through; on its standard error millrace adds what it waits for, and each
job that it takes and how that ended (--quiet leaves it at failures).

While it runs, heartbeats extend the job's lease. When it exits with 0 the job is
completed. A command whose run is lost, because the job was deleted, replaced or
timed out, is terminated with the next heartbeat: they are sent at a third of the
timeout or lease.

In Relay a command that fails leaves its job to the timeout: the reason is logged
and sent for operators, and the heartbeats end, so that the job is claimed again
after its timeout. Other contracts get the outcome. On exit
0 the standard output is the result: as it is if it is JSON, else as a string. Of
more than 64 KiB the first 64 KiB are, as a string, and a warning is logged. The
exit codes 64 to 78 (sysexits) fail the job for good, all others fail the attempt,
with the last line of the standard error as the reason. A result that the server
refuses fails the job for good, and with Images the attempt. A command that was
ended by a signal to millrace releases its job. The environment then also has
MILLRACE_CONTRACT and MILLRACE_ATTEMPT, from 1 on.

A command that cannot be started, or exits with 126 or 127, as a shell does when a
program is missing or not executable, is never the job's fault: the job goes back
to its queue (with Images the attempt counts, with ForgeRun the run is lost), no
more jobs are claimed, and millrace ends with 3.

The first SIGINT, SIGTERM or SIGHUP stops polling and lets commands finish, for --drain;
a second one is passed on to them, as is SIGTERM when --drain has passed. What does
not end within --kill-after is killed, with everything it started in its process
group. On Linux a command is killed as well when millrace itself is; what it has
started is not.

Stopped by a signal, or done with --max-jobs or --until-empty, it ends with 0, also
where commands have failed: that is an outcome of their jobs, not of the worker. It
ends with 130 when commands were cut short, and with 1 when the server refuses to
give jobs.`

// Command is `millrace work`. Besides Relay, which gives out its jobs itself, it serves the
// contracts of the worker API.
func Command(p cli.Process, contracts []Target) *cobra.Command {
	f := flags{all: append([]Target{{Name: contractRelay}}, contracts...)}
	c := &cobra.Command{
		Use:   "work QUEUE... -- COMMAND [ARG...]",
		Short: "Run a command for each job of a queue",
		Long:  help,
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
			if err := f.validate(queues); err != nil {
				return err
			}
			return f.run(p, queues, command)
		},
	}
	f.register(c)
	return c
}

// register adds the flags to the command.
func (f *flags) register(c *cobra.Command) {
	f.remote.Register(c)
	c.Flags().Lookup("token").Usage = "worker.token of the server, or relay.token for Relay " +
		"(MILLRACE_TOKEN, which others cannot see)"
	c.Flags().StringVar(&f.contract, "contract", contractRelay,
		"whose queue it is: "+strings.Join(f.names(), ", "))
	c.Flags().IntVar(&f.concurrency, "concurrency", 1, "commands at a time")
	c.Flags().IntVar(&f.maxJobs, "max-jobs", 0, "stop after so many jobs; 0 is no limit")
	c.Flags().BoolVar(&f.untilEmpty, "until-empty", false,
		"stop when the queue has no ready jobs and no command runs; jobs that wait for a retry are left")
	c.Flags().BoolVar(&f.quiet, "quiet", false, "write about failures only")
	c.Flags().DurationVar(&f.drain, "drain", 25*time.Second,
		"time that running commands get after the first signal")
	c.Flags().DurationVar(&f.killAfter, "kill-after", 5*time.Second,
		"time that a terminated command gets before it is killed")
}

// names returns the names of all contracts.
func (f *flags) names() []string {
	names := make([]string, len(f.all))
	for i, c := range f.all {
		names[i] = c.Name
	}
	return names
}

// validate refuses flags out of range, and names that no queue can have: the worker would wait for
// their jobs in vain. An empty name comes from a variable that is not set; the worker API would
// take it for all queues.
func (f *flags) validate(queues []string) error {
	at := slices.Index(f.names(), f.contract)
	switch {
	case slices.Contains(queues, ""):
		return cli.UsageError("the name of the queue is empty")
	case f.concurrency < 1 || f.maxJobs < 0 || f.drain < 0 || f.killAfter < 0:
		return cli.UsageError(
			"--concurrency is at least 1; --max-jobs, --drain and --kill-after are not negative")
	case at < 0:
		return cli.UsageError("--contract is one of %s", strings.Join(f.names(), ", "))
	case f.all[at].CheckQueue == nil:
		return nil
	}
	for _, queue := range queues {
		if err := f.all[at].CheckQueue(queue); err != nil {
			return cli.WithCode(cli.ExitUsage, err)
		}
	}
	return nil
}

// run works on the queues until a signal, a limit of the flags or an error ends it.
func (f *flags) run(p cli.Process, queues, command []string) error {
	if _, err := exec.LookPath(command[0]); err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	polling, stopPolling := context.WithCancel(context.Background())
	defer stopPolling()
	transport, err := f.remote.Transport(p)
	if err != nil {
		return err
	}
	// one connection for the requests of each command, and one for the poll
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
	killCtx, kill := context.WithCancelCause(context.Background())
	defer kill(nil)
	r.killCtx = killCtx
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, cli.StopSignals()...) // before the log says that the worker waits
	go f.handleSignals(signals, g, log, polling, stopPolling, kill)

	n := &queueNameWatch{metrics: strings.TrimRight(f.remote.Address(p), "/") + "/metrics",
		http: &http.Client{Transport: transport}, contract: f.contract, all: f.names(),
		queues: queues, log: log}
	n.check(polling)
	go n.run(polling, g)

	err = f.worker(c, queues, r, log).Run(polling)
	if err != nil && !errors.Is(err, client.ErrDrainTimeout) { // which r.cut and the log report
		return cli.WithCode(cli.ExitUsage, err)
	}
	log.Info("stopped", "jobs", g.jobCount(), "failed", r.failed.Load())
	if err := g.stopError(); err != nil {
		return err
	}
	if r.cut.Load() {
		return cli.WithCode(cli.ExitInterrupted,
			errors.New("stopped before all commands had finished; their jobs are claimed again"))
	}
	return nil
}

// log makes the log of the worker. It includes the worker's debug messages, which say that a job
// was started or completed.
func (f *flags) log(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: replaceAttr}
	if f.quiet {
		options.Level = slog.LevelWarn
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// contractRelay is the name of Relay, whose jobs are not claimed over the worker API.
const contractRelay = "relay"

// worker returns the SDK's worker of the contract. Its drain has no limit, because handleSignals
// ends it. With --until-empty it asks often and does not wait in the server.
func (f *flags) worker(c *client.Client, queues []string, r *commandRunner,
	log *slog.Logger) interface {
	Run(context.Context) error
} {
	wait, interval := time.Duration(0), time.Duration(0) // the defaults
	if f.untilEmpty {
		wait, interval = -1, 100*time.Millisecond
	}
	if f.contract == contractRelay {
		return &client.Worker{Relay: c.Relay(), Queue: queues[0], Concurrency: f.concurrency,
			Handler: r.handle, Logger: log, Kill: r.killCtx,
			AfterRun:             func(_ client.RelayJob, reason error) { r.runFinished(reason) },
			MaxHeartbeatInterval: maxHeartbeatInterval, DrainTimeout: math.MaxInt64, PollWait: wait,
			PollInterval: interval}
	}
	handlers := map[string]client.JobHandler{}
	for _, queue := range queues {
		handlers[queue] = r.handleJob
	}
	return &client.JobWorker{API: c.WorkerAPI(), Contract: f.contract, Handlers: handlers,
		Concurrency: f.concurrency, Logger: log, Kill: r.killCtx,
		AfterRun:             func(_ client.ClaimedJob, reason error) { r.runFinished(reason) },
		MaxHeartbeatInterval: maxHeartbeatInterval, DrainTimeout: math.MaxInt64, PollWait: wait,
		PollInterval: interval}
}

// handleSignals ends polling at the first signal. It ends the commands at the second, or --drain
// after the first. Where polling has ended by itself, commands get all the time they need until a
// signal comes.
func (f *flags) handleSignals(signals <-chan os.Signal, g *pollGate, log *slog.Logger,
	polling context.Context, stopPolling context.CancelFunc, kill context.CancelCauseFunc) {
	select {
	case <-signals:
	case <-polling.Done():
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
	kill(signalCause{last})
}

// signalCause is the cause of killCtx: the signal to send to the commands.
type signalCause struct{ signal os.Signal }

// Error returns the text that the log has for commands that were ended.
func (s signalCause) Error() string { return "stopped by signal: " + s.signal.String() }

// commandRunner runs the command for jobs. Its handlers are called concurrently.
type commandRunner struct {
	contract string
	// the command and its arguments
	args []string
	// of the command, besides the variables of its job
	environ   []string
	stdout    io.Writer
	stderr    io.Writer
	killAfter time.Duration
	log       *slog.Logger
	gate      *pollGate
	// ends the commands; its cause may be a signalCause
	killCtx context.Context
	// killCtx has ended a command
	cut atomic.Bool
	// jobs that were neither completed nor given back
	failed atomic.Int64
}

// runFinished counts a run that has ended, and is failed if there is a reason why its job was not
// completed other than a stop of the worker.
func (r *commandRunner) runFinished(reason error) {
	var lost *client.Error // uncertain where its outcome was probably accepted
	isUncertain := errors.Is(reason, client.ErrRunLost) && errors.As(reason, &lost) &&
		lost.Uncertain
	if reason != nil && !isUncertain && !errors.Is(reason, client.ErrRelease) &&
		!errors.Is(reason, errCannotRun) && !errors.Is(reason, client.ErrDrainTimeout) {
		r.failed.Add(1)
	}
	r.gate.runFinished()
}

// handle is the handler of Relay's worker: it returns nil to complete the job.
func (r *commandRunner) handle(ctx context.Context, run *client.Run) error {
	r.gate.runStarted()
	reason := &child.Tail{Max: maxReasonBytes}
	err := r.execute(ctx, relayTask(run.Job), r.stdout, io.MultiWriter(r.stderr, reason))
	if err != nil {
		return r.commandFailed(ctx, run, withReason(err, reason))
	}
	return nil
}

// commandFailed returns the error of an attempt at a Relay job. When the command cannot be run on
// this machine, it requeues the job unchanged: Relay has no release, and a timeout would count as
// an attempt of a job that is not at fault.
func (r *commandRunner) commandFailed(ctx context.Context, run *client.Run, err error) error {
	if errors.Is(err, errCannotRun) {
		r.stopWorker(err)
		err = errors.Join(err, run.Requeue(context.WithoutCancel(ctx),
			[]client.RelaySpec{run.Job.RelaySpec}, client.RelayUnique))
	}
	return r.logged(err)
}

// stopWorker stops the worker when the command would fail for every other job as well.
func (r *commandRunner) stopWorker(err error) {
	r.gate.stopWith(cli.ExitUnable,
		fmt.Errorf("no more jobs are claimed, and this one went back to its queue: %w", err))
}
