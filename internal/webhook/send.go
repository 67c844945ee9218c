package webhook

import (
	"context"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
)

const (
	// claimWait is how long one look for deliveries lasts.
	claimWait = 20 * time.Second
	// breath is between a look that found nothing, or failed, and the next: a closed engine answers at once.
	breath = 50 * time.Millisecond
	// finishTime bounds how long the end of a try is written again while the store is away.
	finishTime = spare
	// lookBeyond bounds how many deliveries are claimed beyond the free slots.
	lookBeyond = 256
	// notNow is how long a delivery waits that could not be tried for a reason of our own.
	notNow = 5 * time.Second
)

// Run makes deliveries until ctx ends. Then it lets tries under way finish, which they do within Timeout, and returns.
func (w *Webhooks) Run(ctx context.Context) {
	var flying sync.WaitGroup
	defer flying.Wait()
	free := make(chan struct{}, w.Slots)
	for range w.Slots {
		free <- struct{}{}
	}
	beyond, looks := 0, outage.Loop{Log: w.Log, What: "claims of deliveries"}
	for {
		n := take(ctx, free)
		if n == 0 {
			return
		}
		jobs, err := w.engine.Claim(ctx, engine.ClaimRequest{Contract: Name, Queues: []string{queue}, Max: n + beyond, Worker: Name, Wait: claimWait})
		looks.Did(ctx, err)
		started, busy := w.start(ctx, jobs, n, &flying, free)
		for range n - started {
			free <- struct{}{}
		}
		// Where many wait for receivers that do not answer, the next look goes past more of them at once.
		beyond = min(2*busy, lookBeyond)
		if len(jobs) == 0 && !pause(ctx, breath) {
			return
		}
	}
}

// take waits for a free slot and takes all there are; 0 when ctx ends.
func take(ctx context.Context, free chan struct{}) (n int) {
	select {
	case <-free:
		n = 1
	case <-ctx.Done():
		return 0
	}
	for {
		select {
		case <-free:
			n++
		default:
			return n
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// start begins up to most tries of jobs whose receivers have a slot, and gives the others back for as long as they have to
// wait. busy counts those whose receivers had none and are doubtful.
func (w *Webhooks) start(ctx context.Context, jobs []*job.Job, most int, flying *sync.WaitGroup, free chan struct{}) (started, busy int) {
	var back []engine.Ending
	var ready []*attempt
	for _, j := range jobs {
		run := engine.Run{ID: j.ID, Run: j.Run}
		p, err := unpack(j)
		if err != nil {
			w.Log.Error("a delivery cannot be read and is given up", keyDelivery, j.ID.Key, keyError, err)
			back = append(back, engine.Ending{Run: run, Outcome: engine.Outcome{On: job.FailedForGood, Reason: "unreadable"}})
			continue
		}
		if started == most {
			back = append(back, engine.Ending{Run: run, Outcome: engine.Outcome{On: job.Released, Delay: minBooking, Reason: "no slot"}})
			continue
		}
		s, wait, doubtful := w.places.enter(p.receiver())
		if s == nil {
			if doubtful {
				busy++
			}
			back = append(back, engine.Ending{Run: run, Outcome: engine.Outcome{On: job.Released, Delay: wait, Reason: "busy"}})
			continue
		}
		started++
		ready = append(ready, &attempt{parcel: p, job: j, slot: s})
	}
	ctx = context.WithoutCancel(ctx)
	w.look(ctx, ready)
	for _, a := range ready {
		flying.Go(func() {
			defer func() { free <- struct{}{} }()
			w.finish(engine.Run{ID: a.job.ID, Run: a.job.Run}, w.guarded(ctx, a))
		})
	}
	w.giveBack(ctx, back)
	return started, busy
}

func (w *Webhooks) giveBack(ctx context.Context, back []engine.Ending) {
	for i, ended := range w.engine.FinishAll(ctx, back) {
		if ended.Err != nil { // its lease ends it
			w.Log.Log(ctx, outage.Level(slog.LevelWarn, ended.Err), "a delivery could not be given back", keyDelivery, back[i].Run.ID.Key, keyError, ended.Err)
		}
	}
}

// receiver is whom a delivery goes to.
func (p *parcel) receiver() receiver {
	u, err := url.Parse(p.URL)
	if err != nil {
		return receiver{client: p.Client, url: p.URL}
	}
	return receiver{client: p.Client, host: u.Host, url: u.Scheme + "://" + u.Host + u.EscapedPath()}
}

// finish writes how a try ended, again while the store is away. Where it stays away the lease ends the try, and the
// receiver gets the event again.
func (w *Webhooks) finish(run engine.Run, o engine.Outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), finishTime)
	defer cancel()
	err := engine.Persist(ctx, func() error { _, err := w.engine.Finish(ctx, run, o); return err })
	if err != nil {
		w.Log.Log(ctx, outage.Level(slog.LevelWarn, err), "how a delivery went could not be written: it will be made again", keyDelivery, run.ID.Key, keyError, err)
	}
}
