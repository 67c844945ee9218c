package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// workerMemory is how long a node remembers a remote worker that neither claims jobs nor sends
// anything about those it has.
const workerMemory = 5 * time.Minute

// The most remote workers that a node remembers, and the most queues of one worker.
const (
	maxKnownWorkers = 10_000
	maxKnownQueues  = 20
)

// Worker is what this node knows of a worker: a local one, or a remote one that has asked this node
// for jobs, or sent it a heartbeat or an outcome, within the last five minutes.
type Worker struct {
	JobType string
	Name    string
	Local   bool
	Queues  []string // none means all
	Slots   int      // of a local worker
	Agent   string   // the program of a remote worker, as it names itself
	// FirstSeen and LastSeen are how long ago this node first and last received a request of the
	// worker.
	FirstSeen time.Duration
	LastSeen  time.Duration
	// Succeeded and Failed are the attempts whose ends it has sent to this node.
	Succeeded int64
	Failed    int64
	// HasLeft says that a remote worker has given up its last claim while that waited, or has ended
	// a run and then asked for nothing, as one does that ends. Until it claims again it asks for
	// nothing.
	HasLeft bool
	waiting int // its claims that wait
	// hasFinished says that its last request was the outcome of a run, at finishedAt.
	hasFinished bool
	finishedAt  time.Duration
}

// reclaimTimeout is how soon a worker that has ended a run claims again, if it goes on: it has a
// slot free.
const reclaimTimeout = 10 * time.Second

// workers are the workers that a node knows. Its times are of the monotonic clock.
type workers struct {
	now func() time.Duration

	mu  sync.Mutex
	all map[workerKey]*Worker
}

type workerKey struct{ jobType, name string }

// workerReport records that a worker has sent a heartbeat or an outcome of a run.
type workerReport struct {
	workerKey
	succeeded, failed int64
}

func newWorkers(now func() time.Duration) *workers {
	return &workers{now: now, all: map[workerKey]*Worker{}}
}

// polled records a claim of a remote worker until the function that it returns is called, with
// whether the worker has canceled it.
func (k *workers) polled(req *ClaimRequest, agent string) (done func(wasCanceled bool)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.seenLocked(workerKey{req.JobType, req.Worker})
	if w == nil {
		return func(bool) {}
	}
	w.Agent = agent
	w.HasLeft, w.hasFinished = false, false
	w.waiting++
	if len(req.Queues) == 0 {
		w.Queues = nil
	}
	for _, q := range req.Queues {
		if len(w.Queues) < maxKnownQueues && !slices.Contains(w.Queues, q) {
			w.Queues = append(w.Queues, q)
		}
	}
	return func(wasCanceled bool) {
		k.mu.Lock()
		defer k.mu.Unlock()
		w.waiting--
		w.HasLeft = w.waiting == 0 && wasCanceled
		w.LastSeen = k.now()
	}
}

// seenLocked returns a worker that has just sent a request, nil where there are too many.
func (k *workers) seenLocked(key workerKey) *Worker {
	now := k.now()
	w := k.all[key]
	if w == nil {
		if len(k.all) >= maxKnownWorkers {
			k.forgetLocked(now)
		}
		if key.name == "" || len(k.all) >= maxKnownWorkers {
			return nil
		}
		w = &Worker{JobType: key.jobType, Name: key.name, FirstSeen: now}
		k.all[key] = w
	}
	w.LastSeen = now
	return w
}

// forgetLocked removes the remote workers that have sent no request for long.
func (k *workers) forgetLocked(now time.Duration) {
	for key, w := range k.all {
		if !w.Local && w.waiting == 0 && now-w.LastSeen >= workerMemory {
			delete(k.all, key)
		}
	}
}

// note takes in what workers have sent in a transaction.
func (k *workers) note(reports []workerReport) {
	if len(reports) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range reports {
		if w := k.seenLocked(r.workerKey); w != nil {
			w.Succeeded += r.succeeded
			w.Failed += r.failed
			w.hasFinished, w.finishedAt = r.succeeded+r.failed > 0, w.LastSeen
		}
	}
}

// AddLocalWorker makes a worker of this process one of Workers until the function that it returns
// is called.
func (e *Engine) AddLocalWorker(jobType, name string, queues []string, slots int) (remove func()) {
	k, key := e.workers, workerKey{jobType, name}
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all[key] = &Worker{JobType: jobType, Name: name, Local: true, Queues: queues, Slots: slots,
		FirstSeen: now, LastSeen: now}
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.all, key)
	}
}

// Workers returns the workers that this node knows, in no order. A local one, and one of which a
// claim waits, was seen just now.
func (e *Engine) Workers() []Worker {
	k, now := e.workers, e.workers.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgetLocked(now)
	all := make([]Worker, 0, len(k.all))
	for _, w := range k.all {
		known := *w
		known.Queues = slices.Clone(w.Queues)
		known.FirstSeen, known.LastSeen = now-w.FirstSeen, now-w.LastSeen
		hasStopped := w.hasFinished && w.waiting == 0 && now-w.finishedAt >= reclaimTimeout
		known.HasLeft = w.HasLeft || (!w.Local && hasStopped)
		if w.Local || w.waiting > 0 {
			known.LastSeen = 0
		}
		all = append(all, known)
	}
	return all
}

// noteWorker notes that the worker of a job has sent something about its run.
func (u *unit) noteWorker(j *job.Job, worker string, succeeded, failed int64) {
	key := workerKey{j.ID.JobType, worker}
	reports := u.after.workers
	if n := len(reports); n > 0 && reports[n-1].workerKey == key { // most often it is the same
		reports[n-1].succeeded += succeeded
		reports[n-1].failed += failed
		return
	}
	u.after.workers = append(reports, workerReport{key, succeeded, failed})
}

// noteFinished notes the worker that has ended a run, and how.
func (u *unit) noteFinished(j *job.Job, worker string, on job.Cause) {
	switch on {
	case job.Succeeded:
		u.noteWorker(j, worker, 1, 0)
	case job.Failed, job.FailedForGood:
		u.noteWorker(j, worker, 0, 1)
	}
}
