package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/store"
)

// JobType is what the engine needs to know of one type of jobs. A contract has one or more: its
// name is in the identities of its jobs.
type JobType struct {
	Name    string
	Machine *job.Machine

	// History keeps an event for every change of state, Publish a message in the outbox.
	History bool
	Publish bool
	// ByMessage says that a ready job is claimed when the message of its change has arrived.
	ByMessage bool
	// Graph allows dependencies between jobs. The machine says what happens to a new job when they
	// are Satisfied, and when Unsatisfiable.
	Graph bool
	// Searchable has Search find the jobs, which then have no priority or one from
	// store.MinPriority to store.MaxPriority.
	Searchable bool

	// MaxRunning bounds the jobs leased at a time, over all nodes; 0 is no limit.
	MaxRunning int
	// MaxQueueSize bounds the jobs that are ready or wait for a retry: further jobs are refused,
	// and jobs that come due stay waiting until there are fewer; 0 is no limit.
	MaxQueueSize int
	// Retention is how long a finished job is kept, DeadLetterRetention a dead letter; 0 keeps for
	// ever.
	Retention           time.Duration
	DeadLetterRetention time.Duration
	// MaxBytes bounds the sum of the sizes of the jobs: beyond it finished jobs are removed with
	// their children, the oldest first; 0 is no bound. OnPruned, if not nil, is called with the
	// number of jobs that were removed.
	MaxBytes int64
	OnPruned func(jobs int)

	// MaxLostAttempts is how many attempts of a job may be lost, where the machine counts these
	// apart from those that failed; 0 is no limit. A Retried job may lose as many once more.
	MaxLostAttempts int
	// LostFailure becomes the job's Failure when its lease expires; nil leaves that as it is.
	LostFailure []byte
	// MessageBody is what the contract adds to a message; nil adds nothing. It sees the job with
	// all its bodies as it was right after the change.
	MessageBody func(*job.Job, job.Event) []byte
	// OnTransitions, if not nil, is called with every change by one of the ReportedCauses after it
	// is on stable storage. It must not block.
	OnTransitions  func([]Transitioned)
	ReportedCauses []job.Cause
	// RecordedEnds says what the ends of runs lead to that workers have recorded themselves; nil
	// means that no worker may end a run so.
	RecordedEnds *RecordedEnds

	leavesDeadLetters bool // jobs leave dead letters
	keepsDeadJobs     bool // and stay stored
}

// Transitioned is one change of a job that has happened.
type Transitioned struct {
	// Job is the job right after the change. Of its bodies only the definition is sure to be
	// there, where the job type has a MessageBody.
	Job  job.Job
	On   job.Cause
	From job.State
	To   job.State
	At   time.Time
	// Since is when the job was last changed before; for a job that was not leased, that is when
	// it entered From.
	Since  time.Time
	Reason string
}

// Failure returns why an attempt failed or was lost; empty for every other change.
func (m *Transitioned) Failure() string {
	switch m.On {
	case job.Failed, job.FailedForGood:
		return cmp.Or(m.Reason, "the run failed")
	case job.Expired, job.ExpiredForGood:
		return cmp.Or(m.Reason, "the worker was lost")
	}
	return ""
}

// Config holds what an engine is made of. All members but Log, Inbox and Version are required.
type Config struct {
	Store     store.Store
	Node      string               // this process, unique among the nodes
	Random    func() [16]byte      // of cryptographic quality
	Monotonic func() time.Duration // a clock that never jumps, to notice when the store's does
	Log       *slog.Logger
	// Inbox returns the inbox of the Store in a transaction or view; nil: it has none.
	Inbox func(store.Reader) Inbox
	// Version returns the version of the Store at low cost; nil: it has none. It is no part of the
	// port, as Inbox is none.
	Version func(context.Context) (Version, error)
}

