// Command bounds runs the test binary of one package within bounds of time and memory. CI calls it
// through go test:
//
//	go test -timeout 30m -exec "bounds -report FILE" ./...
//
// A test that goes on for five minutes ends its package with the test's name and the stacks of all
// goroutines, so a loop that wedges costs no more than that. A package ends after two minutes,
// whatever -timeout says; those whose tests take longer together stand in the table below. A
// package that takes more than 2 GiB fails.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// defaultTime and defaultMemory are the limits of a package that is not in slow, and testTime that
// of each test of all packages. grace is how long a test binary may take to print its stacks after
// its limit before it is killed.
const (
	defaultTime   = 2 * time.Minute
	testTime      = 5 * time.Minute
	defaultMemory = 2048 // MiB
	grace         = 20 * time.Second
)

// slow lists the packages that may take longer than defaultTime, and why.
// Directories count from the root of the module.
var slow = map[string]struct {
	limit  time.Duration
	reason string
}{
	"client": {10 * time.Minute,
		"workers of every contract against a real server that stops"},
	"cmd/millrace": {45 * time.Minute,
		"runs the real binary: kills it in the middle of work, runs the examples of the docs, drives a browser; most tests wait for processes"},
	"internal/engine": {30 * time.Minute,
		"minutes of processor time with the race detector: crowds and random operations on every database"},
	"internal/admin": {30 * time.Minute,
		"every route with every kind of credential, and two nodes, on every database"},
	"internal/account": {5 * time.Minute,
		"several nodes that change keys beside each other, on every database"},
	"internal/bulk": {5 * time.Minute,
		"operations over thousands of jobs, on every database"},
	"internal/contract/fetchbox": {20 * time.Minute,
		"downloads by the thousand, on every database and S3"},
	"internal/contract/forgerun": {20 * time.Minute,
		"crowds of jobs and receivers, on every database"},
	"internal/contract/images": {10 * time.Minute,
		"decodes pictures in child processes, on every database, S3 and SQS"},
	"internal/contract/images/picture": {5 * time.Minute,
		"decodes and encodes pictures of many sizes and kinds, with the race detector"},
	"internal/contract/relay": {5 * time.Minute,
		"crowds of workers and producers, on every database"},
	"internal/contract/taskflow": {20 * time.Minute,
		"graphs of thousands of jobs, on every database"},
	"internal/docsite": {5 * time.Minute,
		"follows every link of all documents, and looks at pages in a browser"},
	"internal/inbox": {5 * time.Minute,
		"transactions of producers over several nodes"},
	"internal/schedule": {10 * time.Minute,
		"three nodes that are dropped in the middle of runs, on every database"},
	"internal/store/postgres": {20 * time.Minute,
		"the conformance suite twice, once through a pooler; standbys and crashes of servers"},
	"internal/store/sqlite": {20 * time.Minute,
		"the conformance suite, and faults of the disk at every call of the driver"},
	"internal/webhook": {10 * time.Minute,
		"receivers that stall, refuse and die, for clients and operators, on every database"},
	"internal/stream": {10 * time.Minute,
		"elections and crashes in clusters of three servers, one after the other"},
	"torture": {10 * time.Minute,
		"builds a server with a seeded bug, and runs servers under load and kills"},
}

// bounds are what a package may use, as the flags give it. A time of 0 is the package's own limit;
// an empty report writes none.
type bounds struct {
	time   time.Duration
	test   time.Duration // of one test
	memory int64         // MiB, of its largest process
	report string
}

func main() {
	var b bounds
	flag.DurationVar(&b.time, "time", 0, "limit of time instead of the package's own")
	flag.DurationVar(&b.test, "test", testTime, "limit of time of each test")
	flag.Int64Var(&b.memory, "memory", defaultMemory, "limit of memory in `MiB`")
	flag.StringVar(&b.report, "report", "", "file that a line about each package is appended to")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: bounds [flags] TEST-BINARY [ARGUMENT ...]")
		os.Exit(2)
	}
	os.Exit(b.run(flag.Args()))
}

