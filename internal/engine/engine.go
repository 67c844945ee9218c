// Package engine holds the verbs of Millrace: submit, claim, start, beat,
// finish, release, requeue, cancel, retry, remove, query. It owns every
// transaction, knows no contract by name and no database by kind.
//
// A contract hands in its Machine and a few rules (see Contract); from then on
// all its jobs live by the same code. Every change of a state goes through
// unit.move: the machine is asked, the row is changed under its lock, history,
// outbox, dead letters, counters, parents and dependents follow in the same
// transaction. What the machine does not hold is a Conflict.
//
// Callers that come at the same time are served by one transaction: see
// combiner. Every write of a worker names its run; one with an older run id
// changes nothing and gets RunLost.
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

// Contract is what the engine needs to know of a contract.
type Contract struct {
	Name    string
	Machine *job.Machine

	// History keeps an event for every change of state, Publish a message in
	// the outbox.
	History bool
	Publish bool
	// Graph allows dependencies between jobs. The machine says what happens to
	// a new job when they are Satisfied, and when Unsatisfiable.
	Graph bool
	// Searchable has Search find the jobs, whose priorities are then from
	// store.MinPriority to store.MaxPriority.
	Searchable bool

	// MaxRunning bounds the jobs leased at a time, over all nodes; 0 is no limit.
	MaxRunning int
	// MaxQueueSize bounds the jobs that are ready or wait to be tried again: more are
	// not submitted, and jobs that come due wait until there is room; 0 is no limit.
	MaxQueueSize int
	// Retention is how long a settled job is kept, DeadLetterRetention a dead letter;
	// 0 keeps for ever.
	Retention           time.Duration
	DeadLetterRetention time.Duration
	// MaxBytes bounds the sum of the sizes of the jobs: beyond it those settled are
	// removed, the oldest first; 0 is no bound. The children of a job that is removed
	// go with it. Pruned is told how many jobs were removed; nil tells nobody.
	MaxBytes int64
	Pruned   func(jobs int)

	// MaxLostAttempts is how many runs of a job may be lost, where the machine counts these
	// apart from those that failed; 0 is no limit. A job that is Retried may lose as many again.
	MaxLostAttempts int
	// RetryDelay says how long a job waits after the failure just counted, in the
	// state that led to; nil is no delay. It may be asked again.
	RetryDelay func(*job.Job) time.Duration
	// LostFailure is the Failure that a run leaves which nobody has ended; nil leaves the one there
	// is.
	LostFailure []byte
	// Body is what the contract adds to a message; nil adds nothing. It sees the
	// job with all its bodies as it was right after the change.
	Body func(*job.Job, job.Event) []byte
	// Moved is told of every change by one of the causes MovedOn after it is on
	// stable storage; nil tells nobody. It must not block.
	Moved   func([]Moved)
	MovedOn []job.Cause
}

// Moved is one change of a job that has happened.
type Moved struct {
	// Job is as it was right after the change. Of its bodies only the definition is sure
	// to be there, where the contract has a Body.
	Job  job.Job
	On   job.Cause
	From job.State
	To   job.State
	At   time.Time
	// when it was last changed before: a job that no worker has had then, since when it was in From
	Since  time.Time
	Reason string
}

// Failure is why a run ended badly; empty for every other change.
func (m *Moved) Failure() string {
	switch m.On {
	case job.Failed, job.FailedForGood:
		return cmp.Or(m.Reason, "the run failed")
	case job.Expired, job.ExpiredForGood:
		return cmp.Or(m.Reason, "the worker was lost")
	}
	return ""
}

// Config is what an engine is made of. All members but Log are needed.
type Config struct {
	Store     store.Store
	Contracts []Contract
	Node      string               // this process, unique among the nodes
	Random    func() [16]byte      // of cryptographic quality
	Monotonic func() time.Duration // a clock that never jumps, to know when the other does
	Log       *slog.Logger
}

// Engine runs the verbs.
type Engine struct {
	store        store.Store
	contracts    map[string]*Contract
	names        []string
	node         string
	random       func() [16]byte
	log          *slog.Logger
	hub          *hub
	guard        clockGuard
	pollInterval time.Duration // see pollInterval
	settings     atomic.Pointer[queueSettings]
	publishers   sync.Map // contracts, joined, to *outlet

	submits    *combiner[submitCall]
	claims     *combiner[claimCall]
	finishes   *combiner[finishCall]
	heartbeats *combiner[heartbeatCall]
}

