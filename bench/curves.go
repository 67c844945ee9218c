package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// curve is a figure over a size that grows, with one line for each database.
type curve struct {
	name        string
	title       string
	x, y        Axis
	sizes       []int // all of them, growing
	defaultSize int   // up to which it goes without -full and -max
	maxLite     int   // up to which it goes on SQLite, 0 for all

	// setup prepares the line of one database.
	setup func(ctx context.Context, env *Env, onPostgres bool, jobs int) (curveLine, error)
}

// curveLine measures a figure. The sizes it is asked for grow.
type curveLine interface {
	At(ctx context.Context, size int) (float64, error)
	// Close removes what the line stored.
	Close(ctx context.Context) error
}

var (
	wholeRate = Axis{Label: "jobs/s: submitted, claimed and finished"}
	bytesAxis = Axis{Label: "bytes of a payload", Text: shortBytes}
)

// curves is every curve there is.
var curves = []curve{
	{
		name: "backlog", title: "Claims over a long queue",
		x: Axis{Label: "jobs queued"}, y: Axis{Label: "p99 of a claim over HTTP, ms"},
		sizes: tens(1000, 10_000_000), defaultSize: 100_000, setup: setupBacklogLine,
	},
	{
		name: "history", title: "Work beside jobs that are kept", y: wholeRate,
		x:           Axis{Label: "finished jobs kept (0 stands at 100)"},
		sizes:       append(append([]int{0}, tens(1000, 10_000_000)...), 50_000_000),
		defaultSize: 100_000,
		setup:       setupHistoryLine,
	},
	{
		name: "queues", title: "Jobs spread over queues", x: Axis{Label: "queues"}, y: wholeRate,
		sizes: tens(1, 100_000), defaultSize: 1000,
		setup: setupRelayLine(func(r *queueRunner, q *relayQueue, size, jobs int) int {
			q.queues = size
			return max(jobs, size)
		}),
	},
	{
		name: "payload", title: "Payloads", x: bytesAxis, y: wholeRate,
		sizes:       []int{100, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20},
		defaultSize: 64 << 10,
		setup: setupRelayLine(func(r *queueRunner, q *relayQueue, size, jobs int) int {
			q.payload = size
			return min(jobs, max(payloadBytes/size, r.conns))
		}),
	},
	{
		name: "connections", title: "Connections", x: Axis{Label: "connections"}, y: wholeRate,
		sizes: []int{8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}, defaultSize: 256,
		setup: setupRelayLine(func(r *queueRunner, _ *relayQueue, size, jobs int) int {
			r.conns = size
			return max(jobs, 4*size)
		}),
	},
	{
		name: "nodes", title: "Nodes on one database", y: wholeRate,
		x:     Axis{Label: "nodes", Ticks: []Tick{{1, "1"}, {2, "2"}, {3, "3"}, {4, "4"}}},
		sizes: []int{1, 2, 3, 4}, defaultSize: 2, maxLite: 1,
		setup: setupRelayLine(func(_ *queueRunner, q *relayQueue, size, jobs int) int {
			q.nodes = size
			return jobs
		}),
	},
}

// tens are the powers of ten times low up to high.
func tens(low, high int) (sizes []int) {
	for v := low; v <= high; v *= 10 {
		sizes = append(sizes, v)
	}
	return sizes
}

// upTo are the sizes of a line: all with full, else those up to maxSize, or to defaultSize for 0.
func (c curve) upTo(maxSize int, full, onPostgres bool) []int {
	switch {
	case maxSize == 0 && full:
		maxSize = slices.Max(c.sizes)
	case maxSize == 0:
		maxSize = c.defaultSize
	}
	if c.maxLite > 0 && !onPostgres {
		maxSize = min(maxSize, c.maxLite)
	}
	return slices.DeleteFunc(slices.Clone(c.sizes), func(v int) bool { return v > maxSize })
}

// curveSettings is what the command line says.
type curveSettings struct {
	out, dir, on          string
	jobs, rounds, maxSize int
	clients, minFree      int
	full, list            bool
	timeout, maxTime      time.Duration
	chosen                []curve
	stderr                io.Writer
}

func parseCurves(args []string, stderr io.Writer) (curveSettings, error) {
	s := curveSettings{stderr: stderr}
	f := flag.NewFlagSet("curves", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintln(stderr, "usage: go run . curves [flags] [curve ...]   (no curve means all)")
		f.PrintDefaults()
	}
	f.StringVar(&s.out, "out", "../docs/img", "folder for the pictures and their numbers")
	f.StringVar(&s.dir, "dir", "", "folder for databases (default the system's temporary folder)")
	f.StringVar(&s.on, "on", "", "only this `database`: sqlite or postgres")
	f.IntVar(&s.jobs, "n", 2000, "jobs of a measurement")
	f.IntVar(&s.rounds, "rounds", 1, "measurements of each point, of which the median is drawn")
	f.IntVar(&s.maxSize, "max", 0, "largest size (0: one that takes about a minute)")
	f.BoolVar(&s.full, "full", false, "go to the largest size of each curve, without -max")
	f.IntVar(&s.clients, "clients", 64, "connections, where they are not what grows")
	f.IntVar(&s.minFree, "min-free", 10, "GiB of disk at which a line ends")
	f.BoolVar(&s.list, "list", false, "list the curves and end")
	f.DurationVar(&s.timeout, "timeout", 30*time.Minute, "longest time for one point")
	f.DurationVar(&s.maxTime, "max-time", 15*time.Minute, "longest time for all of it")
	err := parseFlags(f, args, s.choose)
	return s, err
}

