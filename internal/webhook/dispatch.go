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
	"github.com/millrace/millrace/internal/worker"
)

// The dispatcher of a process is a worker.Pool whose handler makes one attempt of a delivery. Its
// claims admit only deliveries whose receivers have a slot:
//
//	claim ──► receiver has a slot? ──yes──► Handle: deliver ──► finish, slot is free
//	                  └──no──► release the delivery for a while
//
// A claim may take more deliveries than the pool has free slots: while many of them wait for
// receivers that do not answer, it claims past them to reach the others.
//
// The pool keeps the promises that hold for every job: it renews the lease of an attempt that takes
// long, writes the outcome again and again during an outage of the store, and drains at the stop.
// Where the outcome is lost with the process or with the lease, the receiver gets the event once
// more: deliveries are made at least once (FR-195).

const (
	// maxExtraClaims bounds how many deliveries are claimed beyond the free slots.
	maxExtraClaims = 256
	// releaseDelay is the delay of a delivery that could not be tried for a reason of the server.
	releaseDelay = 5 * time.Second
)

// dispatcher is the claim and the handler of the pool that makes deliveries.
type dispatcher struct {
	*Webhooks
	extra     int            // how many deliveries the next claim takes beyond the free slots
	admitted  sync.Map       // job.RunID to *execution, from the claim to the handler
	finishing sync.WaitGroup // finishRefused, which delays the next claim but no admitted job
}

// Run makes deliveries until ctx ends. Then it waits for the attempts in flight, which end within
// the lease of a delivery.
func (w *Webhooks) Run(ctx context.Context) {
	d := &dispatcher{Webhooks: w}
	pool := worker.MustNew(worker.Config{
		Engine:            w.Engine,
		JobType:           Name,
		Name:              Name,
		Slots:             w.Slots,
		HeartbeatInterval: w.lease() / 2,
		Claim:             d.claim,
		Handler:           d,
		OnPanic:           d.panicOutcome,
		Log:               w.Log,
	})
	pool.Run(ctx, w.lease())
	d.finishing.Wait()
}

// claim waits for deliveries whose receivers have a slot and returns up to req.Max of them. Only
// the one worker of the pool calls it.
func (d *dispatcher) claim(ctx context.Context, req engine.ClaimRequest) ([]*job.Job, error) {
	free := req.Max
	for {
		d.finishing.Wait()
		req.Max = free + d.extra
		jobs, err := d.Engine.Claim(ctx, req)
		if err != nil || len(jobs) == 0 {
			return nil, err
		}
		if admitted := d.admit(context.WithoutCancel(ctx), jobs, free); len(admitted) > 0 {
			return admitted, nil
		}
	}
}

// admit returns up to maxAdmitted jobs whose receivers have a slot, and keeps an execution of each
// for Handle. It finishes the other jobs: they are released, and one that cannot be read is given
// up.
func (d *dispatcher) admit(ctx context.Context, jobs []*job.Job,
	maxAdmitted int) (admitted []*job.Job) {
	var refused []engine.FinishRequest
	refuse := func(j *job.Job, o engine.Outcome) {
		o.NoAttempt = true
		refused = append(refused,
			engine.FinishRequest{Run: engine.Run{ID: j.ID, Run: j.Run}, Outcome: o})
	}
	var executions []*execution
	for _, j := range jobs {
		p, err := decodeDelivery(j)
		if err != nil {
			d.Log.Error("a delivery cannot be read and is given up", keyDelivery, j.ID.Key,
				keyError, err)
			refuse(j, engine.Outcome{On: job.FailedForGood, Reason: "unreadable"})
			continue
		}
		executions = append(executions, &execution{delivery: p, job: j})
	}
	d.loadRecipients(ctx, executions) // before the slots, which belong to the current URL
	busy := 0                         // jobs whose receivers are suspect and have no slot
	going := executions[:0]
	for _, a := range executions {
		if len(going) == maxAdmitted {
			refuse(a.job, engine.Outcome{On: job.Released, Delay: minWait, Reason: "no slot"})
			continue
		}
		s, wait, suspect := d.destinations.acquire(a.receiver())
		if s == nil {
			if suspect {
				busy++
			}
			refuse(a.job, engine.Outcome{On: job.Released, Delay: wait, Reason: "busy"})
			continue
		}
		a.slot = s
		going = append(going, a)
	}
	d.extra = min(2*busy, maxExtraClaims)
	for _, a := range going {
		d.admitted.Store(a.job.Run, a)
		admitted = append(admitted, a.job)
	}
	d.finishing.Go(func() { d.finishRefused(ctx, refused) })
	return admitted
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

// finishRefused finishes the runs of jobs that were not admitted, in one transaction.
func (d *dispatcher) finishRefused(ctx context.Context, refused []engine.FinishRequest) {
	for i, result := range d.Engine.FinishAll(ctx, refused) {
		if result.Err != nil { // the delivery stays leased until its lease expires
			d.Log.Log(ctx, outage.Level(slog.LevelWarn, result.Err),
				"a delivery could not be released", keyDelivery, refused[i].Run.ID.Key,
				keyError, result.Err)
		}
	}
}

// Handle implements worker.Handler: it makes one attempt of a delivery that claim has admitted.
func (d *dispatcher) Handle(ctx context.Context, t *worker.ClaimedJob) engine.Outcome {
	kept, _ := d.admitted.LoadAndDelete(t.Job.Run)
	a := kept.(*execution)
	defer d.destinations.releaseUnused(a.slot)
	return d.deliver(ctx, a)
}

// panicOutcome makes an attempt that panicked a failed one, so that a delivery which makes the
// process panic is given up in the end.
func (d *dispatcher) panicOutcome(t *worker.ClaimedJob, _ any) engine.Outcome {
	return engine.Outcome{On: job.Failed, Reason: "panic",
		Delay: d.retryDelay(t.Job.FailedAttempts+1, 0)}
}
