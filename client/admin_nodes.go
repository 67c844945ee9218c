package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// AdminWorker is a worker as one node knows it. One that talks to several nodes, or works for
// several contracts, is an entry for each (G-AD-13).
type AdminWorker struct {
	// Name is the name that its jobs show, and Node the node that knows it.
	Name string `json:"name"`
	Node string `json:"node"`
	// Kind is "process" for one of the node's own, else "outside".
	Kind     string `json:"kind"`
	Contract string `json:"contract"`
	// Queues are those that it asks for; none means all.
	Queues []string `json:"queues"`
	// Running are the numbers of the jobs that it executes.
	Running []int64 `json:"running"`
	// Slots is how many jobs it executes at once; nil where the server does not know that.
	Slots *int `json:"slots"`
	// FirstSeen and LastSeen are when the node heard of it first and last, in UTC.
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
	// Succeeded and Failed are the attempts that it has ended on this node.
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	// Version is that of its node, or how its program names itself; empty where it does not.
	Version string `json:"version"`
	// Draining says that it is given no further jobs.
	Draining bool `json:"draining"`
	// Gone says that nothing was heard of it for a minute and that it runs nothing: most likely it
	// has ended.
	Gone bool `json:"gone"`
}

// AdminNode is a node as it wrote last that it is (AD-042).
type AdminNode struct {
	// Name is another one after each start.
	Name    string `json:"name"`
	Version string `json:"version"`
	Address string `json:"address"`
	// StartedAt and LastSeen are in UTC. A node writes every five seconds.
	StartedAt time.Time `json:"started_at"`
	LastSeen  time.Time `json:"last_seen"`
	Draining  bool      `json:"draining"`
	Contracts []string  `json:"contracts"`
	// LeaderRoles are the roles in which it is the leader.
	LeaderRoles []string `json:"duties"`
	Goroutines  int      `json:"goroutines"`
	// Memory is in bytes.
	Memory int64 `json:"memory"`
	// OpenFiles is nil where the system does not show it.
	OpenFiles *int           `json:"open_files"`
	Store     AdminNodePart  `json:"store"`
	Stream    *AdminNodePart `json:"stream"`
	Objects   *AdminNodePart `json:"objects"`
}

// AdminNodePart is something that a node depends on.
type AdminNodePart struct {
	// Kind is what it is, such as "postgres", and State "ok" or "failing".
	Kind  string `json:"kind"`
	State string `json:"state"`
	// LatencyP95 is that of the transactions of the last five seconds, in seconds; nil for none.
	LatencyP95 *float64 `json:"latency_p95"`
	// Pool is nil where it has none, as SQLite.
	Pool *AdminNodePool `json:"pool"`
}

// AdminNodePool is how the connections of a node to its store are used.
type AdminNodePool struct {
	InUse int `json:"in_use"`
	Open  int `json:"open"`
	Max   int `json:"max"`
}

// Workers iterates over the workers of all nodes, by name (AD-040): those of the nodes, and those
// that have asked for jobs or sent a heartbeat within the last five minutes. What other nodes know
// is up to five seconds old. It ends with the first error.
func (a *Admin) Workers(ctx context.Context) iter.Seq2[AdminWorker, error] {
	return adminPages[AdminWorker](ctx, a, "admin workers", "/admin/v1/workers", nil, 500)
}

// Nodes iterates over the nodes, by name (AD-042). It ends with the first error.
func (a *Admin) Nodes(ctx context.Context) iter.Seq2[AdminNode, error] {
	return adminPages[AdminNode](ctx, a, "admin nodes", "/admin/v1/nodes", nil, 500)
}

// DrainWorker gives a worker no further jobs, on all nodes within two seconds, until it is resumed
// or for 24 hours (AD-041). A worker of this package finishes what it has and ends.
//
// Errors: [ErrNotFound] where no node knows the name. Repeating is safe.
func (a *Admin) DrainWorker(ctx context.Context, name string) error {
	return a.changeDrain(ctx, "admin drain worker", "workers", name, "drain")
}

// ResumeWorker ends a drain.
//
// Errors: those of [Admin.DrainWorker].
func (a *Admin) ResumeWorker(ctx context.Context, name string) error {
	return a.changeDrain(ctx, "admin resume worker", "workers", name, "resume")
}

// DrainNode makes a node not ready and gives its own workers no further jobs, within two seconds
// (AD-042). What they execute goes on.
//
// Errors: [ErrNotFound] where there is no such node. Repeating is safe.
func (a *Admin) DrainNode(ctx context.Context, name string) error {
	return a.changeDrain(ctx, "admin drain node", "nodes", name, "drain")
}

// ResumeNode ends the drain of a node.
//
// Errors: those of [Admin.DrainNode].
func (a *Admin) ResumeNode(ctx context.Context, name string) error {
	return a.changeDrain(ctx, "admin resume node", "nodes", name, "resume")
}

// changeDrain begins or ends a drain.
func (a *Admin) changeDrain(ctx context.Context, op, list, name, verb string) error {
	if err := checkName("name", name); err != nil {
		return invalid(op, "%v", err)
	}
	_, err := adminCall[struct{}](ctx, a, call{op: op, method: http.MethodPost,
		path: "/admin/v1/" + list + "/" + escape(name) + "/" + verb})
	return err
}
