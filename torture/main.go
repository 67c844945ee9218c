package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

// The exit codes.
const (
	exitGood      = 0
	exitViolation = 1
	exitNoVerdict = 2
)

// maxMemory is what the collector of garbage keeps the ledger and the audit of a long run below.
const maxMemory = 5 << 29

func main() {
	serveNATS()
	debug.SetMemoryLimit(maxMemory)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(Main(ctx, os.Args[1:], os.Stdout))
}

// Main is the command, and returns its exit code.
func Main(ctx context.Context, args []string, output io.Writer) int {
	p, prove, err := readPlan(args, output)
	if errors.Is(err, flag.ErrHelp) {
		return exitGood
	}
	good := false
	switch {
	case err != nil:
	case prove:
		good, err = proveAll(ctx, &p, output)
	case p.Recovery > 0:
		good, err = measureRecovery(ctx, &p, output)
	case p.Points != "":
		good, err = crashRounds(ctx, &p, p.Rounds, output)
	default:
		good, err = torture(ctx, &p, output)
	}
	if err != nil {
		fmt.Fprintln(output, "torture:", err)
		return exitNoVerdict
	}
	if !good {
		return exitViolation
	}
	return exitGood
}

// torture carries out a plan and reports whether nothing was violated. What it leaves on the disk
// is removed after a good run, unless a directory was named.
func torture(ctx context.Context, p *plan, output io.Writer) (good bool, err error) {
	v, err := runPlan(ctx, p, output)
	if err != nil {
		return false, err
	}
	return len(v.Violations) == 0, nil
}

// runPlan carries out a plan and writes its verdict.
func runPlan(ctx context.Context, p *plan, output io.Writer) (v *verdict, err error) {
	temporary, err := p.makeReady(output)
	if err != nil {
		return nil, err
	}
	if v, err = execute(ctx, p, output); err != nil {
		return nil, err
	}
	if err := v.write(output, p.Dir); err != nil {
		return nil, err
	}
	if temporary && (len(v.Violations) == 0 || p.Bug != "") {
		return v, os.RemoveAll(p.Dir)
	}
	return v, nil
}

// makeReady makes the directory of a plan and builds its server, where it names none. temporary
// says that nobody has named the directory.
func (p *plan) makeReady(output io.Writer) (temporary bool, err error) {
	temporary = p.Dir == ""
	if temporary {
		if p.Dir, err = os.MkdirTemp("", "torture"); err != nil {
			return false, err
		}
	}
	if p.Dir, err = filepath.Abs(p.Dir); err != nil {
		return false, err
	}
	if p.Binary == "" {
		var bug *seededBug
		if p.Bug != "" {
			if bug, err = readBug(p.Bug); err != nil {
				return false, err
			}
		}
		if p.Binary, err = build(bug, p.Dir); err != nil {
			return false, err
		}
	}
	fmt.Fprintf(output, "%s\nledger, logs and data: %s\n", p.again(), p.Dir)
	return temporary, nil
}

// proveTimeout is how long a seeded bug may go without being caught.
const proveTimeout = 2 * time.Minute

// proveAll runs each seeded bug, or the one that the plan names, until it is caught, and writes a
// table of how long that took.
func proveAll(ctx context.Context, p *plan, output io.Writer) (good bool, err error) {
	names, err := bugNames()
	if err != nil {
		return false, err
	}
	if p.Bug != "" {
		names = []string{p.Bug}
	}
	good = true
	var failed error
	table := []string{"| bug | caught after | runs | by |", "| --- | --- | --- | --- |"}
	for _, name := range names {
		line, caught, err := proveBug(ctx, p, name)
		if err != nil { // the other bugs are tried nevertheless
			line = fmt.Sprintf("| %s | without a verdict: %v | | |", name, err)
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
		}
		good = good && caught
		fmt.Fprintln(output, line)
		table = append(table, line)
	}
	fmt.Fprintln(output, "\n"+strings.Join(table, "\n"))
	return good, failed
}

// proveBug runs a seeded bug, with one seed after another, until it is caught or out of time.
func proveBug(ctx context.Context, base *plan, name string) (line string, caught bool, err error) {
	b, err := readBug(name)
	if err != nil {
		return "", false, err
	}
	dir, err := os.MkdirTemp("", "torture-"+name)
	if err != nil {
		return "", false, err
	}
	defer os.RemoveAll(dir)
	p, _, err := readPlan(b.flags, io.Discard)
	if err != nil {
		return "", false, err
	}
	changes := b
	if p.Points != "" {
		if changes, err = withPoints(name); err != nil {
			return "", false, err
		}
	}
	if p.Binary, err = build(changes, dir); err != nil {
		return "", false, err
	}
	p.Postgres, p.Load, p.Wait, p.Batch = base.Postgres, base.Load, base.Wait, base.Batch
	p.Bug = name
	if base.Pause != meanPause {
		p.Pause = base.Pause
	}
	if p.S3 != "" {
		p.S3 = cmp.Or(base.S3, p.S3)
	}
	start := time.Now()
	var kinds []string
	for runs := 1; time.Since(start) < proveTimeout; runs++ {
		p.Seed, p.Dir = base.Seed+uint64(runs)-1, filepath.Join(dir, fmt.Sprint("run", runs))
		v, err := execute(ctx, &p, io.Discard)
		if err != nil {
			return "", false, err
		}
		kinds = append(kinds, b.caughtBy(v)...)
		if len(kinds) > 0 {
			return fmt.Sprintf("| %s: %s | %.0f s | %d | %s |", name, b.about,
				time.Since(start).Seconds(), runs, strings.Join(kinds, ", ")), true, nil
		}
	}
	return fmt.Sprintf("| %s: %s | not within %s | | |", name, b.about, proveTimeout), false, nil
}

// caughtBy returns the violations of a verdict that the bug has to cause.
func (b *seededBug) caughtBy(v *verdict) (kinds []string) {
	for kind := range v.Violations {
		for _, prefix := range b.catch {
			if strings.HasPrefix(kind+" ", prefix+" ") { // I1 is not I17
				kinds = append(kinds, kind)
			}
		}
	}
	return kinds
}
