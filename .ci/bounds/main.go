// Command bounds runs the test binary of one package within bounds of time and memory. CI calls it
// through go test:
//
//	go test -timeout 30m -exec "bounds -report FILE" ./...
//
// A package that wedges ends with the name of the test and the stacks of its goroutines after two
// minutes, whatever -timeout says, and one that takes more than 2 GiB fails. Packages that need
// more time stand in the table below.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
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

// defaultTime and defaultMemory are the limits of a package that is not in slow. grace is how long
// a test binary may take to print its stacks after its limit before it is killed.
const (
	defaultTime   = 120 * time.Second
	defaultMemory = 2048 // MiB
	grace         = 20 * time.Second
)

// slow lists the packages that may take longer than defaultTime, and why.
// Directories count from the root of the module.
var slow = map[string]struct {
	limit  time.Duration
	reason string
}{
	"cmd/millrace": {25 * time.Minute,
		"runs the real binary: kills it in the middle of work, runs the examples of the docs, simulates users"},
	"internal/engine": {8 * time.Minute,
		"minutes of processor time with the race detector: crowds and random operations on every database"},
	"internal/admin": {5 * time.Minute,
		"every route with every kind of credential, and two nodes, on every database"},
	"internal/contract/fetchbox": {8 * time.Minute,
		"downloads by the thousand, on every database and S3"},
	"internal/contract/forgerun": {8 * time.Minute,
		"crowds of jobs and receivers, on every database"},
	"internal/contract/images": {8 * time.Minute,
		"decodes pictures in child processes, on every database, S3 and SQS"},
	"internal/contract/images/picture": {5 * time.Minute,
		"decodes and encodes pictures of many sizes and kinds, with the race detector"},
	"internal/contract/taskflow": {8 * time.Minute,
		"graphs of thousands of jobs, on every database"},
	"internal/schedule": {8 * time.Minute,
		"three nodes that are dropped in the middle of runs, on every database"},
	"internal/store/postgres": {8 * time.Minute,
		"the conformance suite twice, once through a pooler; standbys and crashes of servers"},
	"internal/store/sqlite": {8 * time.Minute,
		"the conformance suite, and faults of the disk at every call of the driver"},
	"internal/stream": {8 * time.Minute,
		"elections and crashes in clusters of three servers, one after the other"},
}

// bounds are what a package may use, as the flags give it. A time of 0 is the package's own limit;
// an empty report writes none.
type bounds struct {
	time   time.Duration
	memory int64 // MiB, of its largest process
	report string
}

func main() {
	var b bounds
	flag.DurationVar(&b.time, "time", 0, "limit of time instead of the package's own")
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
	cmd := exec.CommandContext(ctx, command[0], limited(command[1:], b.time)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "bounds:", err)
		return 2
	}
	forward(cmd.Process)
	err := cmd.Wait()
	used := memory(cmd.ProcessState)
	b.note(name, cmd.ProcessState, used)
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
		return max(1, cmd.ProcessState.ExitCode())
	}
	return 0
}

// limited returns the arguments of the test binary with our limit of time in the place of the one
// that go test has passed.
func limited(args []string, limit time.Duration) []string {
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool {
		return strings.HasPrefix(a, "-test.timeout=")
	})
	return append([]string{"-test.timeout=" + limit.String()}, args...)
}

// packageDir returns the directory of the package from the root of its module; go test runs the
// binary there. Outside of a module it is the path of the working directory.
func packageDir() string {
	dir, err := os.Getwd()
	if err != nil {
		return "a package"
	}
	for root := dir; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			rel, _ := filepath.Rel(root, dir)
			return filepath.ToSlash(rel)
		}
		if root == filepath.Dir(root) {
			return dir
		}
	}
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

// note appends the time and memory of a package to the report, in one write, as several packages
// append to the file at a time. A report that cannot be written does not fail the package.
func (b bounds) note(name string, state *os.ProcessState, used int64) {
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
	fmt.Fprintf(f, "%6d MiB %7.1f s of CPU  %s\n", used, cpu.Seconds(), name)
}
