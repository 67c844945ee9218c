package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// AdminWorker is a worker as one node sees it. A worker that uses several nodes, or works for
// several contracts, has an entry for each (G-AD-13).
type AdminWorker struct {
	// Name is the name that its jobs show, and Node the node that sees it.
	Name string `json:"name"`
	Node string `json:"node"`
	// Kind is "process" for a worker in the process of the node, and "outside" for a remote one.
	Kind     string `json:"kind"`
	Contract string `json:"contract"`
	// Queues are the queues that it claims from; none means all.
	Queues []string `json:"queues"`
	// Running has the numbers of the jobs that it executes.
	Running []int64 `json:"running"`
	// Concurrency is how many jobs it executes at a time; nil where the server does not know.
	Concurrency *int `json:"slots"`
	// FirstSeen and LastSeen are when the node got its first and its last request, in UTC.
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
	// Succeeded and Failed are how many attempts it has completed and failed on this node.
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	// Version is the version of its node or, for a remote worker, what its program says; empty
	// where it says nothing.
	Version string `json:"version"`
	// Draining reports whether it is drained, so that it gets no further jobs.
	Draining bool `json:"draining"`
	// Gone reports whether it has sent nothing for a minute and executes nothing, so that it has
	// most likely ended.
	Gone bool `json:"gone"`
}

// AdminNode is a node, as it has last described itself in the store (AD-042).
type AdminNode struct {
	// Name identifies the node; it changes with each start.
	Name    string `json:"name"`
	Version string `json:"version"`
	Address string `json:"address"`
	// StartedAt is when it was started, and LastSeen when it last wrote to the store, as it does
	// every five seconds, in UTC.
	StartedAt time.Time `json:"started_at"`
	LastSeen  time.Time `json:"last_seen"`
	Draining  bool      `json:"draining"`
	// Gone reports whether it has written nothing for 15 seconds, so that it has most likely ended.
	// The other fields are as it wrote them last.
	Gone      bool     `json:"gone"`
	Contracts []string `json:"contracts"`
	// LeaderRoles are the roles in which it is the leader.
	LeaderRoles []string `json:"duties"`
	Goroutines  int      `json:"goroutines"`
	// MemoryBytes is how much memory the process uses.
	MemoryBytes int64 `json:"memory"`
	// OpenFiles is nil where the operating system does not report it.
	OpenFiles *int                `json:"open_files"`
	Store     AdminNodeComponent  `json:"store"`
	Stream    *AdminNodeComponent `json:"stream"`
	Objects   *AdminNodeComponent `json:"objects"`
}

// AdminNodeComponent is a component that a node depends on: its store, NATS or object storage.
type AdminNodeComponent struct {
	// Kind is what it is, such as "postgres", and State "ok" or "failing".
	Kind  string `json:"kind"`
	State string `json:"state"`
	// LatencyP95 is the 95th percentile of how long transactions took within the last five seconds,
	// in seconds; nil if there was none.
	LatencyP95 *float64 `json:"latency_p95"`
	// Connections is nil where there is no pool of connections, as with SQLite.
	Connections *AdminConnectionPool `json:"pool"`
}

// AdminConnectionPool is how many connections a node has to its store.
type AdminConnectionPool struct {
	InUse int `json:"in_use"`
	Open  int `json:"open"`
	Max   int `json:"max"`
}

// Workers iterates over the workers of all nodes, by name (AD-040): the local ones, and the remote
// ones that have claimed jobs or sent a heartbeat within the last five minutes. Entries of other
// nodes are up to five seconds old. It ends with the first error.
func (a *Admin) Workers(ctx context.Context) iter.Seq2[AdminWorker, error] {
	return adminPages[AdminWorker](ctx, a, "admin workers", "/admin/v1/workers", nil, 500)
}

// Nodes iterates over the nodes, by name (AD-042). It ends with the first error.
func (a *Admin) Nodes(ctx context.Context) iter.Seq2[AdminNode, error] {
	return adminPages[AdminNode](ctx, a, "admin nodes", "/admin/v1/nodes", nil, 500)
}

// DrainWorker drains a worker until it is resumed, or for 24 hours: all nodes refuse it further
// jobs within two seconds (AD-041). A worker of this package finishes the jobs that it has and
// ends.
//
// Errors: [ErrNotFound] where no node has seen the name. Repeating is safe.
func (a *Admin) DrainWorker(ctx context.Context, name string) error {
	return a.changeDrain(ctx, "admin drain worker", "workers", name, "drain")
}

// ResumeWorker ends the drain of a worker.
//
// Errors: those of [Admin.DrainWorker].
func (a *Admin) ResumeWorker(ctx context.Context, name string) error {
	return a.changeDrain(ctx, "admin resume worker", "workers", name, "resume")
}

// DrainNode drains a node within two seconds: it is not ready, and its local workers get no further
// jobs (AD-042). Jobs that they execute continue.
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
