package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

// The subcommand pair compares this tree with another one, such as a worktree of a commit before a
// change whose parts cannot be switched off. Both have a bench; each is built, and then the two run
// one case after another by turns, in processes of their own:
//
//	round 1: other case a, this case a, other case b, this case b; round 2: …
//
// Beside the rates it compares the processor time of the processes, which hang less on what else
// the machine does. The engine of the cases in process is in them, a server of PostgreSQL is not.

// pairSettings is what the command line says.
type pairSettings struct {
	other, dir                    string
	jobs, warmup, rounds, clients int
	timeout, maxTime              time.Duration
	cases                         []string
}

const pairUsage = `usage: go run . pair -other FOLDER [flags] case ...

Runs cases of this bench and of the bench in another folder by turns, and prints the ratios of this
one to the other one.
`

func parsePair(args []string, stderr io.Writer) (pairSettings, error) {
	var s pairSettings
	f := newFlags("pair", pairUsage, stderr)
	f.StringVar(&s.other, "other", "", "`folder` of the other bench, such as ../../before/bench")
	f.StringVar(&s.dir, "dir", "", "folder for databases (default the system's temporary folder)")
	f.IntVar(&s.jobs, "n", 50_000, "jobs per run")
	f.IntVar(&s.warmup, "warmup", 2000, "jobs per run before each of them")
	f.IntVar(&s.rounds, "rounds", 5, "measured rounds")
	f.IntVar(&s.clients, "clients", 64, "goroutines or connections of cases with single jobs")
	f.DurationVar(&s.timeout, "timeout", 3*time.Minute, "longest time for one run of one case")
	f.DurationVar(&s.maxTime, "max-time", time.Hour, "longest time for all of it")
	err := parseFlags(f, args, s.check)
	return s, err
}

func (s *pairSettings) check(names []string) error {
	s.cases = names
	if s.other == "" || len(s.cases) == 0 {
		return errors.New("pair needs -other and the names of cases")
	}
	if min(s.jobs, s.warmup, s.rounds, s.clients) < 1 || max(s.jobs, s.clients) > maxJobs {
		return fmt.Errorf("-n, -warmup, -rounds and -clients must be from 1 to %d", maxJobs)
	}
	if min(s.timeout, s.maxTime) <= 0 {
		return errors.New("-timeout and -max-time must be positive")
	}
	_, err := selectCases(cases, s.cases)
	return err
}

// runPair is the subcommand. It answers the exit code as run does.
func runPair(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parsePair(args, stderr)
	if err != nil {
		return usageCode(err)
	}
	if err := s.runWithinTime(ctx, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

// runWithinTime runs, and cleans up behind it.
func (s *pairSettings) runWithinTime(ctx context.Context, stdout, stderr io.Writer) error {
	env, err := newEnv(s.dir, 1, Tuning{}, stderr)
	if err != nil {
		return err
	}
	return withinTime(ctx, env, s.maxTime, func(ctx context.Context) error {
		return s.run(ctx, env, stdout)
	})
}

// pairSide is one of the two benches.
type pairSide struct{ folder, binary string }

// build builds the bench of a folder.
func (p *pairSide) build(ctx context.Context) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", p.binary, ".")
	build.Dir = p.folder
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the bench in %s: %w: %s", p.folder, err,
			singleLine(string(out)))
	}
	return nil
}

// pairRun is what one run of a case was.
type pairRun struct {
	rates map[string]float64 // by phase
	cpu   time.Duration
}

// runCase runs a case once in a process of its own.
func (p *pairSide) runCase(ctx context.Context, s *pairSettings, dir, name string) (r pairRun,
	err error) {
	path := filepath.Join(dir, "report.json")
	cmd := exec.CommandContext(ctx, p.binary, "-rounds", "1", "-n", strconv.Itoa(s.jobs), "-warmup",
		strconv.Itoa(s.warmup), "-clients", strconv.Itoa(s.clients), "-timeout",
		s.timeout.String(), "-dir", dir, "-json", path, name)
	cmd.Dir = p.folder
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it cleans up
	cmd.WaitDelay = 30 * time.Second
	out, runErr := cmd.CombinedOutput()
	text, err := os.ReadFile(path)
	if err != nil {
		return r, errors.Join(fmt.Errorf("%s in %s: %s", name, p.folder, singleLine(string(out))),
			runErr)
	}
	var report Report
	if err := errors.Join(json.Unmarshal(text, &report), os.Remove(path)); err != nil {
		return r, err
	}
	c := report.Cases[0]
	if problem := cmp.Or(c.Failed, c.SkipReason); problem != "" {
		return r, fmt.Errorf("%s in %s: %s", name, p.folder, problem)
	}
	r.rates = map[string]float64{}
	for _, phase := range c.Phases {
		r.rates[phase.Name] = phase.Rate.Median
	}
	r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return r, nil
}

// run builds both benches and runs the cases by turns.
func (s *pairSettings) run(ctx context.Context, env *Env, stdout io.Writer) error {
	sides := [2]pairSide{{s.other, filepath.Join(env.Dir, "other")},
		{".", filepath.Join(env.Dir, "this")}}
	for i := range sides {
		if err := sides[i].build(ctx); err != nil {
			return err
		}
	}
	runs := map[string][2][]pairRun{}
	for round := range s.rounds {
		for _, name := range s.cases {
			both := runs[name]
			for k := range sides {
				i := (k + round) % 2 // who comes first changes too
				r, err := sides[i].runCase(ctx, s, env.Dir, name)
				if err != nil {
					return err
				}
				both[i] = append(both[i], r)
				fmt.Fprintf(env.Log, "round %d/%d %s in %s: %s of processor time\n", round+1,
					s.rounds, name, sides[i].folder, r.cpu.Round(10*time.Millisecond))
			}
			runs[name] = both
		}
	}
	return s.report(stdout, runs)
}

// report writes the ratios of each case.
func (s *pairSettings) report(w io.Writer, runs map[string][2][]pairRun) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "case\t\tother\tthis\tratio\tlowest and highest\t")
	line := func(name, what, format string, of func(pairRun) float64) {
		var values [2][]float64
		for i := range values {
			for _, r := range runs[name][i] {
				values[i] = append(values[i], of(r))
			}
		}
		ratio := spreadOf(ratios(values[1], values[0]))
		fmt.Fprintf(t, "%s\t%s\t"+format+"\t"+format+"\t%.3f\t%.3f to %.3f\t\n", name, what,
			median(values[0]), median(values[1]), ratio.Median, ratio.Min, ratio.Max)
	}
	for _, name := range s.cases {
		for _, phase := range phasesOf(runs[name][1]) {
			line(name, phase+", jobs/s", "%.0f", func(r pairRun) float64 {
				if rate, ok := r.rates[phase]; ok {
					return rate
				}
				return math.NaN()
			})
		}
		line(name, "processor time, s", "%.2f", func(r pairRun) float64 { return r.cpu.Seconds() })
	}
	return t.Flush()
}

// phasesOf are the phases of a case.
func phasesOf(runs []pairRun) (names []string) {
	for name := range runs[0].rates {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
