package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// readyTimeout is how long a node may take until it is ready again.
const readyTimeout = 2 * time.Minute

// node is one server process, which is killed and started again under the same address.
type node struct {
	number int
	url    string
	binary string
	older  string // "" for none
	starts startCounts
	args   []string
	log    *os.File

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
	// recoveries are the times from the start of the process to its first ready answer.
	recoveries []time.Duration
}

// newNode prepares a node with a data directory of its own, and the settings that all nodes share.
func newNode(number int, p *plan, store string, shared []string) (*node, error) {
	dir := filepath.Join(p.Dir, "node"+strconv.Itoa(number))
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(p.Dir, fmt.Sprintf("node%d.log", number)))
	if err != nil {
		return nil, err
	}
	n := &node{number: number, url: "http://" + address, binary: p.Binary, older: p.Older,
		log: log}
	n.args = []string{"serve", "--config", os.DevNull}
	own := []string{"data_dir=" + dir, "listen=" + address, "contracts=" + p.contracts(),
		"log.level=warn", "store=" + store,
		"secrets.pepper_file=" + filepath.Join(p.Dir, "pepper")}
	for _, setting := range slices.Concat(own, shared, loadSettings) {
		n.args = append(n.args, "--set", setting)
	}
	return n, nil
}

// freeAddress returns an address that nobody listens on. Its port is below those that the system
// gives to connections (32768 and more), one of which would take it while a node is down.
func freeAddress() (string, error) {
	const firstPort, ports, maxTries = 10_000, 20_000, 100
	for try := 1; ; try++ {
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(ports))
		l, err := net.Listen("tcp", address)
		switch {
		case err != nil && try == maxTries:
			return "", err
		case err != nil:
			continue
		}
		return address, l.Close()
	}
}

// portOf returns the port of an address.
func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// start starts the process, with more in its environment. It does not wait until it is ready.
func (n *node) start(environment ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	cmd := exec.Command(n.nextBinary(), n.args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = n.log, n.log, append(cmd.Environ(), environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ended, err := startProcess(cmd)
	if err != nil {
		return err
	}
	n.cmd, n.ended = cmd, ended
	return nil
}

// startProcess starts a command, and returns a channel that is closed when it has ended.
func startProcess(cmd *exec.Cmd) (ended chan struct{}, err error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	return ended, nil
}

// awaitReady waits until the node answers that it is ready, and notes how long that took since it
// was started.
func (n *node) awaitReady(ctx context.Context) error {
	began := time.Now()
	if err := n.becomeReady(ctx); err != nil {
		return err
	}
	n.recoveries = append(n.recoveries, time.Since(began))
	return nil
}

// errDamaged says that a node has refused its database.
var errDamaged = errors.New("the database file is damaged")

// becomeReady waits until the node answers that it is ready.
func (n *node) becomeReady(ctx context.Context) error {
	began := time.Now()
	client := &http.Client{Timeout: time.Second}
	for time.Since(began) < readyTimeout {
		resp, err := client.Get(n.url + "/health/ready")
		if n.wasRefused() {
			return errSchemaRefused
		}
		if n.refusedDamage() {
			return fmt.Errorf("node %d: %w", n.number, errDamaged)
		}
		if err != nil {
			if !sleep(ctx, 10*time.Millisecond) {
				return ctx.Err()
			}
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		if !sleep(ctx, 10*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("node %d was not ready within %s: %s", n.number, readyTimeout, n.lastLog())
}

// refusedDamage reports whether the node has ended since its database is damaged.
func (n *node) refusedDamage() bool {
	return n.cannotUseDatabase() && strings.Contains(n.lastLog(), errDamaged.Error())
}

// lastLog returns the end of what the node has written.
func (n *node) lastLog() string { return endOf(n.log) }

// endOf returns the end of a log.
func endOf(log *os.File) string {
	text, err := os.ReadFile(log.Name())
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text[max(0, len(text)-2000):]))
}

// signal sends a signal to the process, if there is one.
func (n *node) signal(s syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		_ = n.cmd.Process.Signal(s)
	}
}

// kill ends the process as a crash would, and waits until it is gone.
func (n *node) kill() {
	n.signal(syscall.SIGKILL)
	if n.ended != nil {
		<-n.ended
	}
}

// terminate asks the process to end, and kills it where it does not.
func (n *node) terminate() error {
	n.signal(syscall.SIGTERM)
	select {
	case <-n.ended:
		if code := n.cmd.ProcessState.ExitCode(); code != 0 {
			return fmt.Errorf("node %d ended with code %d after SIGTERM: %s", n.number, code,
				n.lastLog())
		}
		return nil
	case <-time.After(readyTimeout):
		n.kill()
		return fmt.Errorf("node %d did not end after SIGTERM", n.number)
	}
}
