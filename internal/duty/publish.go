package duty

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// publishEvery is how often the outbox is looked at for what other nodes put
// there; what this node does is told.
const publishEvery = 200 * time.Millisecond

// gatherTime is how long messages gather from the first on: each look at the
// outbox is a transaction that jobs have to wait for.
const gatherTime = 20 * time.Millisecond

// resignTime bounds the last step of a node that stops.
const resignTime = time.Second

// Outlet takes the messages of contracts. One that fails or is slow holds up no
// other.
type Outlet struct {
	Contracts []string // none means all
	Deliver   func(context.Context, []job.Message) error
	// Await, when set, is waited for before anything is delivered here. Where it is false nothing ever is: another node
	// delivers.
	Await func(context.Context) bool
}

// publish delivers what is in the outbox, each outlet by itself.
func (r *Runner) publish(ctx context.Context) {
	var all sync.WaitGroup
	for _, o := range r.Outlets {
		all.Go(func() { r.publishTo(ctx, o) })
	}
	all.Wait()
}

// publishTo delivers the messages of one outlet, in order, at least once.
func (r *Runner) publishTo(ctx context.Context, o Outlet) {
	if o.Await != nil && !o.Await(ctx) {
		return
	}
	elected := false
	defer func() {
		if elected {
			r.resign(ctx, o)
		}
	}()
	deliver := func(ctx context.Context, batch []job.Message) error {
		elected = true
		return o.Deliver(ctx, batch)
	}
	name := strings.TrimSpace("publish " + strings.Join(o.Contracts, " "))
	for {
		wait, wake := publishEvery, r.Engine.Posted(o.Contracts...)
		if _, err := r.Engine.Publish(ctx, deliver, o.Contracts...); !r.did(ctx, name, err) {
			wait, wake = engine.SweepEvery, nil
		}
		if !pause(ctx, wait, wake) || !pause(ctx, gatherTime, nil) {
			return
		}
	}
}

// resign lets another node publish without waiting for the end of this one's
// term. Where it fails, that end comes.
func (r *Runner) resign(ctx context.Context, o Outlet) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignTime)
	defer cancel()
	_ = r.Engine.Resign(ctx, o.Contracts...)
}
