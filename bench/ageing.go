package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// ageingSettings is what the command line says.
type ageingSettings struct {
	out, dir, server             string
	rate, batch, clients, queued int
	total, every, keep           time.Duration
	holdFrom, holdTo             time.Duration
	stderr                       io.Writer
}

// The periods of a run. What comes before ageingBaseline warms up and is counted nowhere.
const (
	ageingWarm     = "warm-up"
	ageingBaseline = "baseline"
	ageingOpen     = "open"
	ageingAfter    = "after"
)

const ageingUsage = `usage: go run . ageing [flags]

Submits, claims and finishes jobs on PostgreSQL at a steady rate, while another session keeps a
transaction open for a part of the time, and draws what claims take, the dead rows and the files.
The server is one of its own with its usual settings, so autovacuum is on.
`

func parseAgeing(args []string, stderr io.Writer) (ageingSettings, error) {
	s := ageingSettings{stderr: stderr}
	f := newFlags("ageing", ageingUsage, stderr)
	f.StringVar(&s.out, "out", "../docs/img", "folder for the pictures and their numbers")
	f.StringVar(&s.dir, "dir", "", "folder for the server (default the system's temporary folder)")
	f.StringVar(&s.server, "server", "", "`DSN` of a server to use instead of one of its own")
	f.IntVar(&s.rate, "rate", 1000, "jobs a second")
	f.IntVar(&s.batch, "batch", 1, "jobs of a submission and of a claim")
	f.IntVar(&s.clients, "clients", 64, "callers that submit, and as many that claim")
	f.IntVar(&s.queued, "backlog", 1000, "jobs that are queued before the start")
	f.DurationVar(&s.keep, "keep", 0, "how long finished jobs are kept (0: they are removed)")
	f.DurationVar(&s.total, "time", 14*time.Minute, "length of the run")
	f.DurationVar(&s.every, "every", 5*time.Second, "length of what makes one point")
	f.DurationVar(&s.holdFrom, "hold-from", 2*time.Minute, "when the transaction begins")
	f.DurationVar(&s.holdTo, "hold-to", 12*time.Minute, "when it ends (0: there is none)")
	err := parseFlags(f, args, s.check)
	return s, err
}

func (s *ageingSettings) check(rest []string) error {
	if s.holdTo == 0 {
		s.holdFrom, s.holdTo = s.total, s.total
	}
	switch {
	case len(rest) > 0:
		return errors.New("ageing takes flags only")
	case min(s.rate, s.batch, s.clients) < 1 || s.queued < 0 || s.keep < 0:
		return errors.New("-rate, -batch and -clients must be at least 1, " +
			"-backlog and -keep at least 0")
	case s.every <= 0 || s.total < 2*s.every:
		return errors.New("-every must be positive and -time at least twice as long")
	case s.holdFrom <= 0 || s.holdTo < s.holdFrom || s.holdTo > s.total:
		return errors.New("-hold-from, -hold-to and -time must follow each other")
	}
	return nil
}

// period is the part of the run that a moment belongs to. A tenth of the baseline warms up.
func (s *ageingSettings) period(at time.Duration) string {
	switch {
	case at < s.warm():
		return ageingWarm
	case at < s.holdFrom:
		return ageingBaseline
	case at < s.holdTo:
		return ageingOpen
	default:
		return ageingAfter
	}
}

func (s *ageingSettings) warm() time.Duration { return s.holdFrom / 10 }

