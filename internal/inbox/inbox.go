package inbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
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
	notServed []string // of Known those that this node does not serve
	metrics   *metrics
	loop      outage.Loop

	// skipped is notServed, and the contracts that refused requests when those were claimed.
	skipped      []string
	claimed      []job.InboxTransaction // claimed, in their order
	claimedUntil time.Duration          // when the first lease of claimed ends, by Elapsed
	batchSize    int                    // how many transactions of claimed are read at a time
	isMore       bool                   // there may be more than were claimed

	running map[int64]*chain // of claimed, those that are being submitted
	ended   chan chainResult // of running; its buffer holds all of them
	steps   int
}

// New checks the config and registers the metrics. An error is a mistake in this program.
func New(c Config) (*Inbox, error) {
	if c.Engine == nil || c.Log == nil || c.Registry == nil || c.Elapsed == nil ||
		c.Retention <= 0 {
		return nil, errors.New("inbox: Engine, Log, Registry, Elapsed and Retention are required")
	}
	c.Engine.SetInboxRetention(c.Retention)
	in := &Inbox{Config: c, batchSize: maxTransactions, loop: outage.Loop{Log: c.Log, Name: "inbox"},
		running: map[int64]*chain{}, ended: make(chan chainResult, maxTransactions)}
	served := contract.Submitters(c.Contracts)
	for _, name := range c.Known {
		if !slices.Contains(served, name) {
			in.notServed = append(in.notServed, name)
		}
	}
	var err error
	in.metrics, err = newMetrics(c.Registry, c.Engine, c.Known)
	return in, err
}

// These bound what one step claims. Other nodes leave it to this one for the time of lease, so what
// a killed node has claimed waits for that long.
const (
	maxTransactions = 256
	maxRequests     = 500
	maxBytes        = 16 << 20
	lease           = 10 * time.Second
	// skipTimeout is how long a transaction that begins with a request which this node cannot
	// submit is left to other nodes. After that no node seems to serve it, and the log says so.
	skipTimeout = 5 * time.Second
)

