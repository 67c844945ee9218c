package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// watcherSettings is what the command line says.
type watcherSettings struct {
	dir, on          string
	jobs, load       int
	rate, clients    int
	consoles, events int
	rounds           int
	past, time       time.Duration
	maxTime          time.Duration
	stderr           io.Writer
}

const watchersUsage = `usage: go run . watchers [flags]

Measures what those cost a server who watch it: the throughput over HTTP with and without open
consoles, and the processor time at a steady rate of jobs with and without clients of
/admin/v1/events, by turns.
`

func parseWatchers(args []string, stderr io.Writer) (watcherSettings, error) {
	s := watcherSettings{stderr: stderr}
	f := newFlags("watchers", watchersUsage, stderr)
	f.StringVar(&s.dir, "dir", "", "folder for databases (default the system's temporary folder)")
	f.StringVar(&s.on, "on", "", "only this `database`: sqlite or postgres")
	f.IntVar(&s.jobs, "n", 100_000, "jobs in the store")
	f.IntVar(&s.load, "load", 50_000, "jobs of a round with or without consoles")
	f.IntVar(&s.rate, "rate", 2000, "jobs a second beside the clients of events")
	f.IntVar(&s.clients, "clients", 64, "connections of the load")
	f.IntVar(&s.consoles, "consoles", 50, "open consoles")
	f.IntVar(&s.events, "events", 200, "clients of events")
	f.IntVar(&s.rounds, "rounds", 5, "how often each is measured with and without")
	f.DurationVar(&s.time, "time", 20*time.Second, "length of a round with or without events")
	f.DurationVar(&s.past, "past", 24*time.Hour, "how far the series go back")
	f.DurationVar(&s.maxTime, "max-time", time.Hour, "longest time for all of it")
	err := parseFlags(f, args, s.check)
	return s, err
}

func (s *watcherSettings) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return errors.New("watchers takes flags only")
	case min(s.jobs, s.load, s.rate, s.clients, s.rounds, s.consoles, s.events) < 1 ||
		max(s.jobs, s.load) > maxJobs:
		return fmt.Errorf("the numbers must be at least 1, and those of jobs at most %d", maxJobs)
	case s.past < 0 || min(s.time, s.maxTime) <= 0:
		return errors.New("-past must be at least 0, -time and -max-time positive")
	}
	return checkDatabase(s.on)
}

// runWatchers is the subcommand. It answers the exit code as run does.
func runWatchers(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parseWatchers(args, stderr)
	if err != nil {
		return usageCode(err)
	}
	return onDatabases(ctx, s.on, s.dir, s.clients, s.maxTime, stdout, stderr, s.run)
}

// run measures on one database.
func (s *watcherSettings) run(ctx context.Context, env *Env, onPostgres bool,
	stdout io.Writer) (err error) {
	w, err := newAdminWorld(ctx, env, onPostgres, s.jobs, s.past)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := s.runEvents(ctx, w, stdout); err != nil {
		return fmt.Errorf("events: %w", err)
	}
	if err := s.runConsoles(ctx, w, stdout); err != nil {
		return fmt.Errorf("consoles: %w", err)
	}
	return nil
}

// runEvents measures the processor time of the server at a steady rate, without and with clients
// of its events.
func (s *watcherSettings) runEvents(ctx context.Context, w *adminWorld, stdout io.Writer) error {
	load := &steadyLoad{queue: w.relayQueue, conns: s.clients, rate: s.rate}
	var without, with, more []float64
	var received int64
	if err := load.beside(ctx, func(ctx context.Context) error {
		for range s.rounds {
			alone, err := s.cores(ctx, w)
			if err != nil {
				return err
			}
			watched, n, err := s.coresWatched(ctx, w)
			if err != nil {
				return err
			}
			without, with = append(without, alone), append(with, watched)
			more = append(more, watched-alone)
			received += n
		}
		return nil
	}); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "beside: %s\n", load)
	fmt.Fprintf(stdout, "cores of the server without clients of events %s, with %d %s, more %s "+
		"(goal 0.050); a client got %.2f events a second\n", spreadText(without), s.events,
		spreadText(with), spreadText(more), float64(received)/float64(s.events)/
			(s.time.Seconds()*float64(s.rounds)))
	return nil
}

// spreadText is the median of values, with the lowest and the highest.
func spreadText(values []float64) string {
	v := spreadOf(values)
	return fmt.Sprintf("%.3f (%.3f to %.3f)", v.Median, v.Min, v.Max)
}

// cores is how many cores the server uses for a while.
func (s *watcherSettings) cores(ctx context.Context, w *adminWorld) (float64, error) {
	pid := w.servers[0].cmd.Process.Pid
	before, err := processorTime(pid)
	if err != nil {
		return 0, err
	}
	started := time.Now()
	if err := sleep(ctx, s.time); err != nil {
		return 0, err
	}
	after, err := processorTime(pid)
	return (after - before).Seconds() / time.Since(started).Seconds(), err
}

