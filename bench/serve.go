package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// millraceBuild makes the binary of this tree once for all cases of a process.
type millraceBuild struct {
	mu  sync.Mutex
	dir string // "" until the binary is there
}

var millrace millraceBuild

// build returns the path of the binary.
func (b *millraceBuild) build(ctx context.Context) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir != "" {
		return filepath.Join(b.dir, "millrace"), nil
	}
	dir, err := os.MkdirTemp("", "millrace-bench-")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "millrace")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/millrace")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		err = fmt.Errorf("building millrace: %w: %s", err, singleLine(string(out)))
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	b.dir = dir
	return binary, nil
}

// remove removes the binary.
func (b *millraceBuild) remove() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	dir := b.dir
	b.dir = ""
	return os.RemoveAll(dir)
}

// millraceServer is a server process of the binary that is listening.
type millraceServer struct {
	*Child
	addr  string
	ready time.Duration // how long the start took
}

// serveMillrace starts a server with its data in a folder, on a free port, and waits until it
// listens. The settings are the defaults beside the flags.
func serveMillrace(ctx context.Context, binary, data string, log io.Writer,
	flags ...string) (*millraceServer, error) {
	args := []string{"serve", "--config", os.DevNull, "--set", "listen=127.0.0.1:0", "--set",
		"data_dir=" + data}
	cmd := exec.CommandContext(ctx, binary, append(args, flags...)...)
	cmd.Stderr = log
	cmd.Env = slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "MILLRACE_")
	})
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := time.Now()
	child, err := startChild(cmd)
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	ready := time.Since(started)
	_, addr, found := strings.Cut(strings.TrimSpace(line), "http://")
	if err != nil || !found {
		child.Kill()
		return nil, fmt.Errorf("the server said %q: %w", line, err)
	}
	return &millraceServer{Child: child, addr: addr, ready: ready}, nil
}
