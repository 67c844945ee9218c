package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// maxVariableBytes is what fits into one environment variable on Linux, with room for its name.
const maxVariableBytes = 128<<10 - 64

// task is a job as a command gets it.
type task struct {
	payload []byte
	state   []byte
	environ []string // beside the state
}

func relayTask(job client.RelayJob) task {
	return task{job.Payload, job.State, []string{"MILLRACE_QUEUE=" + job.Queue,
		"MILLRACE_JOB_ID=" + job.ID, "MILLRACE_RUN_ID=" + job.RunID}}
}

func claimedTask(job client.ClaimedJob) task {
	return task{job.Payload, job.State, []string{"MILLRACE_QUEUE=" + job.Queue,
		"MILLRACE_JOB_ID=" + job.ID, "MILLRACE_RUN_ID=" + job.RunID,
		"MILLRACE_CONTRACT=" + job.Contract, "MILLRACE_ATTEMPT=" + strconv.Itoa(job.Attempt)}}
}

// execute runs the command in a process group of its own, to its end or that of ctx.
func (r *commandRunner) execute(ctx context.Context, job task, stdout, stderr io.Writer) error {
	r.gate.countJob()
	if len(job.state) > maxVariableBytes {
		return fmt.Errorf("the job's state has %d bytes and does not fit into MILLRACE_STATE",
			len(job.state))
	}
	cmd := exec.CommandContext(ctx, r.args[0], r.args[1:]...)
	cmd.Stdin = bytes.NewReader(job.payload)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.Env = slices.Concat(r.environ, job.environ, []string{"MILLRACE_STATE=" + string(job.state)})
	cli.SetProcessGroup(cmd)
	killWithParent(cmd)
	cmd.Cancel = func() error { return cli.SignalGroup(cmd.Process, signalFor(context.Cause(ctx))) }
	cmd.WaitDelay = max(r.killAfter, time.Nanosecond) // 0 would be for ever
	err := cmd.Run()
	if ctx.Err() != nil {
		if r.killCtx.Err() != nil {
			r.cut.Store(true)
		}
		if cmd.Process != nil {
			_ = cli.SignalGroup(cmd.Process, os.Kill) // whatever it has left behind
		}
		return fmt.Errorf("command ended: %w", context.Cause(ctx))
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil // exited with 0, but left a child behind that holds on to standard input
	}
	if isCannotRun(err) {
		return fmt.Errorf("%w: %w", errCannotRun, err)
	}
	return err
}

// errCannotRun is the end of a command that cannot be run on this machine, for which no job is to
// blame.
var errCannotRun = errors.New("the command cannot be run")

// The exit codes by which a shell, and a script like one, says that a program cannot be run or is
// not there.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// isCannotRun reports whether a command ended because it, or a program that it needs, cannot be run
// on this machine.
func isCannotRun(err error) bool {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code := exit.ExitCode()
		return code == exitNotExecutable || code == exitNotFound
	}
	var lookup *exec.Error
	if errors.As(err, &lookup) {
		return true
	}
	var start *fs.PathError // an environment that is too large is the job's own
	return errors.As(err, &start) && start.Op == "fork/exec" && !errors.Is(err, syscall.E2BIG)
}

// signalFor gives the signal that ends a command for a reason.
func signalFor(cause error) os.Signal {
	var passed signalCause
	if errors.As(cause, &passed) {
		return passed.signal
	}
	return syscall.SIGTERM
}