// Engine runs the verbs.
type Engine struct {
	store                store.Store
	jobTypes             map[string]*JobType
	jobTypeNames         []string
	node                 string
	random               func() [16]byte
	log                  *slog.Logger
	hub                  *hub
	guard                clockGuard
	claimPoller          *claimPoller
	startWakeups         startWakeups
	anyQueue             map[job.QueueHash]string // the job types by their anyQueueHash
	outboxes             map[job.QueueHash]string // the job types by their outboxHash
	settings             latest[*queueSettings]
	feed                 Feed
	subscriptions        latest[Subscriptions]
	reads                atomic.Int64 // that have begun, of settings, subscriptions and drains
	publishers           sync.Map     // from job types, joined, to *outboxPublisher
	drains               *drains
	workers              *workers
	lastPolls            lastPolls
	latencies            latencies
	activities           activities
	deadLetterGroupCache deadLetterGroupCache
	terms                terms
	inbox                inboxState
	inboxOf              func(store.Reader) Inbox // nil: there is none
	version              func(context.Context) (Version, error)
	quiet                quiet
	onRefresh            []func(RecordReader)    // see OnRefresh
	toVerify             atomic.Pointer[[]int64] // the jobs that VerifyEnds is for
	endsSearchTime       atomic.Int64            // how long CarryOutEnds sought the first end
	carriedOut           endCounts
	failedEnds           failedEnds

	callers          atomic.Int64 // of the combiners
	submits          *combiner[submitCall]
	finishingSubmits *combiner[submitCall] // of submissions that end runs
	inboxSubmits     *combiner[submitCall] // of submissions that take requests out of the inbox
	claims           *combiner[claimCall]
	finishes         *combiner[finishCall]
	heartbeats       *combiner[heartbeatCall]
}

// New makes an engine that has no job types yet. Close ends it; the store stays open.
func New(c Config) (*Engine, error) {
	if c.Store == nil || c.Random == nil || c.Monotonic == nil || c.Node == "" {
		return nil, errors.New("engine: Store, Node, Random and Monotonic are required")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		store:       c.Store,
		jobTypes:    map[string]*JobType{},
		node:        c.Node,
		random:      c.Random,
		log:         c.Log,
		hub:         newHub(),
		guard:       clockGuard{monotonic: c.Monotonic},
		claimPoller: newClaimPoller(),
		drains:      newDrains(),
		workers:     newWorkers(c.Monotonic),
		lastPolls:   lastPolls{now: c.Monotonic, first: make(chan struct{}, 1)},
		anyQueue:    map[job.QueueHash]string{},
		outboxes:    map[job.QueueHash]string{},
		inbox:       inboxState{ready: make(chan struct{}, 1)},
		inboxOf:     c.Inbox,
		version:     c.Version,
	}
	all := &transactions{writers: c.Store.Writers()}
	e.submits = newCombiner(maxSubmitGroup, newDepth(all), &e.callers, e.submitGroup)
	e.finishingSubmits = newCombiner(maxSubmitGroup, e.submits.depth, &e.callers, e.submitGroup)
	e.inboxSubmits = newCombiner(maxSubmitGroup, newDepth(&transactions{writers: 1}), &e.callers,
		e.inboxGroup) // one at a time: in order
	e.claims = newCombiner(maxClaimGroup, newDepth(all), &e.callers, e.claimGroup)
	e.finishes = newCombiner(maxRunGroup, newDepth(all), &e.callers, e.finishGroup)
	e.heartbeats = newCombiner(maxRunGroup, newDepth(all), &e.callers, e.heartbeatGroup)
	return e, nil
}