func (s *curveSettings) choose(names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(curves, func(c curve) bool { return c.name == name }) {
			return fmt.Errorf("no curve is named %q (see -list)", name)
		}
	}
	for _, c := range curves {
		if len(names) == 0 || slices.Contains(names, c.name) {
			s.chosen = append(s.chosen, c)
		}
	}
	if min(s.jobs, s.rounds, s.clients) < 1 || min(s.maxSize, s.minFree) < 0 {
		return errors.New("-n, -rounds and -clients must be at least 1, -max and -min-free at least 0")
	}
	if min(s.timeout, s.maxTime) <= 0 {
		return errors.New("-timeout and -max-time must be positive")
	}
	return checkDatabase(s.on)
}

// runCurves measures and draws curves. It answers the exit code, as run does.
func runCurves(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parseCurves(args, stderr)
	if err != nil {
		return usageCode(err)
	}
	if s.list {
		for _, c := range s.chosen {
			fmt.Fprintf(stdout, "%-12s %s\n", c.name, c.title)
		}
		return 0
	}
	if err := s.drawWithinTime(ctx, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

// drawWithinTime draws the curves, and ends what it has started after the longest time.
func (s *curveSettings) drawWithinTime(ctx context.Context, stdout, stderr io.Writer) error {
	env, err := newEnv(s.dir, s.clients, Tuning{}, stderr)
	if err != nil {
		return err
	}
	return withinTime(ctx, env, s.maxTime, func(ctx context.Context) error {
		return s.draw(ctx, env, stdout)
	})
}

// draw measures the chosen curves one after another. A line that ends early is drawn as far as it
// came, and its error is answered.
func (s *curveSettings) draw(ctx context.Context, env *Env, stdout io.Writer) error {
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return err
	}
	machine := inspectMachine(env.Dir)
	var errs []error
	for _, c := range s.chosen {
		path := filepath.Join(s.out, c.name+".svg")
		chart := Chart{Title: c.title, Note: fmt.Sprintf("%s, %d cores, fsync %v, -n %d, -clients %d",
			machine.CPU, machine.Cores, machine.Fsync.Round(time.Microsecond), s.jobs, s.clients),
			X: c.x, Y: c.y}
		var err error
		if chart.Series, err = s.lines(ctx, env, c); err != nil {
			errs = append(errs, err)
		}
		if len(chart.Series) == 0 {
			continue
		}
		if err := s.write(&chart, path); err != nil {
			return errors.Join(append(errs, err)...)
		}
		fmt.Fprintln(stdout, path)
	}
	return errors.Join(errs...)
}

// write writes a picture, with the line of a database that was not to be measured as path has it.
func (s *curveSettings) write(chart *Chart, path string) error {
	if s.on != "" {
		if err := chart.addEarlier(path); err != nil {
			return err
		}
	}
	return chart.Write(path)
}

// lines measures a curve on each chosen database.
func (s *curveSettings) lines(ctx context.Context, env *Env, c curve) (all []Series, err error) {
	var errs []error
	for _, database := range worldDatabases {
		if s.on != "" && s.on != database.name {
			continue
		}
		line, err := s.line(ctx, env, c, database.onPostgres)
		if isSkip(err) {
			fmt.Fprintf(s.stderr, "%s: skipped: %v\n", c.name, err)
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s on %s: %w", c.name, line.Name, err))
		}
		if len(line.Points) > 0 {
			all = append(all, line)
		}
	}
	return all, errors.Join(errs...)
}

// line measures one line.
func (s *curveSettings) line(ctx context.Context, env *Env, c curve,
	onPostgres bool) (line Series, err error) {
	line.Name = "SQLite"
	if onPostgres {
		line.Name = "PostgreSQL"
	}
	m, err := c.setup(ctx, env, onPostgres, s.jobs)
	if err != nil {
		return line, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		err = errors.Join(err, m.Close(ctx))
	}()
	for _, size := range c.upTo(s.maxSize, s.full, onPostgres) {
		free, err := freeDisk(env.Dir)
		if err != nil {
			return line, err
		}
		if free < uint64(s.minFree)<<30 {
			return line, fmt.Errorf("%s of disk are left before %d (see -min-free)",
				strings.TrimSpace(shortBytes(float64(free))), size)
		}
		value, err := s.point(ctx, m, size)
		if err != nil {
			return line, fmt.Errorf("%d: %w", size, err)
		}
		fmt.Fprintf(s.stderr, "%s %s %d: %s\n", c.name, line.Name, size, c.y.text(value))
		// Nothing has no logarithm.
		line.Points = append(line.Points, Point{X: float64(max(size, zeroSize(c.sizes))), Y: value})
	}
	return line, nil
}

// zeroSize is where a size of 0 is drawn: a tenth of the next one.
func zeroSize(sizes []int) int {
	if sizes[0] > 0 {
		return sizes[0]
	}
	return sizes[1] / 10
}

// point is the median of the measurements of one size.
func (s *curveSettings) point(ctx context.Context, m curveLine, size int) (float64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout,
		fmt.Errorf("no end within %s (see -timeout)", s.timeout))
	defer cancel()
	var values []float64
	for range s.rounds {
		value, err := m.At(ctx, size)
		if err != nil {
			return 0, errors.Join(err, context.Cause(ctx))
		}
		values = append(values, value)
	}
	return median(values), nil
}
