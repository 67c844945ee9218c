package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/clock"
)

// The audit needs the state of the server at a moment when nothing moves any more. Jobs have ended
// by then, because every scenario waits for its jobs. Webhooks may still be on their way: collect
// first reads all jobs with their reports, which name every event, then waits until the receivers
// have accepted these events, and reads the records of the deliveries last.

// collect reads the final state of every job and delivery. It returns when the last webhooks have
// arrived, or when no more of them are expected.
func (s *simulator) collect(ctx context.Context) (*history, error) {
	w := &history{submissions: s.submissions}
	bar := s.p.NewProgress("audit", 0)
	defer bar.End()
	var err error
	if w.observed, err = s.jobs(ctx, bar); err != nil {
		return nil, err
	}
	s.sink.mu.Lock()
	for _, h := range s.sink.receivers {
		w.receivers = append(w.receivers, h)
	}
	s.sink.mu.Unlock()
	s.awaitWebhooks(ctx, w, bar)
	err = s.forEachClient(ctx, func(ctx context.Context, c *forgeClient) error {
		for _, h := range w.receivers {
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

// partialTimeout bounds the reading after a signal.
const partialTimeout = 20 * time.Second

// partial collects only the scenarios that had ended when a signal came, and no webhooks. The other
// scenarios, and webhooks that had not arrived yet, would look like violations without being any.
func (s *simulator) partial(ctx context.Context) (*history, error) {
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), partialTimeout)
	defer end()
	w := &history{interrupted: true}
	bar := s.p.NewProgress("audit", 0)
	defer bar.End()
	observed, err := s.jobs(ctx, bar)
	if err != nil {
		return nil, err
	}
	ended := map[string]bool{} // by job
	for _, o := range s.submissions {
		if !o.isComplete() {
			w.unfinished++
			continue
		}
		w.submissions = append(w.submissions, o)
		for _, id := range o.jobs() {
			ended[id] = true
		}
	}
	// Jobs without a scenario belong to those that had not ended.
	w.observed = slices.DeleteFunc(observed, func(t observedJob) bool {
		return w.unfinished > 0 && !ended[t.job.ID]
	})
	return w, nil
}

// isComplete reports whether a scenario has ended and all its requests were answered.
func (o *submission) isComplete() bool {
	return o.abortReason == "" && !slices.ContainsFunc(o.requests, func(one submitRequest) bool {
		return one.failure != ""
	})
}

// jobs reads all jobs of all clients.
func (s *simulator) jobs(ctx context.Context, bar *cli.Progress) (all []observedJob, err error) {
	var mu sync.Mutex
	err = s.forEachClient(ctx, func(ctx context.Context, c *forgeClient) error {
		observed, err := s.jobsOf(ctx, c, bar)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, observed...)
		return err
	})
	return all, err
}

// errServerSilent is the error of a server that has not answered for as long as --settle.
var errServerSilent = errors.New("nothing could be read for as long as --settle")

// forEachClient calls do for every client concurrently and returns the first error, which ends the
// others. The whole has no time limit, because the rate limit of a client makes many jobs slow to
// read. It fails when resetSilence was not called for as long as --settle.
func (s *simulator) forEachClient(ctx context.Context,
	do func(context.Context, *forgeClient) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.silenceTimer = time.AfterFunc(s.flags.settleTimeout, func() { cancel(errServerSilent) })
	defer s.silenceTimer.Stop()
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

// resetSilence records that the server has answered.
func (s *simulator) resetSilence() { s.silenceTimer.Reset(s.flags.settleTimeout) }

// jobsOf reads all jobs of a client and the reports of those that have ended. A report that cannot
// be read is no error here; the audit reports it, unless ctx has ended.
func (s *simulator) jobsOf(ctx context.Context, c *forgeClient, bar *cli.Progress) ([]observedJob,
	error) {
	var observed []observedJob
	for job, err := range c.forge.Jobs(ctx, client.ForgeRunFilter{PageSize: 100}) {
		if err != nil {
			return nil, err
		}
		observed = append(observed, observedJob{client: c.number, job: job})
		s.resetSilence()
	}
	var readers sync.WaitGroup
	for i := range observed {
		t := &observed[i]
		if !t.job.State.Final() {
			continue
		}
		readers.Go(func() {
			err := c.call(ctx, func() (err error) {
				t.report, err = s.readReport(ctx, c, t.job.ID)
				return err
			})
			if err != nil {
				t.noReportReason = err.Error()
			}
			bar.Add(1, "reports read")
		})
	}
	readers.Wait()
	return observed, ctx.Err()
}

// readReport reads the report of a job.
func (s *simulator) readReport(ctx context.Context, c *forgeClient, jobID string) (
	*client.ForgeRunReport, error) {
	report, err := c.forge.Report(ctx, jobID)
	if err != nil {
		return nil, err
	}
	s.resetSilence()
	return &report, nil
}

// awaitWebhooks waits until every receiver that accepts has accepted all its events, and until the
// server plans no attempt in the near future for the receivers that never accept. It gives up after
// --settle, or when nothing has come for maxWebhookSilence and no attempt is planned. It returns no
// error: events that have not come are found by the audit.
func (s *simulator) awaitWebhooks(ctx context.Context, w *history, bar *cli.Progress) {
	knownEvents := map[*receiver]map[string][]string{}
	for _, h := range w.receivers {
		knownEvents[h] = map[string][]string{}
		for _, t := range w.observed {
			if t.client != h.client || t.report == nil ||
				(h.webhookID == "" && t.job.Callback != h.url) {
				continue
			}
			for _, e := range t.report.Events {
				knownEvents[h][t.job.ID] = append(knownEvents[h][t.job.ID], e.ID)
			}
		}
	}
	ctx, end := context.WithTimeout(ctx, s.flags.settleTimeout)
	defer end()
	last, lastArrival := -1, s.p.Elapsed() // number of requests, and when the last one came
	for {
		missing := 0
		for h, jobs := range knownEvents {
			if h.behavior != behaviorNeverAccepts {
				missing += s.sink.missing(h, jobs)
			}
		}
		if came, _ := s.sink.requests(); came != last {
			last, lastArrival = came, s.p.Elapsed()
		}
		silence := s.p.Elapsed() - lastArrival
		if (missing == 0 && !s.pending(ctx, w, knownEvents, quietReceiverTime, true)) ||
			(silence > maxWebhookSilence &&
				!s.pending(ctx, w, knownEvents, s.flags.settleTimeout, false)) {
			return
		}
		bar.Add(0, fmt.Sprintf("reports read; %d webhooks to come", missing))
		pause := 200 * time.Millisecond
		if missing == 0 {
			pause = time.Second // pending asks the server each time
		}
		if !clock.Sleep(ctx, pause) {
			return
		}
	}
}

const (
	// quietReceiverTime is the time in which a receiver that never accepts must expect no further
	// attempt before the wait for it ends.
	quietReceiverTime = 10 * time.Second
	// maxWebhookSilence is the time without any webhook after which the wait ends for events that
	// the server does not plan to deliver again.
	maxWebhookSilence = 10 * time.Second
)

// pending reports whether the server plans to attempt a delivery within a time: to receivers that
// never accept, or to the others. Deliveries that cannot be read count as planned, until ctx ends.
func (s *simulator) pending(ctx context.Context, w *history,
	known map[*receiver]map[string][]string, within time.Duration, never bool) bool {
	for _, h := range w.receivers {
		if h.webhookID == "" || (h.behavior == behaviorNeverAccepts) != never ||
			len(known[h]) == 0 {
			continue
		}
		if err := s.readDeliveries(ctx, s.client(h.client), h); err != nil {
			return ctx.Err() == nil
		}
		for _, d := range h.deliveries {
			if d.Status != client.ForgeRunDeliveryPending {
				continue
			}
			if (d.NextAttemptAt == nil && len(d.Attempts) > 0) ||
				(d.NextAttemptAt != nil && d.NextAttemptAt.Before(s.p.Now().Add(within))) {
				return true
			}
		}
	}
	return false
}

// readDeliveries reads the deliveries to a receiver.
func (s *simulator) readDeliveries(ctx context.Context, c *forgeClient, h *receiver) error {
	h.deliveries = nil
	for d, err := range c.forge.Deliveries(ctx, h.webhookID, 100) {
		if err != nil {
			return err
		}
		h.deliveries = append(h.deliveries, d)
		s.resetSilence()
	}
	return nil
}