// New makes an engine. Close ends it; the store stays open.
func New(c Config) (*Engine, error) {
	if c.Store == nil || c.Random == nil || c.Monotonic == nil || c.Node == "" {
		return nil, errors.New("engine: Store, Node, Random and Monotonic are needed")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{store: c.Store, contracts: map[string]*Contract{}, node: c.Node, random: c.Random,
		log: c.Log,
		hub: newHub(), guard: clockGuard{monotonic: c.Monotonic}, pollInterval: pollInterval}
	for _, contract := range c.Contracts {
		if contract.Name == "" || contract.Machine == nil || e.contracts[contract.Name] != nil {
			return nil, fmt.Errorf("engine: contract %q needs a name of its own and a machine",
				contract.Name)
		}
		if contract.Graph && !contract.waitsForDependencies() {
			return nil, fmt.Errorf(
				"engine: contract %q has a graph but no state in which a new job waits for others",
				contract.Name)
		}
		e.contracts[contract.Name] = &contract
		e.names = append(e.names, contract.Name)
	}
	e.submits = newCombiner(submitGroup, c.Store.Writers(), e.submitGroup)
	e.claims = newCombiner(claimGroup, c.Store.Writers(), e.claimGroup)
	e.finishes = newCombiner(runGroup, c.Store.Writers(), e.finishGroup)
	e.heartbeats = newCombiner(runGroup, c.Store.Writers(), e.heartbeatGroup)
	return e, nil
}

// waitsForDependencies reports whether the state a job begins in waits for dependencies.
func (c *Contract) waitsForDependencies() bool {
	first, _ := c.Machine.Next(job.StateNone, job.Submitted)
	_, well := c.Machine.Next(first.To, job.Satisfied)
	_, failed := c.Machine.Next(first.To, job.Unsatisfiable)
	return well && failed && c.Machine.Phase(first.To) == job.Waiting
}

// Close wakes everybody who waits for jobs; they come back empty-handed, as does
// who asks from then on. The other verbs go on.
func (e *Engine) Close() { e.hub.close() }

// Contracts returns the names of the contracts, in the order they were given.
func (e *Engine) Contracts() []string { return e.names }

// Listen takes in what other nodes announce, until ctx ends.
func (e *Engine) Listen(ctx context.Context) {
	e.store.Listen(ctx, func(hashes []job.QueueHash) {
		for _, l := range hashes {
			if l != settingsHash {
				e.hub.wake(l, wakeAll)
			} else if err := e.LoadQueues(ctx); err != nil {
				e.log.Log(ctx, outage.Level(slog.LevelWarn, err),
					"what another node has set for queues could not be read; it will be later",
					"error_message", err)
			}
		}
	})
}

// Ping reports whether the store answers.
func (e *Engine) Ping(ctx context.Context) error { return e.store.Ping(ctx) }

func (e *Engine) contract(name string) (*Contract, error) {
	c := e.contracts[name]
	if c == nil {
		return nil, &job.Error{Kind: job.NotFound, Op: "engine",
			Msg: fmt.Sprintf("there is no contract %q", name)}
	}
	return c, nil
}

// update runs fn in a transaction, writes what it gathered, and tells of it
// once it is on stable storage.
func (e *Engine) update(ctx context.Context, fn func(*unit) error) error {
	var u *unit
	waiting := e.guard.begin()
	defer e.guard.end(waiting)
	err := e.store.Update(ctx, func(tx store.Tx) error {
		u = newUnit(e, tx) // anew: fn may run again
		if message, by := e.guard.observe(u.now, waiting.since,
			e.guard.monotonic()); message != "" {
			level := slog.LevelWarn
			if message == messageStoreAway { // of which the store tells itself
				level = slog.LevelDebug
			}
			e.log.Log(ctx, level, message, "by", by)
		}
		e.guard.end(waiting)
		if err := e.loadSettings(u); err != nil {
			return err
		}
		if err := fn(u); err != nil {
			return err
		}
		return u.flush()
	})
	switch {
	case err == nil:
		e.notifyCommitted(u)
	case u == nil && job.IsKind(err, job.Unavailable): // not one that met its own trouble there
		e.guard.noteRefused(waiting)
	}
	return err
}

// notifyCommitted wakes whoever waits for what the unit made ready and reports the moves.
func (e *Engine) notifyCommitted(u *unit) {
	var hashes []job.QueueHash
	for q, n := range u.after.becameReady {
		hash := job.QueueHashOf(q.contract, q.queue)
		e.hub.wake(hash, n)
		e.hub.wake(anyQueueHash(q.contract), n)
		hashes = append(hashes, hash, anyQueueHash(q.contract))
	}
	for contract := range u.after.freedSlots {
		e.hub.wake(slotsHash(contract), wakeAll)
		hashes = append(hashes, slotsHash(contract))
	}
	if len(hashes) > 0 {
		e.store.Announce(hashes)
	}
	if u.after.sweepSoon {
		signal(e.hub.dueChanged)
	}
	for contract := range u.after.outboxDirty {
		e.signalPublishers(contract)
	}
	for name, moves := range u.after.moved {
		e.contracts[name].Moved(moves)
	}
}

// anyQueueHash is the lane of those who wait for any queue of a contract: no queue
// has the empty name.
func anyQueueHash(contract string) job.QueueHash { return job.QueueHashOf(contract, "") }

// slotsHash is the lane of everybody who waits for a contract: a limit left room. No
// queue has this name either, as the store keeps no NUL character.
func slotsHash(contract string) job.QueueHash { return job.QueueHashOf(contract, "\x00") }
