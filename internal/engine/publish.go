package engine

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/job"
)

const (
	publishBatch   = 500
	publishTerm    = 5 * time.Second
	publishTimeout = publishTerm / 2 // for a batch: a term with less left is renewed first
)

// outlet is where the messages of some contracts leave. What holds one up holds up
// no other.
type outboxPublisher struct {
	contracts []string
	// until when this node publishes here, by the store's clock, in microseconds since 1970
	leaderUntil atomic.Int64
	ready       chan struct{} // holds one nudge
}

// outlet returns that of the contracts; none means all that publish.
func (e *Engine) publisher(contracts []string) *outboxPublisher {
	if len(contracts) == 0 {
		contracts = slices.DeleteFunc(slices.Clone(e.names), func(name string) bool {
			return !e.contracts[name].Publish
		})
	}
	found, _ := e.publishers.LoadOrStore(strings.Join(contracts, " "),
		&outboxPublisher{contracts: contracts, ready: make(chan struct{}, 1)})
	return found.(*outboxPublisher)
}

func (o *outboxPublisher) electionName() string {
	return "publish " + strings.Join(o.contracts, " ")
}

// signalPublishers nudges whoever publishes the messages of a contract.
func (e *Engine) signalPublishers(contract string) {
	e.publishers.Range(func(_, found any) bool {
		if o := found.(*outboxPublisher); slices.Contains(o.contracts, contract) {
			signal(o.ready)
		}
		return true
	})
}

// Publish hands the messages of contracts, none meaning all, to deliver, oldest
// first and a batch at a time, and removes each batch when it returns without
// error. For the same contracts one node does it at a time, so that messages of a
// job stay in order; a crash in between delivers some again. It reports how many
// were delivered.
func (e *Engine) Publish(ctx context.Context, deliver func(context.Context, []job.Message) error,
	contracts ...string) (n int, err error) {
	o := e.publisher(contracts)
	for delivered := []int64(nil); ; {
		batch, err := e.nextMessages(ctx, o, delivered)
		if err != nil {
			return n, err
		}
		n += len(delivered)
		if len(batch) == 0 {
			return n, nil
		}
		limited, cancel := context.WithTimeout(ctx, publishTimeout)
		err = deliver(limited, batch)
		cancel()
		if err != nil {
			return n, err
		}
		delivered = make([]int64, len(batch))
		for i, m := range batch {
			delivered[i] = m.ID
		}
	}
}

// nextMessages removes the messages that were delivered and returns the next
// batch, none where another node delivers. An idle outbox costs no write.
func (e *Engine) nextMessages(ctx context.Context, o *outboxPublisher,
	delivered []int64) (batch []job.Message, err error) {
	var term time.Time
	err = e.update(ctx, func(u *unit) error {
		batch, term = nil, time.UnixMicro(o.leaderUntil.Load())
		if err := u.tx.DeleteMessages(delivered); err != nil {
			return err
		}
		if term.Sub(u.now) < publishTimeout {
			waiting, err := u.tx.Messages(o.contracts, 1)
			if err != nil || len(waiting) == 0 {
				return err
			}
			elected, err := u.tx.Elect(o.electionName(), e.node, u.now.Add(publishTerm))
			if err != nil || !elected {
				return err
			}
			term = u.now.Add(publishTerm)
		}
		var err error
		// after the election: who had the term before may have delivered some since
		batch, err = u.tx.Messages(o.contracts, publishBatch)
		return err
	})
	if err == nil {
		o.leaderUntil.Store(term.UnixMicro())
	}
	return batch, err
}

// Unpublished returns the IDs of the oldest message of the contracts that is still to
// be published and of the newest message in the outbox; 0 where there is none.
func (e *Engine) Unpublished(ctx context.Context, contracts ...string) (
	oldest, newest int64, err error) {
	err = e.view(ctx, func(r reader) error {
		oldest = 0
		waiting, err := r.Messages(contracts, 1)
		if err != nil {
			return err
		}
		if len(waiting) > 0 {
			oldest = waiting[0].ID
		}
		newest, err = r.NewestMessage()
		return err
	})
	return oldest, newest, err
}

// OutboxReady tells when there is a message of the contracts to publish.
func (e *Engine) OutboxReady(contracts ...string) <-chan struct{} {
	return e.publisher(contracts).ready
}

// ReleaseLeadership lets another node publish for the contracts at once: it is for a node that
// stops.
func (e *Engine) ReleaseLeadership(ctx context.Context, contracts ...string) error {
	o := e.publisher(contracts)
	o.leaderUntil.Store(0)
	return e.update(ctx, func(u *unit) error {
		_, err := u.tx.Elect(o.electionName(), e.node, u.now)
		return err
	})
}
