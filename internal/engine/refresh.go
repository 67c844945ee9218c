package engine

import (
	"context"
	"sync"
	"time"
)

// quietTime is for how long Refresh looks at nothing while the store stays as it is. What changes
// by time alone, and is not due at a time that NextDue knows, is noticed so much later: records
// that expire, such as drains.
const quietTime = 8 * time.Second

// versionTimeout bounds how long Refresh waits for the version of the store, before it looks.
const versionTimeout = 5 * time.Second

// Version is the state of a store at a moment.
type Version struct {
	// Commits differs from that of a version before if anything was committed in between.
	Commits string
	Now     time.Time // by the clock of the store
}

// quiet is the version of the store at the last look of Refresh that has found nothing to do.
type quiet struct {
	mu      sync.Mutex
	version Version // zero: the last look has found something, or there was none
}

// lasts reports whether there is nothing to do at a version: nothing was committed since the last
// look, nor was anything to become due.
func (q *quiet) lasts(at Version) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	since := at.Now.Sub(q.version.Now)
	return at.Commits != "" && at.Commits == q.version.Commits && since >= 0 && since < quietTime
}

func (q *quiet) set(v Version) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.version = v
}

// Refresh looks, in one view, at all that a node has to look at again and again. It signals
// DueChanged when something is due within DueHorizon, wakes the claims that may get a job, and
// takes in what announcements of other nodes would have brought, had they not been lost: settings
// of queues, drains, subscriptions, the inbox and messages in the outbox.
//
// It is to be called every SweepInterval from the first time on, as claims that wait then poll no
// more by themselves. One transaction for all of it makes an idle node cheap, and where the store
// has a version, that alone is asked for while nothing is to do (decision 0120).
func (e *Engine) Refresh(ctx context.Context) error {
	e.claimPoller.leaveToRefresh()
	before := e.guard.monotonic()
	version := e.askVersion(ctx, before)
	isQuiet := e.quiet.lasts(version)
	if isQuiet && !e.guard.jumpedBack() {
		return nil
	}
	found, err := e.look(ctx, before)
	if found || err != nil {
		version = Version{}
	}
	e.quiet.set(version)
	return err
}

// askVersion returns the version of the store, and shows the guard its clock. Zero is not known:
// Refresh then looks, and reports what is wrong with the store.
func (e *Engine) askVersion(ctx context.Context, before time.Duration) Version {
	if e.version == nil {
		return Version{}
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	v, err := e.version(ctx)
	if err != nil {
		return Version{}
	}
	message, by := e.guard.observeView(v.Now, before, e.guard.monotonic())
	e.logClock(ctx, message, by)
	return v
}

// look looks at everything in one view, and reports whether it has found something to do now or
// soon.
func (e *Engine) look(ctx context.Context, before time.Duration) (found bool, err error) {
	read := e.beginRead()
	waiting, wasPolled := e.hub.hashes(), false
	err = e.view(ctx, func(r reader) error {
		next, err := e.nextDue(ctx, r, before, quietTime+DueHorizon)
		if err != nil {
			return err
		}
		isDue := comesBy(r.Now().Add(DueHorizon), next.Waiting, next.Lease)
		if isDue || e.guard.jumpedBack() {
			signal(e.hub.dueChanged)
		}
		ready, err := e.wakeClaimable(r, waiting, next)
		if err != nil {
			return err
		}
		wasPolled = true
		announced, err := e.takeInAnnounced(r, read)
		isNear := !next.Waiting.IsZero() || !next.Lease.IsZero()
		found = isNear || next.RecordedEnds || ready || announced || e.guard.jumpedBack()
		return err
	})
	if err != nil {
		signal(e.hub.dueChanged) // whoever waits asks the store and gets its error
	}
	if !wasPolled {
		e.wakeAllOf(waiting)
	}
	return found, err
}

// comesBy reports whether one of the times is not after a time; a zero time never comes.
func comesBy(until time.Time, times ...time.Time) bool {
	for _, t := range times {
		if !t.IsZero() && !t.After(until) {
			return true
		}
	}
	return false
}

// OnRefresh has each view of Refresh call read, for what another part of the node has to compare
// with the store after every change. It must be called before the engine is used.
func (e *Engine) OnRefresh(read func(RecordReader)) { e.onRefresh = append(e.onRefresh, read) }

// takeInAnnounced reads what other nodes announce, and reports whether requests or messages wait.
func (e *Engine) takeInAnnounced(r reader, read int64) (found bool, err error) {
	if err := e.storeSettings(r, read); err != nil {
		return false, err
	}
	if err := e.storeDrains(r, read); err != nil {
		return false, err
	}
	if err := e.storeSubscriptions(r, read); err != nil {
		return false, err
	}
	for _, compare := range e.onRefresh {
		compare(recordView{r})
	}
	requests, err := e.signalInbox(r)
	if err != nil {
		return false, err
	}
	messages, err := e.signalWaiting(r)
	return requests || messages, err
}