// runAgeing is the subcommand. It answers the exit code as run does.
func runAgeing(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parseAgeing(args, stderr)
	if err != nil {
		return usageCode(err)
	}
	if err := s.runWithinTime(ctx, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

// runWithinTime runs, and ends what it has started some minutes after it should have ended.
func (s *ageingSettings) runWithinTime(ctx context.Context, stdout, stderr io.Writer) error {
	env, err := newEnv(s.dir, s.clients, Tuning{}, stderr)
	if err != nil {
		return err
	}
	return withinTime(ctx, env, s.total+5*time.Minute, func(ctx context.Context) error {
		return s.run(ctx, env, stdout)
	})
}

// run measures, reports and draws. What ends early is drawn as far as it came.
func (s *ageingSettings) run(ctx context.Context, env *Env, stdout io.Writer) (err error) {
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return err
	}
	machine := inspectMachine(env.Dir)
	if env.Server = s.server; env.Server == "" {
		if env.Server, err = startPostgres(ctx, env); err != nil {
			return err
		}
	}
	pg, err := env.Postgres(ctx, "ageing")
	if err != nil {
		return err
	}
	l := &ageingLoad{rate: s.rate, batch: s.batch, clients: s.clients, backlog: s.queued,
		keep: s.keep, total: s.total}
	if err := l.open(ctx, pg); err != nil {
		return err
	}
	samples, err := s.measure(ctx, pg, l)
	err = errors.Join(err, l.close())
	fmt.Fprintln(stdout, pg.Describe())
	s.report(stdout, l, samples)
	note := fmt.Sprintf("%s, %d cores, %d jobs/s, batches of %d", machine.CPU, machine.Cores,
		s.rate, s.batch)
	return errors.Join(err, s.draw(note, l, samples))
}

// draw writes the pictures.
func (s *ageingSettings) draw(note string, l *ageingLoad, samples []ageSample) error {
	for name, chart := range s.charts(l, samples) {
		chart.Note = note
		if err := chart.Write(filepath.Join(s.out, name+".svg")); err != nil {
			return err
		}
	}
	return nil
}

// ageSample is what the tables were at one moment.
type ageSample struct {
	at     time.Duration
	tables map[string]tableAge
}

// measure runs the load, the other session and the samples beside each other. The first that
// fails ends all.
func (s *ageingSettings) measure(ctx context.Context, pg *Postgres,
	l *ageingLoad) (samples []ageSample, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	started := time.Now()
	sampling, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.holdInTime(sampling, pg, started); err != nil && sampling.Err() == nil {
			cancel(fmt.Errorf("the other session: %w", err))
		}
	})
	wg.Go(func() {
		var err error
		samples, err = s.sample(sampling, pg, l, started)
		if err != nil && sampling.Err() == nil {
			cancel(fmt.Errorf("sample: %w", err))
		}
	})
	err = l.run(ctx, started)
	stop()
	wg.Wait()
	return samples, errors.Join(context.Cause(ctx), err)
}

// holdInTime keeps the transaction of the other session open for its time.
func (s *ageingSettings) holdInTime(ctx context.Context, pg *Postgres, started time.Time) error {
	if s.holdFrom == s.holdTo {
		return nil
	}
	if err := sleep(ctx, time.Until(started.Add(s.holdFrom))); err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, started.Add(s.holdTo))
	defer cancel()
	return hold(ctx, pg)
}

// sample reads the age of the tables until ctx ends, and returns its samples.
func (s *ageingSettings) sample(ctx context.Context, pg *Postgres, l *ageingLoad,
	started time.Time) (samples []ageSample, err error) {
	conn, err := pgx.ConnectConfig(ctx, pg.dsn.ConnConfig.Copy())
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for i := 1; ; i++ {
		l.times.begin(s.period(time.Since(started)))
		if err := sleep(ctx, time.Until(started.Add(time.Duration(i)*s.every))); err != nil {
			return samples, nil
		}
		tables, err := readTableAges(ctx, conn)
		if err != nil {
			return samples, err
		}
		at := time.Duration(i) * s.every
		samples = append(samples, ageSample{at: at, tables: tables})
		due, _ := l.claimsBetween(at-s.every, at)
		p, sum := percentilesOf(due), sumAges(tables)
		fmt.Fprintf(s.stderr, "%s %s: %d claims answered, p50 %s, p99 %s, %d dead rows, %s\n",
			at,
			s.period(at-1), len(due), shortTime(p.P50), shortTime(p.P99), sum.dead,
			shortBytes(float64(sum.bytes)))
	}
}

func sumAges(tables map[string]tableAge) (sum tableAge) {
	for _, t := range tables {
		sum.dead, sum.bytes = sum.dead+t.dead, sum.bytes+t.bytes
	}
	return sum
}

