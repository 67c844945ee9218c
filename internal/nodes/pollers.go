package nodes

import (
	"slices"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// maxAsked bounds the queues of one record: those asked for last.
const maxAsked = 1000

// Asked is when a queue was last asked for on a node, by anybody and by remote workers. An empty
// name of a queue stands for all queues of the contract.
type Asked struct {
	Contract string    `json:"contract"`
	Queue    string    `json:"queue"`
	At       time.Time `json:"at"`
	RemoteAt time.Time `json:"remote_at,omitzero"`
	// Partial says that queues for which the node has local workers were left out.
	Partial bool `json:"partial,omitempty"`
}

// asked returns the queues that were asked for on this node, those asked for last first.
func (n *Node) asked(now time.Time) []Asked {
	known := n.Engine.Asked()
	all := make([]Asked, 0, min(len(known), maxAsked))
	for _, k := range known[:min(len(known), maxAsked)] {
		a := Asked{Contract: k.Contract, Queue: k.Queue, At: now.Add(-k.Ago),
			Partial: k.Partial}
		if k.ByRemote {
			a.RemoteAt = now.Add(-k.RemoteAgo)
		}
		all = append(all, a)
	}
	return all
}

// Pollers says who asks for the jobs of queues, over all nodes.
type Pollers struct {
	now   time.Time
	nodes []Info
	kept  engine.KeptAsked
}

// Pollers reads who asks for the jobs of a queue; the empty names mean all queues.
func (n *Node) Pollers(r engine.RecordReader, contract, queue string) (*Pollers, error) {
	all, err := n.read(r)
	if err != nil {
		return nil, err
	}
	kept, err := engine.ReadAsked(r, contract, queue)
	return &Pollers{now: r.Now(), nodes: all, kept: kept}, err
}

// PollersOf is Pollers of one queue.
func (n *Node) PollersOf(r engine.RecordReader, contract, queue string) (job.Pollers, error) {
	all, err := n.Pollers(r, contract, queue)
	if err != nil {
		return job.Pollers{}, err
	}
	return all.Of(contract, queue), nil
}

// Of returns who asks for the jobs of a queue. The local workers of a node that is drained ask for
// nothing, whatever they did before.
func (t *Pollers) Of(contract, queue string) job.Pollers {
	of := job.Pollers{LastAsked: t.kept.Of(contract, queue)}
	isRecent := func(at time.Time) bool { return t.now.Sub(at) < job.AskedRecently }
	for i := range t.nodes {
		n := &t.nodes[i]
		for _, a := range n.Asked {
			if a.Contract != contract || !n.includes(&a, queue) {
				continue
			}
			if a.At.After(of.LastAsked) {
				of.LastAsked = a.At
			}
			if n.Draining {
				a.At = a.RemoteAt
			}
			of.Asking = of.Asking || isRecent(a.At)
		}
		n.addWorkers(&of, contract, queue)
	}
	// A node that has stopped left nothing but what was kept.
	of.Asking = of.Asking || (len(of.DrainedNodes) == 0 && isRecent(of.LastAsked))
	return of
}

// includes reports whether a claim on the node asked for a queue.
func (i *Info) includes(a *Asked, queue string) bool {
	if a.Queue != "" {
		return a.Queue == queue
	}
	return !a.Partial || !slices.ContainsFunc(i.Workers, func(w Worker) bool {
		return w.Local && w.Contract == a.Contract && w.takes(queue)
	})
}

// takes reports whether a worker asks for a queue of its contract.
func (w *Worker) takes(queue string) bool {
	return len(w.Queues) == 0 || slices.Contains(w.Queues, queue)
}

// addWorkers adds the workers of a queue that a node knows.
func (i *Info) addWorkers(of *job.Pollers, contract, queue string) {
	for _, w := range i.Workers {
		if w.Contract != contract || !w.takes(queue) {
			continue
		}
		switch {
		case !w.Draining:
			of.Workers++
		case w.Local && i.Draining:
			if !slices.Contains(of.DrainedNodes, i.Name) {
				of.DrainedNodes = append(of.DrainedNodes, i.Name)
			}
		case !slices.Contains(of.DrainedWorkers, w.Name):
			of.DrainedWorkers = append(of.DrainedWorkers, w.Name)
		}
	}
}
