package engine

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// A feed publishes what happens to the jobs of all job types. An event that a subscription wants
// goes to the outbox, in the transaction in which it happens, beside the message that a contract
// may publish itself:
//
//	unit.record ─▶ Subscriptions.Wants ─▶ composeMessages: Subscriptions.Message ─▶ outbox
//
// The subscriptions are in the store and, as a copy, in the memory of each node, as the settings of
// queues are: without subscriptions a change costs nothing for the feed.

// Feed is what the engine needs to know of a feed.
type Feed struct {
	// JobType is the job type under which the messages are stored. It is registered where they are
	// published. The feed has no events of jobs of this type.
	JobType string
	// Read reads the subscriptions; nil is none.
	Read func(RecordReader) (Subscriptions, error)
}

// Subscriptions is the subscriptions as of one moment. Its methods must not block.
type Subscriptions interface {
	// Wants reports whether a change of a job goes to the outbox, and whether the message says
	// something of bodies that the change did not read. The job is as it was right after the
	// change, without these bodies.
	Wants(j *job.Job, ev job.Event) (wanted, readsBodies bool)
	// Message returns the body of the message about a change that is wanted. The job has all of its
	// bodies, or those that the change has set or read where Wants says that it needs no other.
	Message(j *job.Job, ev job.Event) []byte
	// EventBody returns the body of the message about what happened besides changes of jobs; nil
	// where no subscription wants it.
	EventBody(n FeedEvent) []byte
}

// FeedEvent is what happened, beside a change of a job.
type FeedEvent struct {
	Type    string // such as queue.paused
	JobType string
	Queue   string // of the job type; empty for none
	Subject string // what it is about: the events of a subject are in order
	At      time.Time
	Data    any // encoded as JSON
}

// SetFeed sets the feed. It must be called before the engine is used.
func (e *Engine) SetFeed(f Feed) { e.feed = f }

// ChangeFeed is ChangeQueue for the subscriptions: fn writes the records that Read reads. They are
// in force on this node at once, on others when the announcement arrives, or with their next
// Refresh.
func (e *Engine) ChangeFeed(ctx context.Context, jobType, queue string,
	fn func(RecordWriter, *job.QueueSettings) error) error {
	if err := e.ChangeQueue(ctx, jobType, queue, fn); err != nil {
		return err
	}
	e.store.Notify([]job.QueueHash{feedHash})
	return e.loadFeed(ctx)
}

// feedHash stands for the subscriptions in announcements: no job type has the empty name.
var feedHash = job.QueueHashOf("", "\x00feed")

// loadFeed loads the subscriptions, as other nodes may have changed them.
func (e *Engine) loadFeed(ctx context.Context) error {
	read := e.beginRead()
	return e.view(ctx, func(r reader) error { return e.storeSubscriptions(r, read) })
}

// storeSubscriptions keeps the subscriptions that a read finds.
func (e *Engine) storeSubscriptions(r reader, read int64) error {
	if e.feed.Read == nil {
		return nil
	}
	subscriptions, err := e.feed.Read(recordView{r})
	if err != nil {
		return err
	}
	e.subscriptions.keep(subscriptions, read)
	return nil
}

// loadSubscriptions gives a unit the subscriptions. The first unit of a node reads them, so that no
// event is missed.
func (e *Engine) loadSubscriptions(u *unit) error {
	if e.feed.Read == nil {
		return nil
	}
	if _, isRead := e.subscriptions.get(); !isRead {
		subscriptions, err := e.feed.Read(recordView{u.tx})
		if err != nil {
			return err
		}
		e.subscriptions.keep(subscriptions, 0)
	}
	u.subscriptions, _ = e.subscriptions.get()
	return nil
}

// isWanted reports whether a change goes to the feed, and whether its message needs all bodies.
func (u *unit) isWanted(j *job.Job, ev job.Event) (wanted, readsBodies bool) {
	if u.subscriptions == nil || j.ID.JobType == u.e.feed.JobType {
		return false, false
	}
	return u.subscriptions.Wants(j, ev)
}

// publishToFeed adds a message of the feed to the outbox. Its body says all that there is to say:
// the messages of a transaction differ in their bodies alone.
func (u *unit) publishToFeed(at time.Time, body []byte) {
	id := job.ID{JobType: u.e.feed.JobType}
	put(&u.after.outboxDirty, id.JobType, true)
	u.writes.Messages = append(u.writes.Messages, job.Message{JobID: id, At: at, Body: body})
}

// publishEvent publishes what happened besides changes of jobs, if a subscription wants it.
func (u *unit) publishEvent(n FeedEvent) {
	if u.subscriptions == nil {
		return
	}
	n.At = u.now
	if body := u.subscriptions.EventBody(n); body != nil {
		u.publishToFeed(n.At, body)
	}
}

// PublishEvent publishes what happens in the transaction of w, at its time, if a subscription wants
// it.
func (c recordChange) PublishEvent(n FeedEvent) { c.u.publishEvent(n) }

// The types of the events of queues.
const (
	QueuePausedEvent  = "queue.paused"
	QueueResumedEvent = "queue.resumed"
)

// publishPause publishes that a queue was paused or resumed.
func (u *unit) publishPause(was bool, q *job.QueueSettings) {
	if was == q.Paused {
		return
	}
	n := FeedEvent{Type: QueueResumedEvent, JobType: q.JobType, Queue: q.Queue,
		Subject: "queue " + q.JobType + "/" + q.Queue,
		Data: struct {
			Contract string `json:"contract"`
			Queue    string `json:"queue"`
			Paused   bool   `json:"paused"`
		}{q.JobType, q.Queue, q.Paused}}
	if q.Paused {
		n.Type = QueuePausedEvent
	}
	u.publishEvent(n)
}
