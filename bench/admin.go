package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// adminSettings is what the command line says.
type adminSettings struct {
	dir, on           string
	jobs, rate, batch int
	clients, rounds   int
	past, warm        time.Duration
	limit, maxTime    time.Duration
	only              *regexp.Regexp
	stderr            io.Writer
}

const adminUsage = `usage: go run . admin [flags]

Fills a store with jobs of all contracts and asks the server for every page of /admin/v1 and of the
console again and again, beside jobs that come and go at a steady rate. Prints how long the answers
took by page, the slowest first.
`

// worldDatabases are the databases by the names that -on takes.
var worldDatabases = []struct {
	name       string
	onPostgres bool
}{{"sqlite", false}, {"postgres", true}}

func parseAdmin(args []string, stderr io.Writer) (adminSettings, error) {
	s := adminSettings{stderr: stderr}
	f := newFlags("admin", adminUsage, stderr)
	f.StringVar(&s.dir, "dir", "", "folder for databases (default the system's temporary folder)")
	f.StringVar(&s.on, "on", "", "only this `database`: sqlite or postgres")
	f.IntVar(&s.jobs, "n", 1_000_000, "jobs in the store")
	f.IntVar(&s.rate, "rate", 2000, "jobs a second beside the questions (0: none)")
	f.IntVar(&s.batch, "batch", 1, "of these, jobs of a request")
	f.IntVar(&s.clients, "clients", 64, "connections that submit, and as many that work")
	f.IntVar(&s.rounds, "rounds", 200, "how often each page is asked for")
	f.DurationVar(&s.past, "past", 7*24*time.Hour, "how far the series go back")
	f.DurationVar(&s.warm, "warm", 12*time.Second,
		"how long jobs come and go before the first question, so that series and workers have it")
	f.DurationVar(&s.limit, "time", 15*time.Minute, "longest time of asking on one database")
	f.DurationVar(&s.maxTime, "max-time", 2*time.Hour, "longest time for all of it")
	f.Func("only", "ask only for pages whose line matches this regular `expression`",
		func(text string) (err error) { s.only, err = regexp.Compile(text); return err })
	err := parseFlags(f, args, s.check)
	return s, err
}

func (s *adminSettings) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return errors.New("admin takes flags only")
	case min(s.jobs, s.batch, s.clients, s.rounds) < 1 || s.jobs > maxJobs || s.rate < 0:
		return fmt.Errorf("-n, -batch, -clients and -rounds must be at least 1, -n at most %d and "+
			"-rate at least 0", maxJobs)
	case min(s.past, s.warm) < 0 || min(s.limit, s.maxTime) <= 0:
		return errors.New("-past and -warm must be at least 0, -time and -max-time positive")
	}
	return checkDatabase(s.on)
}

// checkDatabase checks the value of -on.
func checkDatabase(on string) error {
	if on == "" || on == worldDatabases[0].name || on == worldDatabases[1].name {
		return nil
	}
	return errors.New("-on must be sqlite or postgres")
}

// runAdmin is the subcommand. It answers the exit code as run does.
func runAdmin(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parseAdmin(args, stderr)
	if err != nil {
		return usageCode(err)
	}
	return onDatabases(ctx, s.on, s.dir, s.clients, s.maxTime, stdout, stderr, s.run)
}

// onDatabases measures on each database, or on one alone, and answers the exit code as run does. A
// database that is not there is skipped.
func onDatabases(ctx context.Context, on, dir string, clients int, maxTime time.Duration,
	stdout, stderr io.Writer, measure func(context.Context, *Env, bool, io.Writer) error) int {
	env, err := newEnv(dir, clients, Tuning{}, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	err = withinTime(ctx, env, maxTime, func(ctx context.Context) error {
		fmt.Fprintln(stdout, inspectMachine(env.Dir))
		var errs []error
		for _, db := range worldDatabases {
			if on != "" && on != db.name {
				continue
			}
			fmt.Fprintf(stdout, "\n%s\n", db.name)
			switch err := measure(ctx, env, db.onPostgres, stdout); {
			case isSkip(err):
				fmt.Fprintf(stdout, "skipped: %v\n", err)
			case err != nil:
				errs = append(errs, fmt.Errorf("%s: %w", db.name, err))
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

// idleRate is the rate of the load before the questions where no load runs with them.
const idleRate = 100

// run measures on one database.
func (s *adminSettings) run(ctx context.Context, env *Env, onPostgres bool,
	stdout io.Writer) (err error) {
	w, err := newAdminWorld(ctx, env, onPostgres, s.jobs, s.past)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	w.batch = s.batch
	dataset, err := w.readDataset(ctx)
	if err != nil {
		return fmt.Errorf("dataset: %w", err)
	}
	var lines []*answers
	during := func(ctx context.Context) (err error) {
		lines, err = s.ask(ctx, w, dataset, stdout)
		return err
	}
	g := goals{admin: 100 * time.Millisecond, page: 100 * time.Millisecond,
		search: 500 * time.Millisecond} // AD-012
	ask := func() error { return s.askBeside(ctx, w, during, stdout) }
	if s.rate > 0 {
		g.admin = 50 * time.Millisecond
	} else {
		ask = func() error { return s.askIdle(ctx, w, during) }
	}
	if err := ask(); err != nil {
		return err
	}
	return g.report(stdout, lines)
}

// askIdle asks after a small load has ended.
func (s *adminSettings) askIdle(ctx context.Context, w *adminWorld,
	during func(context.Context) error) error {
	load := &steadyLoad{queue: w.relayQueue, conns: s.clients, rate: idleRate}
	if err := load.beside(ctx, func(ctx context.Context) error {
		return sleep(ctx, s.warm)
	}); err != nil {
		return err
	}
	return during(ctx)
}

// askBeside asks while the load runs, and returns what the server has used meanwhile.
func (s *adminSettings) askBeside(ctx context.Context, w *adminWorld,
	during func(context.Context) error, stdout io.Writer) error {
	load := &steadyLoad{queue: w.relayQueue, conns: s.clients, rate: s.rate}
	pid := w.servers[0].cmd.Process.Pid
	err := load.beside(ctx, func(ctx context.Context) error {
		if err := sleep(ctx, s.warm); err != nil {
			return err
		}
		before, err := processorTime(pid)
		if err != nil {
			return err
		}
		started := time.Now()
		if err := during(ctx); err != nil {
			return err
		}
		after, err := processorTime(pid)
		fmt.Fprintf(stdout, "the server used %.2f of a core and has %s resident\n",
			(after-before).Seconds()/time.Since(started).Seconds(), residentMemory(pid))
		return err
	})
	fmt.Fprintln(stdout, "beside:", load)
	return err
}

// ask asks for all pages.
func (s *adminSettings) ask(ctx context.Context, w *adminWorld, f *dataset,
	stdout io.Writer) ([]*answers, error) {
	all, unknown := f.questions()
	pages, err := w.pages(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("pages: %w", err)
	}
	all = append(all, pages...)
	if s.only != nil {
		all = slices.DeleteFunc(all, func(q question) bool {
			return !s.only.MatchString(q.label)
		})
	}
	if len(unknown) > 0 {
		fmt.Fprintf(stdout, "not asked for: %s\n", strings.Join(unknown, ", "))
	}
	return w.askRounds(ctx, all, s.rounds, s.limit)
}
