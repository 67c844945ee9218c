package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// injections are what strace does to system calls of a node, by fault. The calls that fail are not
// carried out. The database alone writes with pwrite64.
var injections = map[string]string{
	faultSyncError:  "fsync,fdatasync:error=EIO",
	faultWriteError: "pwrite64:error=EIO",
	faultSlowDisk:   "fsync,fdatasync:delay_enter=300000", // microseconds
}

// disturbCalls has system calls of a node fail or wait, and returns when the node is ready again.
func (r *run) disturbCalls(ctx context.Context, f fault) error {
	n := r.nodes[f.Node]
	calls := injections[f.Kind]
	cmd := exec.Command("strace", "-f", "-qq", "-o", "/dev/null", "-e",
		"inject="+calls, "-p", strconv.Itoa(n.cmd.Process.Pid))
	ended, err := startProcess(cmd)
	if err != nil {
		return err
	}
	sleep(ctx, f.Length)
	select {
	case <-ended:
		return fmt.Errorf("%s ended: %s", cmd, cmd.ProcessState)
	default:
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	<-ended
	return n.becomeReady(context.WithoutCancel(ctx))
}
