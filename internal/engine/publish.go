package engine

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

const (
	publishBatch   = 500
	feedBatch      = 25 // of the feed: the store is held for less long, see also maxYield
	publishTerm    = 5 * time.Second
	publishTimeout = publishTerm / 2 // for a batch: a term with less left is renewed first
)

// After a batch of the feed that took d, its publisher waits for d, and for d once more for each
// caller that the engine has meanwhile, but for maxYield at most: it yields to them as one of them
// would. So deliveries are made as fast as the store has time for, and jobs that use all of it lose
// little.
const (
	maxYield  = publishTerm / 4
	yieldStep = 2 * time.Millisecond // how often the callers are counted
)

// outboxPublisher publishes the messages of some job types. One that fails does not hold up
// another.
//
//	Publish ─▶ nextMessages ─▶ deliver ─▶ nextMessages ─▶ deliver ─▶ deleteMessages
//	           │ deletes what was delivered                (after a batch that is not full)
//	           │ renews the term, if little of it is left and there are messages
//	           └ reads the next batch
type outboxPublisher struct {
	jobTypes []string
	batch    int // how many messages are delivered together
	// leaderUntil is when the term of this node ends, by the store's clock, in microseconds since
	// 1970; 0 is never elected.
	leaderUntil atomic.Int64
	ready       chan struct{} // has a buffer of one
}

// publisher returns the publisher of the job types; none means all that publish.
func (e *Engine) publisher(jobTypes []string) *outboxPublisher {
	if len(jobTypes) == 0 {
		jobTypes = slices.DeleteFunc(slices.Clone(e.jobTypeNames), func(name string) bool {
			return !e.jobTypes[name].Publish
		})
	}
	batch := publishBatch
	if e.isFeed(jobTypes) {
		batch = feedBatch
	}
	found, _ := e.publishers.LoadOrStore(strings.Join(jobTypes, " "),
		&outboxPublisher{jobTypes: jobTypes, batch: batch, ready: make(chan struct{}, 1)})
	return found.(*outboxPublisher)
}

func (o *outboxPublisher) role() string { return "publish " + strings.Join(o.jobTypes, " ") }

// isPublishing reports whether this node is the one that publishes the messages of a job type.
func (e *Engine) isPublishing(jobType string, now time.Time) (is bool) {
	e.publishers.Range(func(_, found any) bool {
		o := found.(*outboxPublisher)
		is = slices.Contains(o.jobTypes, jobType) && o.leaderUntil.Load() > now.UnixMicro()
		return !is
	})
	return is
}

// signalPublishers signals the publishers of a job type that there are messages.
func (e *Engine) signalPublishers(jobType string) {
	e.publishers.Range(func(_, found any) bool {
		if o := found.(*outboxPublisher); slices.Contains(o.jobTypes, jobType) {
			signal(o.ready)
		}
		return true
	})
}

// Publish calls deliver with the messages of job types, none meaning all, oldest first and a batch
// at a time, and deletes each batch when deliver returns without an error. Of the same job types
// one node publishes at a time, so that the messages of a job stay in order; after a crash in
// between some are delivered again. Publish returns how many were delivered. Messages that come
// while the last batch is delivered are left to the next call, for which OutboxReady has a signal:
// its caller may let some gather.
func (e *Engine) Publish(ctx context.Context, deliver func(context.Context, []job.Message) error,
	jobTypes ...string) (n int, err error) {
	o := e.publisher(jobTypes)
	for delivered := []int64(nil); ; {
		started := e.guard.monotonic()
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
		isLast := len(batch) < o.batch
		if isLast {
			if err := e.deleteMessages(ctx, delivered); err != nil {
				return n, err
			}
			n += len(delivered)
		}
		if e.isFeed(jobTypes) {
			e.yield(ctx, e.guard.monotonic()-started)
		}
		if isLast {
			return n, nil
		}
	}
}

// deleteMessages deletes the messages that were delivered.
func (e *Engine) deleteMessages(ctx context.Context, delivered []int64) error {
	return e.update(ctx, func(u *unit) error {
		return u.tx.Apply(store.Changes{DeleteMessages: delivered})
	})
}

// isFeed reports whether the feed publishes under one of the job types.
func (e *Engine) isFeed(jobTypes []string) bool {
	return e.feed.Read != nil && slices.Contains(jobTypes, e.feed.JobType)
}

// yield waits after work in the background that took so long, see maxYield.
func (e *Engine) yield(ctx context.Context, took time.Duration) {
	tick := time.NewTicker(yieldStep)
	defer tick.Stop()
	for share, waited := time.Duration(0), time.Duration(0); share < took && waited < maxYield; {
		share += yieldStep / time.Duration(1+e.callers.Load())
		waited += yieldStep
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// nextMessages deletes the messages that were delivered and returns the next batch, none where
// another node publishes. An idle outbox costs no write.
func (e *Engine) nextMessages(ctx context.Context, o *outboxPublisher,
	delivered []int64) (batch []job.Message, err error) {
	var term time.Time
	err = e.update(ctx, func(u *unit) error {
		batch, term = nil, time.UnixMicro(o.leaderUntil.Load())
		if err := u.tx.Apply(store.Changes{DeleteMessages: delivered}); err != nil {
			return err
		}
		if term.Sub(u.now) < publishTimeout {
			waiting, err := u.tx.Messages(o.jobTypes, 1)
			if err != nil || len(waiting) == 0 {
				return err
			}
			elected, err := u.elect(o.role(), publishTerm)
			if err != nil || !elected {
				return err
			}
			term = u.now.Add(publishTerm)
		}
		var err error
		// The messages are read after the election, as the leader before may have published some.
		batch, err = u.tx.Messages(o.jobTypes, o.batch)
		return err
	})
	if err != nil {
		return nil, err
	}
	o.leaderUntil.Store(term.UnixMicro())
	return batch, nil
}

// Unpublished returns the IDs of the oldest message of the job types that is still to be
// published and of the newest message in the outbox; 0 where there is none.
func (e *Engine) Unpublished(ctx context.Context, jobTypes ...string) (
	oldest, newest int64, err error) {
	err = e.view(ctx, func(r reader) error {
		oldest = 0
		waiting, err := r.Messages(jobTypes, 1)
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

// signalWaiting signals the publishers that have messages in the outbox, and reports whether any
// message is there.
func (e *Engine) signalWaiting(r reader) (found bool, err error) {
	newest, err := r.NewestMessage()
	if err != nil || newest == 0 {
		return false, err
	}
	e.publishers.Range(func(_, found any) bool {
		o := found.(*outboxPublisher)
		var waiting []job.Message
		if waiting, err = r.Messages(o.jobTypes, 1); len(waiting) > 0 {
			signal(o.ready)
		}
		return err == nil
	})
	return true, err
}

// OutboxReady receives when there is a message of the job types to publish: when this node has
// committed one, when another node announces one, or when Refresh finds one.
func (e *Engine) OutboxReady(jobTypes ...string) <-chan struct{} {
	return e.publisher(jobTypes).ready
}

// ReleaseLeadership ends the term of this node, so that another one can publish for the job types
// at once. It is for a node that stops.
func (e *Engine) ReleaseLeadership(ctx context.Context, jobTypes ...string) error {
	o := e.publisher(jobTypes)
	o.leaderUntil.Store(0)
	return e.update(ctx, func(u *unit) error {
		_, err := u.elect(o.role(), 0)
		return err
	})
}
