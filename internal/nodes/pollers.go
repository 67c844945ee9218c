package nodes

import (
	"cmp"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// maxPolled bounds the queues of one record: those that were polled last.
const maxPolled = 1000

// PolledQueue is when a queue was last polled on a node, by all workers and by remote ones. An
// empty name of a queue stands for all queues of the job type.
type PolledQueue struct {
	JobType  string    `json:"contract"`
	Queue    string    `json:"queue"`
	At       time.Time `json:"at"`
	RemoteAt time.Time `json:"remote_at,omitzero"`
	// Partial says that queues for which the node has local workers were left out.
	Partial bool `json:"partial,omitempty"`
}

// polledQueues returns the queues that were polled on this node, the latest first.
func (n *Node) polledQueues(now time.Time) []PolledQueue {
	known := n.Engine.PolledQueues()
	all := make([]PolledQueue, 0, min(len(known), maxPolled))
	for _, k := range known[:min(len(known), maxPolled)] {
		a := PolledQueue{JobType: k.JobType, Queue: k.Queue, At: now.Add(-k.Ago),
			Partial: k.Partial}
		if k.ByRemote {
			a.RemoteAt = now.Add(-k.RemoteAgo)
		}
		all = append(all, a)
	}
	return all
}

// Pollers are the workers that poll queues, over all nodes.
type Pollers struct {
	now     time.Time
	saved   engine.SavedPolls
	polled  map[queueKey][]polledOn
	workers map[queueKey][]workerOn
}

// queueKey names a queue, or with an empty name all queues of a job type.
type queueKey struct{ jobType, queue string }

// polledOn is a queue with the node on which it was polled.
type polledOn struct {
	node *Info
	PolledQueue
}

// workerOn is a worker of a node. index is its number among all workers.
type workerOn struct {
	node  *Info
	index int
	*Worker
}

// Pollers reads which workers poll a queue; the empty names mean all queues.
func (n *Node) Pollers(r engine.RecordReader, jobType, queue string) (*Pollers, error) {
	all, err := n.read(r)
	if err != nil {
		return nil, err
	}
	saved, err := engine.ReadSavedPolls(r, jobType, queue)
	t := &Pollers{now: r.Now(), saved: saved, polled: map[queueKey][]polledOn{},
		workers: map[queueKey][]workerOn{}}
	index := 0
	for i := range all {
		n := &all[i]
		for _, a := range n.Polled {
			key := queueKey{a.JobType, a.Queue}
			t.polled[key] = append(t.polled[key], polledOn{n, a})
		}
		for i := range n.Workers {
			index++
			t.addWorker(workerOn{n, index, &n.Workers[i]})
		}
	}
	return t, err
}

// silentFor is how long a worker that counts as one that asks for jobs sends no request. One
// that waits for them asks every 30 s.
const silentFor = time.Minute

// IsSilent reports whether a remote worker has sent no request for a minute, or has left. It
// may run a job whose lease is long.
func (w *Worker) IsSilent(now time.Time) bool {
	return !w.Local && (w.HasLeft || now.Sub(w.LastSeen) >= silentFor)
}

// addWorker notes the queues of a worker that asks for jobs, or would if it were not drained.
func (t *Pollers) addWorker(w workerOn) {
	if w.IsSilent(t.now) && !w.Draining {
		return
	}
	queues := w.Queues
	if len(queues) == 0 {
		queues = []string{""}
	}
	for i, queue := range queues {
		if key := (queueKey{w.JobType, queue}); !slices.Contains(queues[:i], queue) {
			t.workers[key] = append(t.workers[key], w)
		}
	}
}

// PollersOf is Pollers of one queue.
func (n *Node) PollersOf(r engine.RecordReader, jobType, queue string) (job.Pollers, error) {
	all, err := n.Pollers(r, jobType, queue)
	if err != nil {
		return job.Pollers{}, err
	}
	return all.Of(jobType, queue), nil
}

// Of returns which workers poll a queue. The local workers of a node that is drained poll nothing,
// whatever they did before.
func (t *Pollers) Of(jobType, queue string) job.Pollers {
	of := job.Pollers{LastPolled: t.saved.Of(jobType, queue)}
	isRecent := func(at time.Time) bool { return t.now.Sub(at) < job.PolledRecently }
	keys := []queueKey{{jobType, queue}, {jobType, ""}}
	if queue == "" {
		keys = keys[1:]
	}
	var workers []workerOn
	for _, key := range keys {
		workers = append(workers, t.workers[key]...)
		for _, a := range t.polled[key] {
			if !a.node.includes(&a.PolledQueue, queue) {
				continue
			}
			if a.At.After(of.LastPolled) {
				of.LastPolled = a.At
			}
			if a.node.Draining {
				a.At = a.RemoteAt
			}
			of.Asking = of.Asking || isRecent(a.At)
		}
	}
	addWorkers(&of, workers)
	// A node that has stopped left nothing but what was saved.
	of.Asking = of.Asking || (len(of.DrainedNodes) == 0 && isRecent(of.LastPolled))
	return of
}

// includes reports whether a claim on the node polled a queue.
func (i *Info) includes(a *PolledQueue, queue string) bool {
	if a.Queue != "" {
		return a.Queue == queue
	}
	return !a.Partial || !slices.ContainsFunc(i.Workers, func(w Worker) bool {
		return w.Local && w.JobType == a.JobType && w.takes(queue)
	})
}

// takes reports whether a worker polls a queue of its job type.
func (w *Worker) takes(queue string) bool {
	return len(w.Queues) == 0 || slices.Contains(w.Queues, queue)
}

// maxNamed is how many workers of a queue are named.
const maxNamed = 3

// addWorkers adds the workers of a queue.
func addWorkers(of *job.Pollers, workers []workerOn) {
	slices.SortFunc(workers, func(a, b workerOn) int { return cmp.Compare(a.index, b.index) })
	for _, w := range workers {
		switch {
		case !w.Draining:
			of.Workers++
			if len(of.Names) < maxNamed && !slices.Contains(of.Names, w.Name) {
				of.Names = append(of.Names, w.Name)
			}
		case w.Local && w.node.Draining:
			if !slices.Contains(of.DrainedNodes, w.node.Name) {
				of.DrainedNodes = append(of.DrainedNodes, w.node.Name)
			}
		case !slices.Contains(of.DrainedWorkers, w.Name):
			of.DrainedWorkers = append(of.DrainedWorkers, w.Name)
		}
	}
}
