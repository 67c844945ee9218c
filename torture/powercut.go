package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// serverDir is where the server of a run has its data: its user may not read the directory of the
// run.
func serverDir(p *plan) string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("torture-postgres-%d-%d", os.Getpid(), p.Seed))
}

// newServer starts the PostgreSQL server of a run. It has few connections, so that they can be used
// up, and a small log, as it may be on a small disk.
func newServer(ctx context.Context, p *plan) (*pgServer, error) {
	dir := serverDir(p)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s, err := newPgServer(0, p.Dir, dir, "-c", "max_wal_size=128MB", "-c", "max_connections=80")
	if err != nil {
		return nil, err
	}
	return s, s.create(ctx)
}

// cutPower is a loss of power of the machine that has the jobs: of the node with its SQLite, or of
// the PostgreSQL server, without which the nodes go on for as long as the fault takes.
func (r *run) cutPower(ctx context.Context, f fault) error {
	if r.server != nil {
		if err := r.disk.losePower(r.server.freeze, r.server.kill); err != nil {
			return err
		}
		return r.bringBack(ctx, f)
	}
	n := r.nodes[f.Node]
	freeze := func() error { return freezeProcess(n.cmd.Process.Pid) }
	kill := func() error { n.kill(); return nil }
	if err := r.disk.losePower(freeze, kill); err != nil {
		return err
	}
	return r.restart(ctx, n)
}

// makeReadOnly has the file system of the node refuse all writes, as after an error of its device.
// The node is stopped at that moment, as an fsync that is under way then may succeed although the
// kernel drops what it was for. The node runs until the fault ends and is then killed, so that the
// file system can be repaired, and started again.
func (r *run) makeReadOnly(ctx context.Context, f fault) error {
	n := r.nodes[f.Node]
	err := errors.Join(freezeProcess(n.cmd.Process.Pid), r.disk.forbidWrites())
	n.signal(syscall.SIGCONT)
	if err != nil {
		return err
	}
	sleep(ctx, f.Length)
	select {
	case <-n.ended:
		r.violations.add("read-only disk", "node %d ended by itself: %s", f.Node, n.lastLog())
	default:
	}
	n.kill()
	if err := r.disk.repair(); err != nil {
		return err
	}
	return r.restart(ctx, n)
}

// The modes in which a PostgreSQL server is started again: with its log written to the tables, or
// without, so that it recovers as after a crash.
const (
	restartFast      = "fast"
	restartImmediate = "immediate"
)

var restarts = []string{restartFast, restartImmediate}

// restartServer ends the PostgreSQL server and starts it again.
func (r *run) restartServer(ctx context.Context, f fault) error {
	signal := os.Interrupt
	if f.Mode == restartImmediate {
		signal = syscall.SIGQUIT
	}
	if err := r.server.end(signal); err != nil {
		return err
	}
	return r.bringBack(ctx, f)
}

// bringBack starts the PostgreSQL server when the fault has ended. It returns when the nodes are
// ready again.
func (r *run) bringBack(ctx context.Context, f fault) error {
	sleep(ctx, f.Length)
	heal := context.WithoutCancel(ctx)
	if err := r.server.begin(heal); err != nil {
		return err
	}
	return r.awaitNodes(heal)
}
