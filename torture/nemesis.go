package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// backendsPause is between two rounds of ending the sessions of a node.
const backendsPause = 100 * time.Millisecond

// disturb carries out the schedule. Each fault is healed before the next begins. It returns when
// the schedule has ended, or with the first fault that could not be carried out or healed.
func (r *run) disturb(ctx context.Context) error {
	start := time.Now()
	for _, f := range r.faults {
		// Faults that took long may have passed the time of this one, and the end of the load.
		if !sleep(ctx, f.At-time.Since(start)) || ctx.Err() != nil {
			return nil
		}
		r.log("%s", f)
		if err := r.carryOut(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", f.Kind, err)
		}
		r.done++
	}
	return nil
}

// carryOut does one fault and heals it.
func (r *run) carryOut(ctx context.Context, f fault) error {
	n := r.nodes[f.Node]
	switch f.Kind {
	case faultKill:
		n.kill()
		sleep(ctx, f.Length)
		return r.restart(ctx, n)
	case faultTerminate:
		if err := n.terminate(); err != nil {
			return err
		}
		sleep(ctx, f.Length)
		return r.restart(ctx, n)
	case faultFreeze:
		n.signal(syscall.SIGSTOP)
		sleep(ctx, f.Length)
		n.signal(syscall.SIGCONT)
		return nil
	case faultDiskFull:
		return r.disk.whileFull(func() { sleep(ctx, f.Length) })
	case faultReadOnlyDisk:
		return r.makeReadOnly(ctx, f)
	case faultPowerCut:
		return r.cutPower(ctx, f)
	case faultSyncError, faultWriteError, faultSlowDisk:
		return r.disturbCalls(ctx, f)
	case faultS3, faultStreams, faultStreamsWiped, faultMessages:
		return r.disturbServices(ctx, f)
	}
	return r.disturbDatabase(ctx, f)
}

// disturbDatabase does the faults between nodes and their PostgreSQL.
func (r *run) disturbDatabase(ctx context.Context, f fault) error {
	switch f.Kind {
	case faultBackends:
		end := time.Now().Add(f.Length)
		for time.Now().Before(end) {
			if err := r.database.endSessions(); err != nil {
				return err
			}
			sleep(ctx, backendsPause)
		}
		return nil
	case faultRefuse:
		if err := r.database.refuse(true); err != nil {
			return err
		}
		sleep(ctx, f.Length)
		return r.database.refuse(false)
	case faultFailover, faultFailoverAsync:
		return r.failOver(ctx, f)
	case faultPatroni, faultPatroniAsync:
		return r.failOverPatroni(ctx, f)
	case faultReadOnly:
		if err := r.database.forbidWrites(true); err != nil {
			return err
		}
		sleep(ctx, f.Length)
		return r.database.forbidWrites(false)
	case faultExhaust:
		return r.database.exhaust(ctx, f.Length)
	case faultPooler:
		return r.disturbPooler(ctx, f)
	case faultRestart:
		return r.restartServer(ctx, f)
	case faultReset:
		r.proxies[f.Node].reset()
		return nil
	case faultStall:
		r.proxies[f.Node].stall(true)
		sleep(ctx, f.Length)
		r.proxies[f.Node].stall(false)
		return nil
	}
	return fmt.Errorf("there is no fault %q", f.Kind)
}

// awaitNodes waits until all nodes are ready.
func (r *run) awaitNodes(ctx context.Context) error {
	for _, n := range r.nodes {
		if err := n.becomeReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// restart starts a node that has ended. It is ready before the next fault.
func (r *run) restart(ctx context.Context, n *node) error {
	if err := n.start(); err != nil {
		return err
	}
	err := n.awaitReady(context.WithoutCancel(ctx))
	if errors.Is(err, errSchemaRefused) {
		r.log("        node %d: the older server refuses the schema, the other one takes its place",
			n.number)
		n.older = ""
		return r.restart(ctx, n)
	}
	return err
}
