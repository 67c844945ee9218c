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

const (
	// claimWait is how long one look for deliveries lasts.
	claimWait = 20 * time.Second
	// pollPause is between a look that found nothing, or failed, and the next: a closed engine
	// answers at once.
	pollPause = 50 * time.Millisecond
	// finishTimeout bounds how long the end of a try is written again while the store is away.
	finishTimeout = writeMargin
	// maxExtraClaims bounds how many deliveries are claimed beyond the free slots.
	maxExtraClaims = 256
	// releaseDelay is how long a delivery waits that could not be tried for a reason of our own.
	releaseDelay = 5 * time.Second
)

// Run makes deliveries until ctx ends. Then it lets tries under way finish, which they do within
// Timeout, and returns.
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
		jobs, err := w.engine.Claim(ctx,
			engine.ClaimRequest{Contract: Name, Queues: []string{queue}, Max: n + extra,
				Worker: Name, Wait: claimWait})
		claimLoop.Report(ctx, err)
		started, busy := w.start(ctx, jobs, n, &inFlight, freeSlots)
		for range n - started {
			freeSlots <- struct{}{}
		}
		// Where many wait for receivers that do not answer, the next look goes past more of them at
		// once.
		extra = min(2*busy, maxExtraClaims)
		if len(jobs) == 0 && !clock.Sleep(ctx, pollPause) {
			return
		}
	}
}

// takeSlots waits for a free slot and takes all there are; 0 when ctx ends.
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

// start begins up to most tries of jobs whose receivers have a slot, and gives the others back for
// as long as they have to wait. busy counts those whose receivers had none and are doubtful.
func (w *Webhooks) start(ctx context.Context, jobs []*job.Job, maxStarted int,
	inFlight *sync.WaitGroup, freeSlots chan struct{}) (started, busy int) {
	var unstarted []engine.FinishRequest
	var ready []*attempt
	for _, j := range jobs {
		run := engine.Run{ID: j.ID, Run: j.Run}
		p, err := decodeDelivery(j)
		if err != nil {
			w.Log.Error("a delivery cannot be read and is given up", keyDelivery, j.ID.Key,
				keyError, err)
			unstarted = append(unstarted,
				engine.FinishRequest{Run: run,
					Outcome: engine.Outcome{On: job.FailedForGood, Reason: "unreadable"}})
			continue
		}
		if started == maxStarted {
			unstarted = append(unstarted,
				engine.FinishRequest{Run: run,
					Outcome: engine.Outcome{On: job.Released, Delay: minWait, Reason: "no slot"}})
			continue
		}
		s, wait, suspect := w.destinations.acquire(p.receiver())
		if s == nil {
			if suspect {
				busy++
			}
			unstarted = append(unstarted,
				engine.FinishRequest{Run: run,
					Outcome: engine.Outcome{On: job.Released, Delay: wait, Reason: "busy"}})
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
		if ended.Err != nil { // its lease ends it
			w.Log.Log(ctx, outage.Level(slog.LevelWarn, ended.Err),
				"a delivery could not be given back", keyDelivery, unstarted[i].Run.ID.Key,
				keyError, ended.Err)
		}
	}
}

// receiver is whom a delivery goes to.
func (p *delivery) receiver() receiver {
	u, err := url.Parse(p.URL)
	if err != nil {
		return receiver{client: p.Client, url: p.URL}
	}
	return receiver{client: p.Client, host: u.Host,
		url: u.Scheme + "://" + u.Host + u.EscapedPath()}
}

// finish writes how a try ended, again while the store is away. Where it stays away the lease ends
// the try, and the receiver gets the event again.
func (w *Webhooks) finish(run engine.Run, o engine.Outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	err := engine.Persist(ctx, func() error { _, err := w.engine.Finish(ctx, run, o); return err })
	if err != nil {
		w.Log.Log(ctx, outage.Level(slog.LevelWarn, err),
			"how a delivery went could not be written: it will be made again", keyDelivery,
			run.ID.Key, keyError, err)
	}
}
