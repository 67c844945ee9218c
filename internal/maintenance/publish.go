package maintenance

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// publishInterval is how often the outbox is looked at for what other nodes put
// there; what this node does is told.
const publishInterval = 200 * time.Millisecond

// gatherInterval is how long messages gather from the first on: each look at the
// outbox is a transaction that jobs have to wait for.
const gatherInterval = 20 * time.Millisecond

// resignTimeout bounds the last step of a node that stops.
const resignTimeout = time.Second

// Publisher takes the messages of contracts. One that fails or is slow holds up no
// other.
type Publisher struct {
	Contracts []string // none means all
	Deliver   func(context.Context, []job.Message) error
	// Await, when set, is waited for before anything is delivered here. Where it is false nothing
	// ever is: another node delivers.
	Await func(context.Context) bool
}

// publish delivers what is in the outbox, each outlet by itself.
func (r *Runner) publish(ctx context.Context) {
	var all sync.WaitGroup
	for _, o := range r.Publishers {
		all.Go(func() { r.publishTo(ctx, o) })
	}
	all.Wait()
}

// publishTo delivers the messages of one outlet, in order, at least once.
func (r *Runner) publishTo(ctx context.Context, o Publisher) {
	if o.Await != nil && !o.Await(ctx) {
		return
	}
	elected := false
	defer func() {
		if elected {
			r.releaseLeadership(ctx, o)
		}
	}()
	deliver := func(ctx context.Context, batch []job.Message) error {
		elected = true
		return o.Deliver(ctx, batch)
	}
	name := strings.TrimSpace("publish " + strings.Join(o.Contracts, " "))
	for {
		wait, wake := publishInterval, r.Engine.OutboxReady(o.Contracts...)
		if _, err := r.Engine.Publish(ctx, deliver, o.Contracts...); !r.report(ctx, name, err) {
			wait, wake = engine.SweepInterval, nil
		}
		if !sleep(ctx, wait, wake) || !sleep(ctx, gatherInterval, nil) {
			return
		}
	}
}

// releaseLeadership lets another node publish without waiting for the end of this one's
// term. Where it fails, that end comes.
func (r *Runner) releaseLeadership(ctx context.Context, o Publisher) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignTimeout)
	defer cancel()
	_ = r.Engine.ReleaseLeadership(ctx, o.Contracts...)
}
