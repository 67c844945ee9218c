package inbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
)

// Config configures how a node takes requests over. All members are required.
type Config struct {
	Engine    *engine.Engine
	Log       *slog.Logger
	Contracts []*contract.Contract // of the node
	// Known has the names of all contracts: requests to one that this node does not serve are left
	// to other nodes, and those to any other name are refused.
	Known    []string
	Registry prometheus.Registerer
	Elapsed  func() time.Duration // a monotonic clock
	// Retention is how long requests are kept when they are submitted or refused.
	Retention time.Duration
}

// Inbox takes the requests in the inbox of a store over.
type Inbox struct {
	Config
	foreign []string // of Known those that this node does not serve
	metrics *metrics
	loop    outage.Loop

	away      []string               // foreign, and what this node refused when it took held
	held      []job.InboxTransaction // taken, in their order
	heldUntil time.Duration          // by Elapsed
	width     int                    // how many of them are read at a time
	isMore    bool                   // there may be more than were taken
}

// New checks the config and registers the metrics. An error is a mistake in this program.
func New(c Config) (*Inbox, error) {
	if c.Engine == nil || c.Log == nil || c.Registry == nil || c.Elapsed == nil ||
		c.Retention <= 0 {
		return nil, errors.New("inbox: Engine, Log, Registry, Elapsed and Retention are required")
	}
	c.Engine.SetInboxRetention(c.Retention)
	in := &Inbox{Config: c, width: maxTransactions, loop: outage.Loop{Log: c.Log, Name: "inbox"}}
	served := contract.Submitters(c.Contracts)
	for _, name := range c.Known {
		if !slices.Contains(served, name) {
			in.foreign = append(in.foreign, name)
		}
	}
	var err error
	in.metrics, err = newMetrics(c.Registry, c.Engine, c.Known)
	return in, err
}

// The most that one step takes, and how long others leave it to this node. A node that is killed
// holds up for so long what it has taken.
const (
	maxTransactions = 256
	maxRequests     = 500
	maxBytes        = 16 << 20
	lease           = 10 * time.Second
	// leftFor is how long a transaction that begins with a request which this node cannot submit is
	// left to other nodes. After that no node seems to serve it, and the log says so.
	leftFor = 5 * time.Second
)

const (
	outagePause    = time.Second
	releaseTimeout = time.Second
)

// Run takes requests over until ctx ends. Where the store has no inbox it only waits.
func (in *Inbox) Run(ctx context.Context) {
	defer in.release(ctx)
	for {
		select {
		case <-in.Engine.InboxReady():
		case <-ctx.Done():
			return
		}
		for more := true; more; {
			var err error
			if more, err = in.step(ctx); err != nil {
				more = clock.Sleep(ctx, outagePause)
			}
			in.loop.Report(ctx, err)
		}
	}
}

// step takes and submits a batch of requests, and reports whether there may be more.
func (in *Inbox) step(ctx context.Context) (more bool, err error) {
	if err := in.hold(ctx); err != nil || len(in.held) == 0 {
		return false, err
	}
	batch := in.held[:min(in.width, len(in.held))]
	numbers := make([]int64, len(batch))
	for i, t := range batch {
		numbers[i] = t.Number
	}
	requests, err := in.Engine.ReadInbox(ctx, numbers, maxRequests, maxBytes)
	if err != nil {
		return false, err
	}
	chains, whole := split(batch, requests)
	in.adapt(whole, len(batch))
	if err := in.finish(ctx, in.submitHeld(ctx, chains)); err != nil {
		return false, err
	}
	return in.isMore || len(in.held) > 0, nil
}

// submitHeld submits chains, and goes on holding what is held meanwhile.
func (in *Inbox) submitHeld(ctx context.Context, chains []chain) outcome {
	held, done := slices.Clone(in.held), make(chan struct{})
	var extending sync.WaitGroup
	extending.Go(func() {
		tick := time.NewTicker(lease / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = in.extend(ctx, held) // else others may take it, and no harm is done
			case <-done:
				return
			}
		}
	})
	defer extending.Wait()
	defer close(done)
	return in.submit(ctx, chains)
}

