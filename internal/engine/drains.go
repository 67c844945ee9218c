package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// A worker or a node that is drained gets no further jobs, and what it executes goes on. Drains are
// records by name, in the memory of each node as the settings of queues are: SetDrain announces a
// change, and Refresh takes in what was missed. A claim that waits for a drained worker ends.

// DrainKind is what a drain is about.
type DrainKind string

// The kinds of drains. One of a node is for its local workers.
const (
	DrainNode   DrainKind = "node"
	DrainWorker DrainKind = "worker"
)

// key is the key of a drain by name.
func (k DrainKind) key(name string) string { return string(k) + "/" + name }

const (
	drainKind = "drain"
	// drainLife is how long a drain lasts unless it is ended (G-AD-13).
	drainLife = 24 * time.Hour
	// maxDrains bounds the drains that are read. Those beyond it are not in force.
	maxDrains = 10_000
)

// drainsHash is for the drains in announcements: no job type has the empty name.
var drainsHash = job.QueueHashOf("", "\x00drains")

// drains are the drains in force, and the claims that they end.
type drains struct {
	mu       sync.Mutex
	names    map[string]bool // by key
	read     int64           // the number of the read that has found them; 0: they were not read
	changed  chan struct{}   // closed with the next change
	watchers map[*drainWatcher]bool
}

// drainWatcher is a claim, or a local worker that makes some.
type drainWatcher struct {
	keys [2]string
	stop context.CancelFunc
}

func newDrains() *drains {
	return &drains{changed: make(chan struct{}), watchers: map[*drainWatcher]bool{}}
}

// drainKeys returns the drains that concern a worker.
func (e *Engine) drainKeys(worker string, local bool) [2]string {
	keys := [2]string{DrainWorker.key(worker)}
	if local {
		keys[1] = DrainNode.key(e.node)
	}
	return keys
}

func (d *drains) inForceLocked(keys [2]string) bool { return d.names[keys[0]] || d.names[keys[1]] }

// watch returns a context that ends with ctx, when one of the drains begins, and when stop is
// called. Where one is in force it has ended already.
func (d *drains) watch(ctx context.Context, keys [2]string) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inForceLocked(keys) {
		cancel()
		return ctx, cancel
	}
	w := &drainWatcher{keys, cancel}
	d.watchers[w] = true
	return ctx, func() {
		cancel()
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.watchers, w)
	}
}

// set puts the drains that a read has found in force in the place of those before, unless those are
// of a read that began later.
func (d *drains) set(names map[string]bool, read int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if read < d.read {
		return
	}
	d.names, d.read = names, read
	close(d.changed)
	d.changed = make(chan struct{})
	for w := range d.watchers {
		if d.inForceLocked(w.keys) {
			w.stop()
		}
	}
}

// inForce reports whether one of the drains is in force, and returns the channel that is closed
// with the next change.
func (d *drains) inForce(keys [2]string) (draining bool, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inForceLocked(keys), d.changed
}

// IsDraining reports whether a worker is given no further jobs.
func (e *Engine) IsDraining(kind DrainKind, name string) bool {
	draining, _ := e.drains.inForce([2]string{kind.key(name)})
	return draining
}

// IsNodeDraining reports whether this node is drained.
func (e *Engine) IsNodeDraining() bool { return e.IsDraining(DrainNode, e.node) }

// Node returns the name of this node.
func (e *Engine) Node() string { return e.node }

// AwaitServing waits until a local worker is not drained. The context that it returns is for the
// claims of the worker: it ends with ctx, when the worker or this node is drained, and when stop is
// called.
func (e *Engine) AwaitServing(ctx context.Context, worker string) (serving context.Context,
	stop func()) {
	keys := e.drainKeys(worker, true)
	e.loadDrainsOnce(ctx)
	for ctx.Err() == nil {
		draining, changed := e.drains.inForce(keys)
		if !draining {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return e.drains.watch(ctx, keys)
}

// ClaimRemote is Claim for a remote worker, which becomes one of Workers by it. draining says that
// the worker is drained and gets nothing more.
func (e *Engine) ClaimRemote(ctx context.Context, req ClaimRequest, agent string) (
	jobs []*job.Job, draining bool, err error) {
	if _, err := e.jobType(req.JobType); err != nil {
		return nil, false, err
	}
	polled := e.workers.polled(&req, agent)
	defer func() {
		polled(req.Wait > 0 && len(jobs) == 0 && errors.Is(ctx.Err(), context.Canceled))
	}()
	e.loadDrainsOnce(ctx)
	serving, stop := e.drains.watch(ctx, e.drainKeys(req.Worker, false))
	defer stop()
	if serving.Err() == nil {
		req.remote = true
		jobs, err = e.Claim(serving, req)
	}
	if err != nil || len(jobs) > 0 {
		return jobs, false, err
	}
	return nil, e.IsDraining(DrainWorker, req.Worker), nil
}

// SetDrain begins or ends a drain, and calls also in its transaction with whether it was in force.
// It is in force on this node at once and on the others when the announcement arrives, or with
// their next Refresh.
func (e *Engine) SetDrain(ctx context.Context, kind DrainKind, name string, draining bool,
	also func(w RecordWriter, was bool) error) error {
	err := e.ChangeRecords(ctx, drainKind, func(w RecordWriter) error {
		r := job.Record{Kind: drainKind, Key: kind.key(name), ExpiresAt: w.Now().Add(drainLife)}
		before, err := w.Record(drainKind, r.Key)
		if err != nil {
			return err
		}
		if draining {
			err = w.UpsertRecords(r)
		} else {
			err = w.DeleteRecords(drainKind, r.Key)
		}
		if err != nil {
			return err
		}
		return also(w, before != nil)
	})
	if err != nil {
		return err
	}
	e.store.Notify([]job.QueueHash{drainsHash})
	return e.loadDrains(ctx)
}

// loadDrains puts the drains of the store in force.
func (e *Engine) loadDrains(ctx context.Context) error {
	read := e.beginRead()
	return e.view(ctx, func(r reader) error { return e.storeDrains(r, read) })
}

// loadDrainsOnce loads the drains unless that has been done, so that a worker gets no job against a
// drain that is in force. Where the store does not answer, the claim that follows has its error.
func (e *Engine) loadDrainsOnce(ctx context.Context) {
	e.drains.mu.Lock()
	isRead := e.drains.read > 0
	e.drains.mu.Unlock()
	if !isRead {
		_ = e.loadDrains(ctx)
	}
}

// storeDrains puts the drains that a read finds in force.
func (e *Engine) storeDrains(r reader, read int64) error {
	records, err := recordView{r}.Records(drainKind, "", "", maxDrains)
	if err != nil {
		return err
	}
	names := make(map[string]bool, len(records))
	for i := range records {
		names[records[i].Key] = true
	}
	e.drains.set(names, read)
	return nil
}