// A step waits for the chains that it has started no longer than maxStepTime: those that take
// longer go on beside the next steps, which claim and submit what has come meanwhile. What all
// these chains have read is bounded by maxRunningRequests and maxRunningBytes. A step that has
// started none waits for something to do, no longer than maxIdleTime, so that leases are renewed in
// time. A chain that has gone on for maxChainTime starts no more of its requests: the results of
// those before are stored, and the rest is read again.
const (
	maxStepTime        = 50 * time.Millisecond
	maxIdleTime        = time.Second
	maxChainTime       = 2 * time.Second
	maxRunningRequests = 4 * maxRequests
	maxRunningBytes    = 4 * maxBytes
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

// step claims a batch of requests, starts to submit it, and stores what has become of the chains
// that have ended. It reports whether there may be more to do.
func (in *Inbox) step(ctx context.Context) (more bool, err error) {
	in.steps++
	if err := in.renewAndClaim(ctx); err != nil {
		return false, err
	}
	done, started := batchResult{finished: map[int64]bool{}}, 0
	if idle := in.idle(); len(idle) > 0 && !in.isBusy() {
		chains, err := in.read(ctx, idle[:min(in.batchSize, len(idle))])
		if err != nil {
			return false, err
		}
		started = in.start(ctx, chains, &done)
	}
	in.collect(&done, started)
	if err := in.finish(ctx, done); err != nil {
		return false, err
	}
	return in.isMore || len(in.claimed) > 0, nil
}

// idle returns the transactions that are claimed and not being submitted.
func (in *Inbox) idle() []job.InboxTransaction {
	return slices.DeleteFunc(slices.Clone(in.claimed), func(t job.InboxTransaction) bool {
		return in.running[t.Number] != nil
	})
}

// isBusy reports whether so much is being submitted that nothing more is read.
func (in *Inbox) isBusy() bool {
	requests, bytes := 0, 0
	for _, c := range in.running {
		requests, bytes = requests+len(c.requests), bytes+c.bytes
	}
	return requests >= maxRunningRequests || bytes >= maxRunningBytes
}

// read reads the requests of transactions.
func (in *Inbox) read(ctx context.Context, batch []job.InboxTransaction) ([]*chain, error) {
	numbers := make([]int64, len(batch))
	for i, t := range batch {
		numbers[i] = t.Number
	}
	requests, err := in.Engine.ReadInbox(ctx, numbers, maxRequests, maxBytes)
	if err != nil {
		return nil, err
	}
	chains, whole := split(batch, requests)
	in.adjustWidth(whole, len(batch))
	return chains, nil
}

// extend holds transactions for another lease.
func (in *Inbox) extend(ctx context.Context, claimed []job.InboxTransaction) error {
	return in.Engine.ChangeInbox(ctx, job.InboxChanges{
		Delay: delayed(claimed, func(job.InboxTransaction) time.Duration { return lease })})
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

// renewAndClaim extends the lease of what was claimed before when half of it has passed. It claims
// transactions if all that are claimed are being submitted, and gives back those that are not while
// it is busy.
func (in *Inbox) renewAndClaim(ctx context.Context) error {
	now := in.Elapsed()
	if len(in.claimed) > 0 && in.claimedUntil-now < lease/2 {
		if err := in.extend(ctx, in.claimed); err != nil {
			return err
		}
		in.claimedUntil = now + lease
	}
	limit := maxTransactions - len(in.claimed)
	switch {
	case in.isBusy():
		return in.returnIdle(ctx)
	case len(in.claimed) > len(in.running) || limit < maxTransactions/2:
		return nil
	}
	in.skipped = append(slices.Clone(in.notServed), contract.Refusing(in.Contracts)...)
	claimed, err := in.Engine.ClaimInbox(ctx, limit, lease, in.skipped, skipTimeout)
	if err != nil {
		return err
	}
	if len(in.claimed) == 0 {
		in.claimedUntil = now + lease
	}
	in.isMore = len(claimed) >= limit/2 // as at most half of limit may be claimed once more
	for _, t := range claimed {
		if in.running[t.Number] == nil { // else its lease had ended by the clock of the store
			in.claimed = append(in.claimed, t)
		}
	}
	slices.SortFunc(in.claimed, func(a, b job.InboxTransaction) int {
		return int(a.Number - b.Number)
	})
	return nil
}

// returnIdle lets other nodes have the transactions that are not being submitted.
func (in *Inbox) returnIdle(ctx context.Context) error {
	idle := in.idle()
	if len(idle) == 0 {
		return nil
	}
	changes := job.InboxChanges{Delay: delayed(idle, noDelay)}
	if err := in.Engine.ChangeInbox(ctx, changes); err != nil {
		return err
	}
	in.isMore = true
	in.claimed = slices.DeleteFunc(in.claimed, func(t job.InboxTransaction) bool {
		return in.running[t.Number] == nil
	})
	return nil
}

func noDelay(job.InboxTransaction) time.Duration { return 0 }

// chain is the requests of a transaction that were read.
type chain struct {
	transaction job.InboxTransaction
	requests    []job.InboxRequest
	bytes       int      // of their bodies
	isWhole     bool     // all requests of the transaction that wait were read
	skipped     []string // of Inbox, when its submission began
	step        int      // that has started it
}

// split returns the chains of a batch, and how many of them are whole.
func split(batch []job.InboxTransaction, requests []job.InboxRequest) (chains []*chain, whole int) {
	bytes := 0
	for i := range requests {
		bytes += len(requests[i].Body)
	}
	isCut := len(requests) == maxRequests || bytes >= maxBytes
	for _, t := range batch {
		n, size := 0, 0
		for n < len(requests) && requests[n].Transaction == t.Number {
			size += len(requests[n].Body)
			n++
		}
		// A copy, as one that takes long would keep all that was read with it.
		one := &chain{transaction: t, requests: slices.Clone(requests[:n]), bytes: size,
			isWhole: !isCut || n < len(requests)}
		if one.isWhole {
			whole++
		}
		chains, requests = append(chains, one), requests[n:]
	}
	return chains, whole
}

// adjustWidth chooses how many transactions are read the next time: requests that do not fit into a
// batch are read twice.
func (in *Inbox) adjustWidth(whole, of int) {
	if whole < of {
		in.batchSize = max(1, whole)
		return
	}
	in.batchSize = min(2*in.batchSize, maxTransactions)
}

// finish stores the results of chains in one transaction: refusals, and the chains that wait. It no
// longer holds transactions that have nothing left to read.
func (in *Inbox) finish(ctx context.Context, done batchResult) error {
	if len(done.updated)+len(done.empty)+len(done.delayed) > 0 {
		if err := in.Engine.ChangeInbox(ctx, job.InboxChanges{Update: done.updated, End: done.empty,
			Delay: delayed(done.delayed, delay)}); err != nil {
			return err
		}
		in.report(done.updated)
		in.reportUnserved(done.unserved)
	}
	in.claimed = slices.DeleteFunc(in.claimed, func(t job.InboxTransaction) bool {
		return done.finished[t.Number]
	})
	for i := range in.claimed {
		t := &in.claimed[i]
		if _, goesOn := done.finished[t.Number]; goesOn {
			t.FailedAttempts, t.IsNew = 0, true
		}
	}
	return nil
}

// delay returns how long a transaction waits that could not be submitted.
func delay(t job.InboxTransaction) time.Duration {
	const maxPause = 30 * time.Second
	if t.FailedAttempts == 0 { // for another node
		return 0
	}
	return min(time.Second<<min(t.FailedAttempts-1, 10), maxPause)
}

// release lets other nodes have what this one has claimed, when nothing of it is being submitted
// any longer.
func (in *Inbox) release(ctx context.Context) {
	for range len(in.running) {
		<-in.ended
	}
	clear(in.running)
	if len(in.claimed) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_ = in.Engine.ChangeInbox(ctx, job.InboxChanges{
		Delay: delayed(in.claimed, noDelay)})
}
