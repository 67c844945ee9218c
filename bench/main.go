package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	collectAsServer()
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err := millrace.remove(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	os.Exit(code)
}

// collectAsServer has the collector of this process run as seldom as that of millrace serve, for
// Millrace's engine and for the peers that run in this process.
func collectAsServer() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// settings is what the command line says.
type settings struct {
	jobs, warmup, rounds, clients int
	timeout, maxTime              time.Duration
	ref, json, dir, latency       string
	rate                          int
	list                          bool
	tune                          Tuning
	chosen                        []Case
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintln(stderr,
			"usage: go run . [flags] [case ...]   (flags before cases; no case means all)\n"+
				"       go run . counts [flags]       (what a job costs each database)\n"+
				"       go run . sizes [flags]        (what a job of each contract stores)\n"+
				"       go run . nodes [flags]        (nodes on one PostgreSQL: processor time a job)\n"+
				"       go run . curves [flags]       (how figures grow, as pictures)\n"+
				"       go run . ageing [flags]       (PostgreSQL beside a long transaction)\n"+
				"       go run . admin [flags]        (pages of operators over many jobs)\n"+
				"       go run . watchers [flags]     (what open consoles and events cost)\n"+
				"       go run . webhooks [flags]     (what a webhook of an operator costs)\n"+
				"       go run . idle [flags]         (what a server costs with nothing to do)\n"+
				"       go run . submissions [flags]  (jobs submitted with SQL in transactions)\n"+
				"       go run . pair [flags]         (this tree beside another one, by turns)")
		f.PrintDefaults()
	}
	f.IntVar(&s.jobs, "n", 20_000, "jobs per run; slow cases do a fraction of it")
	f.IntVar(&s.warmup, "warmup", 0, "jobs per run of the warm-up round (0: as many as -n)")
	f.IntVar(&s.rounds, "rounds", 5, "measured rounds")
	f.IntVar(&s.clients, "clients", 64, "goroutines or connections of cases with single jobs")
	f.StringVar(&s.ref, "ref", "", "case the ratios refer to (default river, else the first case)")
	f.StringVar(&s.json, "json", "", "also write the report to this `file`")
	f.StringVar(&s.latency, "latency", "",
		"also draw the percentiles of phases with a steady rate into this SVG `file`")
	f.IntVar(&s.rate, "rate", 0,
		"jobs a second of cases with a steady rate (0: the rate of each case)")
	f.StringVar(&s.dir, "dir", "",
		"folder for the files of SQLite and Redis (default the system's temporary folder)")
	f.DurationVar(&s.timeout, "timeout", time.Minute, "longest time for one run of one case")
	f.DurationVar(&s.maxTime, "max-time", 15*time.Minute, "longest time for the whole bench")
	f.BoolVar(&s.list, "list", false, "list the cases and end")
	f.IntVar(&s.tune.PostgresConns, "postgres-conns", 4, "connections of floor-postgres")
	f.IntVar(&s.tune.RiverWorkers, "river-workers", 2000, "River's MaxWorkers")
	f.IntVar(&s.tune.RiverConns, "river-conns", 16,
		"connections of River's pool (river-single: at least -clients)")
	f.IntVar(&s.tune.RiverInserters, "river-inserters", 4,
		"goroutines that insert batches into River")
	f.IntVar(&s.tune.AsynqServers, "asynq-servers", 32, "asynq servers in the process")
	f.IntVar(&s.tune.AsynqConcurrency, "asynq-concurrency", 16, "Concurrency of each asynq server")
	f.IntVar(&s.tune.AsynqClients, "asynq-clients", 64, "goroutines that enqueue into asynq")
	err := parseFlags(f, args, s.choose)
	return s, err
}

// choose takes the cases that are named, and checks what the flags say of them.
func (s *settings) choose(names []string) (err error) {
	if s.chosen, err = selectCases(cases, names); err != nil {
		return err
	}
	return s.resolve()
}

// maxJobs bounds the jobs of one run.
const maxJobs = 20_000_000

