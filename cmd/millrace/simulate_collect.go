package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/client"
)

// collect reads what is there in the end, and waits for the webhooks that are still to come.
func (s *simulator) collect(ctx context.Context) (*simWorld, error) {
	w := &simWorld{orders: s.orders}
	bar := s.p.progress("account", 0)
	defer bar.end()
	var err error
	if w.there, err = s.jobs(ctx, bar); err != nil {
		return nil, err
	}
	s.sink.mu.Lock()
	for _, h := range s.sink.hooks {
		w.hooks = append(w.hooks, h)
	}
	s.sink.mu.Unlock()
	s.awaitWebhooks(ctx, w, bar)
	err = s.each(ctx, func(ctx context.Context, c *simClient) error {
		for _, h := range w.hooks {
			if h.client != c.number || h.webhookID == "" {
				continue
			}
			if err := s.readDeliveries(ctx, c, h); err != nil {
				return err
			}
		}
		return nil
	})
	return w, err
}

// partialTime bounds what is still read after a signal.
const partialTime = 20 * time.Second

// partial reads what there is of the plays that had ended when a signal came. The others, and webhooks that were still to
// come, would look like offences and are none.
func (s *simulator) partial(ctx context.Context) (*simWorld, error) {
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), partialTime)
	defer end()
	w := &simWorld{interrupted: true}
	bar := s.p.progress("account", 0)
	defer bar.end()
	there, err := s.jobs(ctx, bar)
	if err != nil {
		return nil, err
	}
	ended := map[string]bool{} // by job
	for _, o := range s.orders {
		if !o.whole() {
			w.cut++
			continue
		}
		w.orders = append(w.orders, o)
		for _, id := range o.jobs() {
			ended[id] = true
		}
	}
	// Where plays were cut short, the jobs of nobody are theirs.
	w.there = slices.DeleteFunc(there, func(t simThere) bool { return w.cut > 0 && !ended[t.job.ID] })
	return w, nil
}

// whole reports whether a play has gone through to its end.
func (o *simOrder) whole() bool {
	return o.stuck == "" && !slices.ContainsFunc(o.submits, func(one simSubmit) bool { return one.why != "" })
}

// jobs reads all jobs of all clients.
func (s *simulator) jobs(ctx context.Context, bar *progress) (all []simThere, err error) {
	var mu sync.Mutex
	err = s.each(ctx, func(ctx context.Context, c *simClient) error {
		there, err := s.jobsOf(ctx, c, bar)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, there...)
		return err
	})
	return all, err
}

// errSilent ends the reading of an account.
var errSilent = errors.New("nothing could be read for as long as --settle")

// each does something for every client at once and returns the first error. It goes on for as long as something is heard:
// clients have a limit of requests, so many jobs take long to read.
func (s *simulator) each(ctx context.Context, do func(context.Context, *simClient) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.patience = time.AfterFunc(s.flags.settle, func() { cancel(errSilent) })
	defer s.patience.Stop()
	var all sync.WaitGroup
	for _, c := range s.clients {
		all.Go(func() {
			if err := do(ctx, c); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// heard tells each that the server goes on answering.
func (s *simulator) heard() { s.patience.Reset(s.flags.settle) }

// jobsOf reads all jobs of a client and the reports of those that have ended.
func (s *simulator) jobsOf(ctx context.Context, c *simClient, bar *progress) ([]simThere, error) {
	var there []simThere
	for job, err := range c.forge.Jobs(ctx, client.ForgeRunFilter{PageSize: 100}) {
		if err != nil {
			return nil, err
		}
		there = append(there, simThere{client: c.number, job: job})
		s.heard()
	}
	var readers sync.WaitGroup
	for i := range there {
		t := &there[i]
		if !t.job.State.Final() {
			continue
		}
		readers.Go(func() {
			err := c.call(ctx, func() error {
				report, err := c.forge.Report(ctx, t.job.ID)
				if err == nil {
					t.report = &report
					s.heard()
				}
				return err
			})
			if err != nil {
				t.lacks = err.Error()
			}
			bar.add(1, "reports read")
		})
	}
	readers.Wait()
	return there, ctx.Err()
}

// awaitWebhooks waits until every receiver that accepts has accepted everything, and until those that never do are left
// alone for a while.
func (s *simulator) awaitWebhooks(ctx context.Context, w *simWorld, bar *progress) {
	known := map[*simHook]map[string][]string{}
	for _, h := range w.hooks {
		known[h] = map[string][]string{}
		for _, t := range w.there {
			if t.client != h.client || t.report == nil || h.webhookID == "" && t.job.Callback != h.url {
				continue
			}
			for _, e := range t.report.Events {
				known[h][t.job.ID] = append(known[h][t.job.ID], e.ID)
			}
		}
	}
	ctx, end := context.WithTimeout(ctx, s.flags.settle)
	defer end()
	last, heard := -1, s.p.since() // requests that had come, and since when there are no more
	for {
		missing := 0
		for h, jobs := range known {
			if h.manner != simNever {
				missing += s.sink.missing(h, jobs)
			}
		}
		if came, _ := s.sink.requests(); came != last {
			last, heard = came, s.p.since()
		}
		silent := s.p.since() - heard
		if missing == 0 && !s.pending(ctx, w, known, aWhile, true) || silent > givenUp && !s.pending(ctx, w, known, s.flags.settle, false) {
			return
		}
		bar.add(0, fmt.Sprintf("reports read; %d webhooks to come", missing))
		pause := 200 * time.Millisecond
		if missing == 0 {
			pause = time.Second // the server is asked each time
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

const (
	// aWhile is how long a receiver that never accepts must be left alone to be no longer waited for.
	aWhile = 10 * time.Second
	// givenUp is how long nothing must come for what the server does not mean to try again to be no longer waited for.
	givenUp = 10 * time.Second
)

// pending reports whether a delivery is about to be tried within a time: of receivers that never accept, or of others.
func (s *simulator) pending(ctx context.Context, w *simWorld, known map[*simHook]map[string][]string, within time.Duration, never bool) bool {
	for _, h := range w.hooks {
		if h.webhookID == "" || (h.manner == simNever) != never || len(known[h]) == 0 {
			continue
		}
		if err := s.readDeliveries(ctx, s.client(h.client), h); err != nil {
			return ctx.Err() == nil
		}
		for _, d := range h.deliveries {
			if d.Status != client.ForgePending {
				continue
			}
			if d.NextTryAt == nil && len(d.Tries) > 0 || d.NextTryAt != nil && d.NextTryAt.Before(s.p.now().Add(within)) {
				return true
			}
		}
	}
	return false
}

func (s *simulator) readDeliveries(ctx context.Context, c *simClient, h *simHook) error {
	h.deliveries = nil
	for d, err := range c.forge.Deliveries(ctx, h.webhookID, 100) {
		if err != nil {
			return err
		}
		h.deliveries = append(h.deliveries, d)
		s.heard()
	}
	return nil
}
