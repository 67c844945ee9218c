package work

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
	"github.com/millrace/millrace/internal/child"
)

// maxVariableBytes is the longest value of an environment variable on Linux, with room for its
// name.
const maxVariableBytes = 128<<10 - 64

// task is a job as the command gets it.
type task struct {
	// its standard input
	payload []byte
	// the variable MILLRACE_STATE; empty for none
	state []byte
	// its other variables, as NAME=VALUE
	environ []string
}

// relayTask makes the task of a job of Relay.
func relayTask(job client.RelayJob) task {
	return task{job.Payload, job.State, []string{"MILLRACE_QUEUE=" + job.Queue,
		"MILLRACE_JOB_ID=" + job.ID, "MILLRACE_RUN_ID=" + job.RunID}}
}

// claimedTask makes the task of a job that was claimed over the worker API.
func claimedTask(job client.ClaimedJob) task {
	return task{job.Payload, job.State, []string{"MILLRACE_QUEUE=" + job.Queue,
		"MILLRACE_JOB_ID=" + job.ID, "MILLRACE_RUN_ID=" + job.RunID,
		"MILLRACE_CONTRACT=" + job.Contract, "MILLRACE_ATTEMPT=" + strconv.Itoa(job.Attempt)}}
}

// execute runs the command for a job, in a process group of its own, until it ends or ctx does.
//
// When ctx ends, the group gets the signal that its cause names, and is killed killAfter later. The
// error is then the cause. A command that cannot be run on this machine returns errCannotRun; one
// that fails returns an *exec.ExitError.
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
	child.SetProcessGroup(cmd)
	child.KillWithParent(cmd)
	cmd.Cancel = func() error {
		return child.SignalGroup(cmd.Process, signalFor(context.Cause(ctx)))
	}
	cmd.WaitDelay = max(r.killAfter, time.Nanosecond) // 0 would mean no limit
	err := cmd.Run()
	if ctx.Err() != nil {
		if r.killCtx.Err() != nil {
			r.cut.Store(true)
		}
		if cmd.Process != nil {
			_ = child.SignalGroup(cmd.Process, os.Kill) // processes that the command has started
		}
		return fmt.Errorf("command ended: %w", context.Cause(ctx))
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil // it exited with 0; a process that it started keeps an output open
	}
	if isCannotRun(err) {
		return fmt.Errorf("%w: %w", errCannotRun, err)
	}
	return err
}

// errCannotRun is the error of a command that cannot be run on this machine. It is never the job's
// fault.
var errCannotRun = errors.New("the command cannot be run")

// isCannotRun reports whether a command failed because it, or a program that it needs, cannot be
// run on this machine. An environment that is too large is the job's own fault.
func isCannotRun(err error) bool {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code := exit.ExitCode()
		return code == child.ExitNotExecutable || code == child.ExitNotFound
	}
	var lookup *exec.Error
	if errors.As(err, &lookup) {
		return true
	}
	var start *fs.PathError
	return errors.As(err, &start) && start.Op == "fork/exec" && !errors.Is(err, syscall.E2BIG)
}

// signalFor returns the signal that ends a command for a cause: that of a signalCause, else
// SIGTERM.
func signalFor(cause error) os.Signal {
	var given signalCause
	if errors.As(cause, &given) {
		return given.signal
	}
	return syscall.SIGTERM
}