// extend holds transactions for another lease.
func (in *Inbox) extend(ctx context.Context, held []job.InboxTransaction) error {
	return in.Engine.ChangeInbox(ctx, job.InboxChanges{
		Delay: delayed(held, func(job.InboxTransaction) time.Duration { return lease })})
}

// delayed returns transactions with delays.
func delayed(all []job.InboxTransaction,
	delay func(job.InboxTransaction) time.Duration) []job.InboxTransaction {
	all = slices.Clone(all)
	for i := range all {
		all[i].Delay = delay(all[i])
	}
	return all
}

// hold takes transactions if none is held, and holds those that were taken before for another lease
// when half of it is over.
func (in *Inbox) hold(ctx context.Context) (err error) {
	now := in.Elapsed()
	switch {
	case len(in.held) == 0:
		in.away = append(slices.Clone(in.foreign), contract.Refusing(in.Contracts)...)
		in.held, err = in.Engine.TakeInbox(ctx, maxTransactions, lease, in.away, leftFor)
		in.isMore = len(in.held) >= maxTransactions/2 // which is the most that come again
		slices.SortFunc(in.held, func(a, b job.InboxTransaction) int {
			return int(a.Number - b.Number)
		})
	case in.heldUntil-now < lease/2:
		err = in.extend(ctx, in.held)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	in.heldUntil = now + lease
	return nil
}

// chain is the requests of a transaction that were read.
type chain struct {
	transaction job.InboxTransaction
	requests    []job.InboxRequest
	isWhole     bool // none of those that wait was left out
}

// split returns the chains of a batch, and how many of them are whole.
func split(batch []job.InboxTransaction, requests []job.InboxRequest) (chains []chain, whole int) {
	bytes := 0
	for i := range requests {
		bytes += len(requests[i].Body)
	}
	isCut := len(requests) == maxRequests || bytes >= maxBytes
	for _, t := range batch {
		n := 0
		for n < len(requests) && requests[n].Transaction == t.Number {
			n++
		}
		one := chain{transaction: t, requests: requests[:n], isWhole: !isCut || n < len(requests)}
		if one.isWhole {
			whole++
		}
		chains, requests = append(chains, one), requests[n:]
	}
	return chains, whole
}

// adapt chooses how many transactions are read the next time: more than fill a batch cost reads of
// requests that are read again.
func (in *Inbox) adapt(whole, of int) {
	if whole < of {
		in.width = max(1, whole)
		return
	}
	in.width = min(2*in.width, maxTransactions)
}

// finish stores what has become of chains in one transaction: refusals, and the chains that wait.
// It gives up those of which nothing is left to read.
func (in *Inbox) finish(ctx context.Context, done outcome) error {
	if len(done.marks)+len(done.empty)+len(done.delayed) > 0 {
		if err := in.Engine.ChangeInbox(ctx, job.InboxChanges{Mark: done.marks, End: done.empty,
			Delay: delayed(done.delayed, delay)}); err != nil {
			return err
		}
		in.report(done.marks)
		in.reportUnserved(done.unserved)
	}
	in.held = slices.DeleteFunc(in.held, func(t job.InboxTransaction) bool {
		return done.over[t.Number]
	})
	for i := range in.held {
		t := &in.held[i]
		if _, goesOn := done.over[t.Number]; goesOn {
			t.Tries, t.IsNew = 0, true
		}
	}
	return nil
}

// delay returns how long a transaction waits that could not be submitted.
func delay(t job.InboxTransaction) time.Duration {
	const maxPause = 30 * time.Second
	if t.Tries == 0 { // for another node
		return 0
	}
	return min(time.Second<<min(t.Tries-1, 10), maxPause)
}

// release lets other nodes have what this one has taken.
func (in *Inbox) release(ctx context.Context) {
	if len(in.held) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_ = in.Engine.ChangeInbox(ctx, job.InboxChanges{
		Delay: delayed(in.held, func(job.InboxTransaction) time.Duration { return 0 })})
}