func shortTime(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

// report writes the percentiles of each period, and the statements that took the longest together.
func (s *ageingSettings) report(w io.Writer, l *ageingLoad, samples []ageSample) {
	parts := []struct {
		name     string
		from, to time.Duration
	}{
		{ageingBaseline, s.warm(), s.holdFrom},
		{ageingOpen, s.holdFrom, s.holdTo},
		{"end of it", s.holdTo - (s.holdTo-s.holdFrom)/10, s.holdTo},
		{ageingAfter, s.holdTo, s.total},
	}
	baseline, _ := l.claimsBetween(s.warm(), s.holdFrom)
	base, baseMiddle := percentilesOf(baseline), s.medianP99(l, s.warm(), s.holdFrom)
	for _, part := range parts {
		due, sent := l.claimsBetween(part.from, part.to)
		if len(due) == 0 {
			continue
		}
		p, middle := percentilesOf(due), s.medianP99(l, part.from, part.to)
		fmt.Fprintf(w, "%-9s %7d claims, from due: p50 %s p99 %s (x %.2f) max %s, "+
			"p99 of the median interval %s (x %.2f); from sending: p99 %s\n", part.name, len(due),
			shortTime(p.P50), shortTime(p.P99), ratioOf(p.P99, base.P99), shortTime(p.Max),
			shortTime(middle), ratioOf(middle, baseMiddle), shortTime(percentilesOf(sent).P99))
	}
	if n := l.empty.Load(); n > 0 {
		fmt.Fprintf(w, "%d claims found no job\n", n)
	}
	if len(samples) > 0 {
		last := sumAges(samples[len(samples)-1].tables)
		fmt.Fprintf(w, "at the end %d dead rows, %s of files\n", last.dead,
			shortBytes(float64(last.bytes)))
	}
	s.reportStatements(w, l)
}

func (s *ageingSettings) reportStatements(w io.Writer, l *ageingLoad) {
	period := ageingOpen
	if s.holdFrom == s.holdTo {
		period = ageingBaseline
	}
	for _, name := range l.times.longest(period, 12) {
		baseline, _ := l.times.mean(ageingBaseline, name)
		open, n := l.times.mean(period, name)
		fmt.Fprintf(w, "  %-16s %8d times, mean baseline %s, then %s\n", name, n,
			baseline.Round(time.Microsecond), open.Round(time.Microsecond))
	}
}

// medianP99 is the median of the 99th percentiles of intervals, on which a disturbance from outside
// has less weight than on that of all claims.
func (s *ageingSettings) medianP99(l *ageingLoad, from, to time.Duration) time.Duration {
	var all []time.Duration
	for at := from; at < to; at += s.every {
		if due, _ := l.claimsBetween(at, min(at+s.every, to)); len(due) > 0 {
			all = append(all, percentilesOf(due).P99)
		}
	}
	return percentilesOf(all).P50
}

func ratioOf(a, b time.Duration) float64 { return float64(a) / float64(max(b, 1)) }

// charts are the pictures by the names of their files.
func (s *ageingSettings) charts(l *ageingLoad, samples []ageSample) map[string]Chart {
	chart := func(title, y string) Chart {
		c := Chart{Title: title, X: Axis{Label: "seconds", Linear: true}, Y: Axis{Label: y}}
		if s.holdFrom < s.holdTo {
			c.Bands = []Band{{s.holdFrom.Seconds(), s.holdTo.Seconds(), "a transaction is open"}}
		}
		return c
	}
	claims := chart("Claims while another session holds a transaction", "ms")
	claims.Series = s.claimSeries(l)
	dead := chart("Dead rows", "rows")
	dead.Series = tableSeries(samples, func(t tableAge) float64 { return float64(t.dead) })
	files := chart("Files of the tables with their indexes", "MiB")
	files.Series = tableSeries(samples, func(t tableAge) float64 {
		return float64(t.bytes) / (1 << 20)
	})
	return map[string]Chart{"ageing-claims": claims, "ageing-dead": dead, "ageing-files": files}
}

// claimSeries are percentiles of the claims that were due in each interval.
func (s *ageingSettings) claimSeries(l *ageingLoad) []Series {
	p50, p99, sent := Series{Name: "p50 from due"}, Series{Name: "p99 from due"},
		Series{Name: "p99 from sending", Dashed: true}
	ms := func(at, d time.Duration) Point {
		return Point{X: at.Seconds(), Y: max(float64(d)/float64(time.Millisecond), 0.001)}
	}
	for at := s.every; at <= s.total; at += s.every {
		due, fromSent := l.claimsBetween(at-s.every, at)
		if len(due) == 0 {
			continue
		}
		p := percentilesOf(due)
		p50.Points = append(p50.Points, ms(at, p.P50))
		p99.Points = append(p99.Points, ms(at, p.P99))
		sent.Points = append(sent.Points, ms(at, percentilesOf(fromSent).P99))
	}
	return []Series{p50, p99, sent}
}

// maxTableSeries is the number of tables that are drawn.
const maxTableSeries = 5

// tableSeries are the sum of all tables and those that had most. Less than one is drawn as one.
func tableSeries(samples []ageSample, of func(tableAge) float64) []Series {
	highest := map[string]float64{}
	all := Series{Name: "all tables"}
	for _, sample := range samples {
		var sum float64
		for name, t := range sample.tables {
			highest[name] = max(highest[name], of(t))
			sum += of(t)
		}
		all.Points = append(all.Points, Point{X: sample.at.Seconds(), Y: max(sum, 1)})
	}
	names := slices.SortedFunc(maps.Keys(highest), func(a, b string) int {
		return cmp.Compare(highest[b], highest[a])
	})
	series := []Series{all}
	for _, name := range names[:min(len(names), maxTableSeries)] {
		line := Series{Name: name}
		for _, sample := range samples {
			line.Points = append(line.Points, Point{X: sample.at.Seconds(),
				Y: max(of(sample.tables[name]), 1)})
		}
		series = append(series, line)
	}
	return series
}