// Register adds job types. It must be called before the engine is used: a contract gets the engine
// when it is built, and the engine the descriptions of its jobs from it.
func (e *Engine) Register(types ...JobType) error {
	for _, t := range types {
		if t.Name == "" || t.Machine == nil || e.jobTypes[t.Name] != nil {
			return fmt.Errorf("engine: job type %q needs a name of its own and a machine", t.Name)
		}
		if t.Graph && !t.waitsForDependencies() {
			return fmt.Errorf(
				"engine: job type %q has a graph but no state in which a new job waits for others",
				t.Name)
		}
		t.leavesDeadLetters, t.keepsDeadJobs = t.Machine.LeavesDeadLetters()
		e.jobTypes[t.Name] = &t
		e.jobTypeNames = append(e.jobTypeNames, t.Name)
		e.anyQueue[anyQueueHash(t.Name)] = t.Name
		e.outboxes[outboxHash(t.Name)] = t.Name
	}
	return nil
}

// waitsForDependencies reports whether the state a job begins in waits for dependencies.
func (t *JobType) waitsForDependencies() bool {
	first, _ := t.Machine.Next(job.StateNone, job.Submitted)
	_, satisfied := t.Machine.Next(first.To, job.Satisfied)
	_, unsatisfiable := t.Machine.Next(first.To, job.Unsatisfiable)
	return satisfied && unsatisfiable && t.Machine.Phase(first.To) == job.Waiting
}

// hasMessageBody reports whether the messages of the job type have a body.
func (t *JobType) hasMessageBody() bool { return t.Publish && t.MessageBody != nil }

// Close ends all claims that wait; they return no jobs, as does every claim from then on. The
// other verbs go on.
func (e *Engine) Close() {
	e.hub.close()
	e.claimPoller.stop()
	e.startWakeups.close()
}

// JobTypes returns the names of the job types, in the order they were registered.
func (e *Engine) JobTypes() []string { return e.jobTypeNames }

// Listen takes in what other nodes announce, until ctx ends.
func (e *Engine) Listen(ctx context.Context) {
	e.store.Listen(ctx, func(hashes []job.QueueHash) {
		for _, hash := range hashes {
			if jobType, isOutbox := e.outboxes[hash]; isOutbox {
				e.signalPublishers(jobType)
				continue
			}
			switch hash {
			case endsHash:
				signal(e.hub.endsRecorded)
			case settingsHash:
				e.logUnloaded(ctx, "queue settings", e.LoadQueues(ctx))
			case drainsHash:
				e.logUnloaded(ctx, "drains", e.loadDrains(ctx))
			case inboxHash:
				signal(e.inbox.ready)
			case feedHash:
				e.logUnloaded(ctx, "the subscriptions of events", e.loadFeed(ctx))
			default:
				e.hub.wake(hash, wakeAll)
			}
		}
	})
}

// logUnloaded logs that what another node has announced could not be loaded. A node that stops logs
// nothing.
func (e *Engine) logUnloaded(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		e.log.Log(ctx, outage.Level(slog.LevelWarn, err),
			"changes by another node could not be loaded; the node tries again",
			"changed", what, "error_message", err)
	}
}

// Ping reports whether the store answers.
func (e *Engine) Ping(ctx context.Context) error { return e.store.Ping(ctx) }

func (e *Engine) jobType(name string) (*JobType, error) {
	t := e.jobTypes[name]
	if t == nil {
		return nil, &job.Error{Kind: job.NotFound, Op: "engine",
			Msg: fmt.Sprintf("there is no job type %q", name)}
	}
	return t, nil
}

// anyQueueHash stands for all queues of a job type: claims that name no queue wait for it. No queue
// has the empty name.
func anyQueueHash(jobType string) job.QueueHash { return job.QueueHashOf(jobType, "") }

// slotsHash stands for the limits of a job type: all its waiting claims wait for it, as a free slot
// may serve any of them. No queue has this name, as the store keeps no NUL character.
func slotsHash(jobType string) job.QueueHash { return job.QueueHashOf(jobType, "\x00") }

// outboxHash stands for the outbox of a job type: the node that publishes it waits for it.
func outboxHash(jobType string) job.QueueHash {
	return job.QueueHashOf(jobType, "\x00outbox")
}
