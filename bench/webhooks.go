package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// webhookSettings is what the command line says.
type webhookSettings struct {
	dir, on, events       string
	load, clients, rounds int
	batch                 int
	maxTime               time.Duration
	stderr                io.Writer
}

const webhooksUsage = `usage: go run . webhooks [flags]

Measures what a webhook of an operator costs: the throughput of jobs over HTTP, by turns without one
and with one whose receiver answers at once, each on a server with an empty store.
`

func parseWebhooks(args []string, stderr io.Writer) (webhookSettings, error) {
	s := webhookSettings{stderr: stderr}
	f := newFlags("webhooks", webhooksUsage, stderr)
	f.StringVar(&s.dir, "dir", "", "folder for databases (default the system's temporary folder)")
	f.StringVar(&s.on, "on", "", "only this `database`: sqlite or postgres")
	f.StringVar(&s.events, "events", "*", "`pattern` of the events that are subscribed to")
	f.IntVar(&s.load, "n", 20_000, "jobs of a round")
	f.IntVar(&s.batch, "batch", 1, "jobs of a request")
	f.IntVar(&s.clients, "clients", 64, "connections of the load")
	f.IntVar(&s.rounds, "rounds", 5, "how often each is measured")
	f.DurationVar(&s.maxTime, "max-time", time.Hour, "longest time for all of it")
	err := parseFlags(f, args, s.check)
	return s, err
}

func (s *webhookSettings) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return errors.New("webhooks takes flags only")
	case min(s.load, s.clients, s.rounds, s.batch) < 1 || s.load > maxJobs:
		return fmt.Errorf("the numbers must be at least 1, and those of jobs at most %d", maxJobs)
	case s.maxTime <= 0:
		return errors.New("-max-time must be positive")
	}
	return checkDatabase(s.on)
}

// runWebhooks is the subcommand. It answers the exit code as run does.
func runWebhooks(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parseWebhooks(args, stderr)
	if err != nil {
		return usageCode(err)
	}
	return onDatabases(ctx, s.on, s.dir, s.clients, s.maxTime, stdout, stderr, s.run)
}

// run measures on one database.
func (s *webhookSettings) run(ctx context.Context, env *Env, onPostgres bool,
	stdout io.Writer) (err error) {
	w := &adminWorld{http: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}}
	if w.relayQueue, err = newRelayQueue(ctx, env, onPostgres); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	w.batch = s.batch
	var received atomic.Int64
	url, err := w.receive(&received)
	if err != nil {
		return err
	}
	if _, err := s.rate(ctx, w, ""); err != nil { // a first one that does not count
		return err
	}
	var without, with, delivered []float64
	for range s.rounds {
		alone, err := s.rate(ctx, w, "")
		if err != nil {
			return err
		}
		received.Store(0)
		subscribed, err := s.rate(ctx, w, url)
		if err != nil {
			return err
		}
		without, with = append(without, alone), append(with, subscribed)
		delivered = append(delivered, float64(received.Load())/float64(s.load))
	}
	fmt.Fprintf(stdout, "jobs/s without a webhook %s, with one on %s %s: x %s (goal 0.700); "+
		"%s events a job were delivered meanwhile\n", spreadText(without), s.events,
		spreadText(with), spreadText(ratios(with, without)), spreadText(delivered))
	return nil
}

// receive starts a receiver that counts what it gets, and returns its URL. Close ends it.
func (w *adminWorld) receive(received *atomic.Int64) (url string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	w.hooks = &http.Server{Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			received.Add(1)
			w.WriteHeader(http.StatusNoContent)
		})}
	go func() { _ = w.hooks.Serve(listener) }() // ended by Close
	return "http://" + listener.Addr().String() + "/", nil
}

// rate is how many jobs a second go through a server with an empty store, which has a webhook to a
// URL unless that is empty.
func (s *webhookSettings) rate(ctx context.Context, w *adminWorld, url string) (float64, error) {
	if err := errors.Join(w.relayQueue.Close(), w.clear(ctx)); err != nil {
		return 0, err
	}
	if err := w.start(ctx); err != nil {
		return 0, err
	}
	if url != "" {
		body := fmt.Sprintf(`{"url":%q,"events":[%q]}`, url, s.events)
		if err := w.admin(ctx, http.MethodPost, "/admin/v1/webhooks", body, nil); err != nil {
			return 0, err
		}
	}
	runner := &queueRunner{queueSystem: w.relayQueue, conns: s.clients, batch: s.batch}
	phases, err := runner.load(ctx, s.load)
	if err != nil {
		return 0, err
	}
	return phases[len(phases)-1].Rate(), nil
}
