package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"time"
)

// peerStart is the longest time that a peer's server may take until it is ready.
const peerStart = 60 * time.Second

// startPeer runs a server on a free port of 127.0.0.1 and waits until ready succeeds. A port that
// somebody else takes between the search and the start makes it try again. The process ends with
// the bench.
func startPeer(ctx context.Context, env *Env, name string, command func(port int) *exec.Cmd,
	ready func(ctx context.Context, addr string) error) (*Child, string, error) {
	for try := 1; ; try++ {
		port, err := freePort()
		if err != nil {
			return nil, "", err
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		child, err := startChild(command(port))
		if err != nil {
			return nil, "", err
		}
		env.addChild(child)
		err = awaitPeer(ctx, child, func(ctx context.Context) error { return ready(ctx, addr) })
		if err != nil {
			child.Kill()
			if try == 3 || ctx.Err() != nil {
				return nil, "", fmt.Errorf("start %s: %w", name, err)
			}
			continue
		}
		return child, addr, nil
	}
}

// awaitPeer asks a server until it is ready or its process has ended.
func awaitPeer(ctx context.Context, child *Child, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, peerStart)
	defer cancel()
	for err := ready(ctx); err != nil; err = ready(ctx) {
		select {
		case <-child.Done():
			return fmt.Errorf("the process ended: %w", err)
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// findProgram looks a program up in PATH. Without it the case is skipped, with how to get it.
func findProgram(name, howToGet string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", skipf("no %s in PATH: %s", name, howToGet)
	}
	return path, nil
}
