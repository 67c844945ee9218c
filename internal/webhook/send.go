package webhook

import (
	"context"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
)

// The sender is one loop in each process (Run) that claims due deliveries and makes a try of each
// in a goroutine of its own:
//
//	free slots ──► Claim ──► receiver has a slot? ──yes──► deliver ──► Finish, slot is free
//	                                  └──no──► release the delivery for a while
//
// A claim may return more deliveries than there are free slots: while many of them wait for
// receivers that do not answer, the loop claims past them to reach the others.

const (
	// claimWait is how long one claim waits for deliveries.
	claimWait = 20 * time.Second
	// pollPause follows a claim that returned nothing or failed; a closed engine answers at once.
	pollPause = 50 * time.Millisecond
	// finishTimeout bounds how long the end of a try is written again during an outage of the
	// store.
	finishTimeout = writeMargin
	// maxExtraClaims bounds how many deliveries are claimed beyond the free slots.
	maxExtraClaims = 256
	// releaseDelay is the delay of a delivery that could not be tried for a reason of the server.
	releaseDelay = 5 * time.Second
)

// Run makes deliveries until ctx ends. Then it waits for the tries in flight, which end within
// Timeout.
func (w *Webhooks) Run(ctx context.Context) {
	var inFlight sync.WaitGroup
	defer inFlight.Wait()
	freeSlots := make(chan struct{}, w.Slots)
	for range w.Slots {
		freeSlots <- struct{}{}
	}
	extra, claimLoop := 0, outage.Loop{Log: w.Log, Name: "claims of deliveries"}
	for {
		n := takeSlots(ctx, freeSlots)
		if n == 0 {
			return
		}
		jobs, err := w.engine.Claim(ctx, engine.ClaimRequest{
			Contract: Name,
			Queues:   []string{queue},
			Max:      n + extra,
			Worker:   Name,
			Wait:     claimWait,
		})
		claimLoop.Report(ctx, err)
		started, busy := w.start(ctx, jobs, n, &inFlight, freeSlots)
		for range n - started {
			freeSlots <- struct{}{}
		}
		extra = min(2*busy, maxExtraClaims)
		if len(jobs) == 0 && !clock.Sleep(ctx, pollPause) {
			return
		}
	}
}

// takeSlots waits for a free slot and takes all that are free. It returns 0 when ctx ends.
func takeSlots(ctx context.Context, freeSlots chan struct{}) (n int) {
	select {
	case <-freeSlots:
		n = 1
	case <-ctx.Done():
		return 0
	}
	for {
		select {
		case <-freeSlots:
			n++
		default:
			return n
		}
	}
}

// start begins up to maxStarted tries of jobs whose receivers have a slot and releases the other
// jobs. busy counts the jobs whose receivers are suspect and had no slot.
func (w *Webhooks) start(ctx context.Context, jobs []*job.Job, maxStarted int,
	inFlight *sync.WaitGroup, freeSlots chan struct{}) (started, busy int) {
	var unstarted []engine.FinishRequest
	finishUnstarted := func(j *job.Job, o engine.Outcome) {
		unstarted = append(unstarted,
			engine.FinishRequest{Run: engine.Run{ID: j.ID, Run: j.Run}, Outcome: o})
	}
	var ready []*attempt
	for _, j := range jobs {
		p, err := decodeDelivery(j)
		if err != nil {
			w.Log.Error("a delivery cannot be read and is given up", keyDelivery, j.ID.Key,
				keyError, err)
			finishUnstarted(j, engine.Outcome{On: job.FailedForGood, Reason: "unreadable"})
			continue
		}
		if started == maxStarted {
			finishUnstarted(j,
				engine.Outcome{On: job.Released, Delay: minWait, Reason: "no slot"})
			continue
		}
		s, wait, suspect := w.destinations.acquire(p.receiver())
		if s == nil {
			if suspect {
				busy++
			}
			finishUnstarted(j, engine.Outcome{On: job.Released, Delay: wait, Reason: "busy"})
			continue
		}
		started++
		ready = append(ready, &attempt{delivery: p, job: j, slot: s})
	}
	ctx = context.WithoutCancel(ctx)
	w.loadRecipients(ctx, ready)
	for _, a := range ready {
		inFlight.Go(func() {
			defer func() { freeSlots <- struct{}{} }()
			w.finish(engine.Run{ID: a.job.ID, Run: a.job.Run}, w.deliverRecovered(ctx, a))
		})
	}
	w.finishUnstarted(ctx, unstarted)
	return started, busy
}

func (w *Webhooks) finishUnstarted(ctx context.Context, unstarted []engine.FinishRequest) {
	for i, ended := range w.engine.FinishAll(ctx, unstarted) {
		if ended.Err != nil { // the delivery stays leased until its lease expires
			w.Log.Log(ctx, outage.Level(slog.LevelWarn, ended.Err),
				"a delivery could not be released", keyDelivery, unstarted[i].Run.ID.Key,
				keyError, ended.Err)
		}
	}
}

// receiver returns where a delivery goes.
func (p *delivery) receiver() receiver {
	u, err := url.Parse(p.URL)
	if err != nil {
		return receiver{client: p.Client, url: p.URL}
	}
	return receiver{client: p.Client, host: u.Host,
		url: u.Scheme + "://" + u.Host + u.EscapedPath()}
}

// finish stores the outcome of a try and repeats that during an outage of the store. If the outage
// lasts longer than finishTimeout the lease expires, and the receiver gets the event once more.
func (w *Webhooks) finish(run engine.Run, o engine.Outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	err := engine.Persist(ctx, func() error { _, err := w.engine.Finish(ctx, run, o); return err })
	if err != nil {
		w.Log.Log(ctx, outage.Level(slog.LevelWarn, err),
			"the outcome of a delivery could not be stored: it will be delivered again",
			keyDelivery, run.ID.Key, keyError, err)
	}
}