// coresWatched is cores with clients of events, and how many events these were sent.
func (s *watcherSettings) coresWatched(ctx context.Context, w *adminWorld) (used float64,
	received int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	listening, stop := context.WithCancel(ctx)
	defer stop()
	var count atomic.Int64
	var clients, first sync.WaitGroup
	for range s.events {
		first.Add(1)
		clients.Go(func() {
			signalFirst := sync.OnceFunc(first.Done)
			defer signalFirst() // also where it ends before
			err := w.listen(listening, func() { count.Add(1); signalFirst() })
			if err != nil && listening.Err() == nil {
				cancel(fmt.Errorf("a client of events: %w", err))
			}
		})
	}
	first.Wait()
	before := count.Load()
	used, err = s.cores(ctx, w)
	received = count.Load() - before
	stop()
	clients.Wait()
	return used, received, errors.Join(context.Cause(ctx), err)
}

// listen is a client of events, which are counted, until ctx ends.
func (w *adminWorld) listen(ctx context.Context, received func()) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url("/admin/v1/events"), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+w.token)
	res, err := w.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	lines := bufio.NewReader(res.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		if strings.HasPrefix(line, "event: counts") {
			received()
		}
	}
}

// runConsoles measures the throughput of single jobs over HTTP, without and with open consoles.
func (s *watcherSettings) runConsoles(ctx context.Context, w *adminWorld,
	stdout io.Writer) error {
	pages, err := w.pages(ctx, &dataset{jobs: map[string]int64{}})
	if err != nil {
		return err
	}
	pages = slices.DeleteFunc(pages, func(p question) bool { return !p.live })
	if len(pages) == 0 {
		return errors.New("no page of the console asks for itself again")
	}
	runner := &queueRunner{queueSystem: w.relayQueue, conns: s.clients, batch: 1}
	rate := func(ctx context.Context) (float64, error) {
		phases, err := runner.load(ctx, s.load)
		if err != nil {
			return 0, err
		}
		return phases[len(phases)-1].Rate(), nil
	}
	if _, err := rate(ctx); err != nil { // a first one that does not count
		return err
	}
	var without, with []float64
	total := int64(0)
	for range s.rounds {
		var shown atomic.Int64
		alone, err := rate(ctx)
		if err != nil {
			return err
		}
		watched := 0.0
		if err := s.withConsoles(ctx, w, pages, &shown,
			func(ctx context.Context) (err error) {
				watched, err = rate(ctx)
				return err
			}); err != nil {
			return err
		}
		without, with = append(without, alone), append(with, watched)
		total += shown.Load()
	}
	fmt.Fprintf(stdout, "jobs/s without consoles %s, with %d, which ask again at each event, "+
		"%s: x %s (goal 0.950); %d pages were shown\n", spreadText(without), s.consoles,
		spreadText(with), spreadText(ratios(with, without)), total)
	return nil
}

// withConsoles does something while consoles are open, each on another page, which it has shown
// before. Each listens to events and asks again as soon as its page says that it may, as jobs
// change all the time. shown counts the pages that were shown meanwhile.
func (s *watcherSettings) withConsoles(ctx context.Context, w *adminWorld, pages []question,
	shown *atomic.Int64, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	open, closeConsoles := context.WithCancel(ctx)
	defer closeConsoles()
	conns, closeAll, err := dialMany(ctx, w.addr(), s.consoles)
	if err != nil {
		return err
	}
	defer closeAll()
	var consoles, shownFirst sync.WaitGroup
	for i, c := range conns {
		path := pages[i%len(pages)].path
		consoles.Go(func() {
			if err := w.listen(open, func() {}); err != nil && open.Err() == nil {
				cancel(fmt.Errorf("the events of %s: %w", path, err))
			}
		})
		shownFirst.Add(1)
		consoles.Go(func() {
			signalFirst := sync.OnceFunc(shownFirst.Done)
			defer signalFirst() // also where it ends before
			for wait := time.Duration(0); ; signalFirst() {
				if err := sleep(open, wait); err != nil {
					return
				}
				pause, err := w.show(c, path)
				if err != nil {
					cancel(fmt.Errorf("%s: %w", path, err))
					return
				}
				shown.Add(1)
				isFirst := wait == 0
				if wait = pause; isFirst { // not all at once
					wait = pause * time.Duration(i+1) / time.Duration(len(conns))
				}
			}
		})
	}
	shownFirst.Wait() // consoles that are open, and not the opening of them, are measured
	shown.Store(0)
	err = do(ctx)
	closeConsoles()
	consoles.Wait()
	return errors.Join(context.Cause(ctx), err)
}

// show asks for a page as its script does, and returns how long that waits until the next time.
func (w *adminWorld) show(c *rawConn, path string) (time.Duration, error) {
	page, err := c.Expect(w.refreshRequest(path), http.StatusOK)
	if err != nil {
		return 0, err
	}
	return pauseOf(page)
}

// pauseOf is how long a page says that the script of the console waits until it reads it again.
func pauseOf(page []byte) (time.Duration, error) {
	match := pauseText.FindSubmatch(page)
	if match == nil {
		return 0, errors.New("the page does not say how often it may be read")
	}
	seconds, err := strconv.Atoi(string(match[1]))
	return time.Duration(seconds) * time.Second, err
}

var pauseText = regexp.MustCompile(`\bdata-refresh="(\d+)"`)

// refreshRequest is a request with which the script of a page asks for it again.
func (w *adminWorld) refreshRequest(path string) []byte {
	request := w.getRequest(path)
	return append(request[:len(request)-2], "Sec-Fetch-Dest: empty\r\n\r\n"...)
}