func (s *settings) resolve() error {
	for _, v := range []struct {
		flag  string
		value int
	}{
		{"n", s.jobs}, {"warmup", max(s.warmup, 1)}, {"rounds", s.rounds}, {"clients", s.clients},
		{"postgres-conns", s.tune.PostgresConns}, {"river-workers", s.tune.RiverWorkers},
		{"river-conns", s.tune.RiverConns}, {"river-inserters", s.tune.RiverInserters},
		{"asynq-servers", s.tune.AsynqServers}, {"asynq-concurrency", s.tune.AsynqConcurrency},
		{"asynq-clients", s.tune.AsynqClients},
	} {
		if v.value < 1 || v.value > maxJobs {
			return fmt.Errorf("--%s must be from 1 to %d", v.flag, maxJobs)
		}
	}
	if s.rate < 0 || s.rate > maxJobs {
		return fmt.Errorf("--rate must be from 0 to %d", maxJobs)
	}
	if s.warmup <= 0 {
		s.warmup = s.jobs
	}
	if s.timeout <= 0 || s.maxTime <= 0 {
		return errors.New("--timeout and --max-time must be positive")
	}
	named := func(name string) bool {
		return slices.ContainsFunc(s.chosen, func(c Case) bool { return c.Name == name })
	}
	switch {
	case s.ref != "" && !named(s.ref):
		return fmt.Errorf("--ref %s is not among the chosen cases", s.ref)
	case s.ref == "" && named("river"):
		s.ref = "river"
	case s.ref == "":
		s.ref = s.chosen[0].Name
	}
	return nil
}

// commands are what is measured otherwise than in rounds of cases. Each answers the exit code as
// run does.
var commands = map[string]func(ctx context.Context, args []string, stdout, stderr io.Writer) int{
	"counts": runCounts, "curves": runCurves, "ageing": runAgeing, "admin": runAdmin,
	"watchers": runWatchers, "webhooks": runWebhooks, "pair": runPair,
	"submissions": runSubmissions, "idle": runIdle,
	"sizes": runSizes, "nodes": runNodes,
}

// run is main with its surroundings passed in. It answers the exit code: 0, 1 when a case failed or
// the bench was cut short, 2 for a wrong command line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		if command := commands[args[0]]; command != nil {
			return command(ctx, args[1:], stdout, stderr)
		}
	}
	s, err := parse(args, stderr)
	if err != nil {
		return usageCode(err)
	}
	if s.list {
		for _, c := range s.chosen {
			fmt.Fprintf(stdout, "%-31s %s\n", c.Name, c.Summary)
		}
		return 0
	}
	report, err := bench(ctx, s, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	if err := report.WriteText(stdout); err != nil {
		return 1
	}
	if s.json != "" {
		if err := report.WriteJSON(s.json); err != nil {
			fmt.Fprintln(stderr, "bench:", err)
			return 1
		}
	}
	failed := slices.ContainsFunc(report.Cases, func(c CaseLine) bool { return c.Failed != "" })
	if failed || report.StopReason != "" {
		return 1
	}
	return 0
}

// bench runs the chosen cases.
func bench(ctx context.Context, s settings, log io.Writer) (report Report, err error) {
	env, err := newEnv(s.dir, s.clients, s.tune, log)
	if err != nil {
		return Report{}, err
	}
	env.Rate = s.rate
	err = withinTime(ctx, env, s.maxTime, func(ctx context.Context) error {
		report = Report{
			Machine: inspectMachine(env.Dir),
			Jobs:    s.jobs, Rounds: s.rounds, Clients: s.clients, Tuning: s.tune,
		}
		b := &Bench{Env: env, Jobs: s.jobs, Warmup: s.warmup, Rounds: s.rounds,
			Timeout: s.timeout, Log: log}
		tracks, err := b.Run(ctx, s.chosen)
		if err != nil {
			report.StopReason = err.Error()
		}
		report.Servers = env.Servers()
		report.Reference = reference(tracks, s.ref)
		report.Cases = caseLines(tracks, report.Reference)
		if s.latency != "" {
			return latencyChart(tracks, report.Machine).Write(s.latency)
		}
		return nil
	})
	return report, err
}

// withinTime calls use and cleans up behind it, also when it is interrupted or out of time.
func withinTime(ctx context.Context, env *Env, maxTime time.Duration,
	use func(context.Context) error) error {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		if err := env.Close(ctx); err != nil {
			fmt.Fprintln(env.Log, "bench: clean up:", err)
		}
	}()
	// A case that ignores its context must not keep the machine busy for ever.
	abort := time.AfterFunc(maxTime+time.Minute, func() {
		fmt.Fprintln(env.Log, "bench: a case does not end; giving up")
		env.KillAll()
		os.Exit(3)
	})
	defer abort.Stop()
	ctx, cancel := context.WithTimeoutCause(ctx, maxTime,
		fmt.Errorf("%s are over (see --max-time)", maxTime))
	defer cancel()
	return use(ctx)
}