// run runs a test binary and returns the exit code for go test: 0 within the bounds, that of the
// binary where its tests failed, 1 where it exceeded a bound, 2 where it could not be started.
// Memory is compared when the binary has ended; nothing limits it while it runs.
func (b bounds) run(command []string) int {
	name := packageDir()
	if b.time == 0 {
		b.time = defaultTime
		if s, ok := slow[name]; ok {
			b.time = s.limit
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.time+grace)
	defer cancel()
	tests := newTests(os.Stdout, command)
	state, err := b.follow(ctx, tests, command)
	if state == nil {
		fmt.Fprintln(os.Stderr, "bounds:", err)
		return 2
	}
	used := memory(state)
	b.note(name, state, used, tests.slow())
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		fmt.Fprintf(os.Stderr, "bounds: %s did not end %v after its limit of %v and was killed\n",
			name, grace, b.time)
		return 1
	case used > b.memory:
		fmt.Fprintf(os.Stderr, "bounds: the tests of %s used %d MiB of memory, more than %d MiB\n",
			name, used, b.memory)
		return 1
	case err != nil:
		return max(1, state.ExitCode())
	}
	return 0
}

// follow runs a test binary, reads what its tests say, and asks it for its stacks, which ends it,
// when one of them exceeds its limit. The state is nil where the binary could not be started.
func (b bounds) follow(ctx context.Context, tests *tests, command []string) (*os.ProcessState,
	error) {
	cmd := exec.CommandContext(ctx, command[0], b.limited(command[1:])...)
	cmd.Stdin, cmd.Stderr, cmd.WaitDelay = os.Stdin, os.Stderr, grace
	read, write := io.Pipe()
	cmd.Stdout = write
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	forward(cmd.Process)
	ended, silent := make(chan struct{}), make(chan struct{})
	go func() {
		tests.read(read)
		close(silent)
	}()
	go b.watch(tests, cmd.Process, ended)
	err := cmd.Wait()
	close(ended)
	write.Close()
	<-silent
	return cmd.ProcessState, err
}

// watch sends SIGQUIT to a test binary one of whose tests exceeds its limit.
func (b bounds) watch(tests *tests, p *os.Process, ended <-chan struct{}) {
	tick := time.NewTicker(min(time.Second, b.test/4))
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case now := <-tick.C:
			if s := tests.longestNow(now); s.time > b.test {
				fmt.Fprintf(os.Stderr, "bounds: %s went on for more than %v\n", s.test, b.test)
				_ = p.Signal(syscall.SIGQUIT)
				return
			}
		}
	}
}

// limited returns the arguments of the test binary with our limits in the place of those that go
// test has passed, and with output that says which tests run.
func (b bounds) limited(args []string) []string {
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool {
		return strings.HasPrefix(a, "-test.timeout=") || strings.HasPrefix(a, "-test.v=")
	})
	return append([]string{"-test.timeout=" + b.time.String(), "-test.v=test2json"}, args...)
}

// packageDir returns the directory of the package from the root of its module; go test runs the
// binary there. Outside of a module it is the path of the working directory.
func packageDir() string {
	dir, err := os.Getwd()
	if err != nil {
		return "a package"
	}
	root := dir
	for !isModule(root) {
		if root == filepath.Dir(root) {
			return dir
		}
		root = filepath.Dir(root)
	}
	rel, _ := filepath.Rel(root, dir)
	return filepath.ToSlash(rel)
}

// isModule reports whether a directory is the root of a module.
func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// forward passes on the signals that go test sends to a test that does not end. Without it they
// would end bounds, and the test binary would go on.
func forward(p *os.Process) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	go func() {
		for s := range signals {
			_ = p.Signal(s)
		}
	}()
}

// memory returns the memory of the largest among a process and its finished children, in MiB; 0
// where the system does not report it. Linux counts it in KiB, macOS in bytes.
func memory(state *os.ProcessState) int64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	unit := int64(1 << 10)
	if runtime.GOOS == "darwin" {
		unit = 1
	}
	return usage.Maxrss * unit >> 20
}

// note appends the time and memory of a package and its slow tests to the report, in one write, as
// several packages append to the file at a time. A report that cannot be written does not fail the
// package.
func (b bounds) note(name string, state *os.ProcessState, used int64, slow []stretch) {
	if b.report == "" {
		return
	}
	f, err := os.OpenFile(b.report, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bounds:", err)
		return
	}
	defer f.Close()
	cpu := state.UserTime() + state.SystemTime()
	var lines strings.Builder
	fmt.Fprintf(&lines, "%6d MiB %7.1f s of CPU  %s\n", used, cpu.Seconds(), name)
	for _, s := range slow {
		fmt.Fprintf(&lines, "%7.1f s  %s of %s\n", s.time.Seconds(), s.test, name)
	}
	io.WriteString(f, lines.String())
}
