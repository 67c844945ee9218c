package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/millrace/millrace/client"
)

// longestVariable is what fits into one environment variable on Linux, with room for its name.
const longestVariable = 128<<10 - 64

// execute runs the command in a process group of its own, to its end or that of ctx.
func (r *commandRunner) execute(ctx context.Context, job client.RelayJob) error {
	if len(job.State) > longestVariable {
		return fmt.Errorf("the job's state has %d bytes and does not fit into MILLRACE_STATE", len(job.State))
	}
	cmd := exec.CommandContext(ctx, r.args[0], r.args[1:]...)
	cmd.Stdin = bytes.NewReader(job.Payload)
	cmd.Stdout, cmd.Stderr = r.stdout, r.stderr
	cmd.Env = append(append([]string{}, r.environ...), "MILLRACE_QUEUE="+job.Queue, "MILLRACE_JOB_ID="+job.ID,
		"MILLRACE_RUN_ID="+job.RunID, "MILLRACE_STATE="+string(job.State))
	ownGroup(cmd)
	cmd.Cancel = func() error { return signalGroup(cmd.Process, signalFor(context.Cause(ctx))) }
	cmd.WaitDelay = r.killAfter
	err := cmd.Run()
	if ctx.Err() != nil {
		if cmd.Process != nil {
			_ = signalGroup(cmd.Process, os.Kill) // whatever it has left behind
		}
		return fmt.Errorf("command ended: %w", context.Cause(ctx))
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil // exited with 0, but left a child behind that holds on to standard input
	}
	return err
}

// signalFor gives the signal that ends a command for a reason.
func signalFor(cause error) os.Signal {
	var passed signalCause
	if errors.As(cause, &passed) {
		return passed.signal
	}
	return syscall.SIGTERM
}
