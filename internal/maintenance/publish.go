package maintenance

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// gatherInterval is how long messages are collected after the first one: each read of the outbox is
// a transaction that competes with those of jobs.
const gatherInterval = 20 * time.Millisecond

// releaseTimeout bounds releaseLeadership, the last step of a node that stops.
const releaseTimeout = time.Second

// Publisher receives the outbox messages of some job types. Publishers are independent: one that
// fails or is slow does not delay the others.
type Publisher struct {
	JobTypes []string // none means all
	// Deliver publishes a batch, oldest message first. After an error it receives the same
	// messages again.
	Deliver func(context.Context, []job.Message) error
	// Await, unless nil, is called before each Deliver. It waits while this node may not deliver,
	// and reports false when ctx has ended.
	Await func(context.Context) bool
}

// publish delivers the messages of the outbox, with a loop of its own for each publisher.
func (r *Runner) publish(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range r.Publishers {
		all.Go(func() { r.publishTo(ctx, p) })
	}
	all.Wait()
}

// publishTo delivers the messages of one publisher, in order and at least once.
func (r *Runner) publishTo(ctx context.Context, p Publisher) {
	elected := false
	defer func() {
		if elected {
			r.releaseLeadership(ctx, p)
		}
	}()
	deliver := func(ctx context.Context, batch []job.Message) error {
		elected = true
		return p.Deliver(ctx, batch)
	}
	name := strings.TrimSpace("publish " + strings.Join(p.JobTypes, " "))
	for p.Await == nil || p.Await(ctx) {
		_, err := r.Engine.Publish(ctx, deliver, p.JobTypes...)
		pause := gatherInterval
		if r.report(ctx, name, err) {
			awaitSignal(ctx, r.Engine.OutboxReady(p.JobTypes...))
		} else {
			pause = engine.SweepInterval
		}
		if !clock.Sleep(ctx, pause) {
			return
		}
	}
}

// releaseLeadership lets another node publish at once. When it fails, another node can publish
// after the end of this node's term.
func (r *Runner) releaseLeadership(ctx context.Context, p Publisher) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_ = r.Engine.ReleaseLeadership(ctx, p.JobTypes...)
}
