package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
)

const (
	// RecordKind is the kind of the records. It is stored data.
	RecordKind = "node"
	// interval is the time between two ticks at which a node writes its record.
	interval = 5 * time.Second
	// earlyInterval is how soon a node may write its record again when a queue was polled that the
	// record lacks.
	earlyInterval = time.Second
	// goneAfter is how long a node writes no record that has most likely ended.
	goneAfter = 3 * interval
	// recordLife is how long the record of a node is kept that writes no more.
	recordLife = 5 * time.Minute
	// maxNodes bounds the nodes that are read. maxWorkers bounds the workers of a record, which
	// leaves out those that were seen least recently.
	maxNodes   = 1000
	maxWorkers = 1000
	// stopTimeout bounds the deletion of the record of a node that stops.
	stopTimeout = 2 * time.Second
)

// Config describes a node. Engine and Elapsed are required.
type Config struct {
	Engine    *engine.Engine
	Log       *slog.Logger         // nil logs nothing
	Elapsed   func() time.Duration // a monotonic clock, 0 when the process began
	Version   string               // of the program
	Contracts []string             // that the node serves or executes
	StoreKind string               // such as postgres
	// OneNode says that the store has one node at a time, so that the records of others are those
	// of processes that were killed.
	OneNode bool
	// Pool reports how many connections to the store are in use and open, and may be open at most;
	// nil: it has no pool of them.
	Pool     func() (inUse, open, limit int)
	Monitors []*outage.Monitor // of the parts outside of the data directory
	Timer    clock.Timer       // nil is real time
}

// Node writes the record of one node. Its methods are safe for concurrent use.
type Node struct {
	Config
	address atomic.Pointer[string]

	mu      sync.Mutex
	latency engine.Histogram // of the last interval
}

// New makes the node of a process.
func New(c Config) (*Node, error) {
	if c.Engine == nil || c.Elapsed == nil {
		return nil, errors.New("nodes: Engine and Elapsed are required")
	}
	return &Node{Config: c}, nil
}

// SetAddress says where the node listens.
func (n *Node) SetAddress(address string) { n.address.Store(&address) }

// Info describes a node (AD-042).
type Info struct {
	Name        string        `json:"name"`
	Version     string        `json:"version"`
	Address     string        `json:"address"`
	StartedAt   time.Time     `json:"started_at"`
	LastSeen    time.Time     `json:"last_seen"`
	Contracts   []string      `json:"contracts"`
	LeaderRoles []string      `json:"duties"` // in which it is the leader
	Goroutines  int           `json:"goroutines"`
	Memory      int64         `json:"memory"`     // bytes that the process has from the system
	OpenFiles   int           `json:"open_files"` // -1: not known
	Store       PartStatus    `json:"store"`
	Stream      *PartStatus   `json:"stream"` // nil: it has none elsewhere
	Objects     *PartStatus   `json:"objects"`
	Workers     []Worker      `json:"workers"`
	Polled      []PolledQueue `json:"asked"`
	Draining    bool          `json:"-"`
	// IsGone says that it has written no record for 15 seconds.
	IsGone bool `json:"-"`
}

// PartStatus is something that a node depends on.
type PartStatus struct {
	Kind    string `json:"kind"`
	Failing bool   `json:"failing"`
	// LatencyP95 is how long 95 % of the transactions of the last five seconds took at most, in
	// seconds; -1 if there was none.
	LatencyP95 float64 `json:"latency_p95"`
	Pool       *Pool   `json:"pool"` // nil: it has none
}

// Pool is how the connections of a node to its store are used.
type Pool struct {
	InUse int `json:"in_use"`
	Open  int `json:"open"`
	Max   int `json:"max"`
}

// Worker describes a worker that uses a node (AD-040).
type Worker struct {
	Name      string    `json:"name"`
	JobType   string    `json:"contract"`
	Local     bool      `json:"local"`
	Queues    []string  `json:"queues"` // none means all
	Slots     int       `json:"slots"`
	Agent     string    `json:"agent"`
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
	Succeeded int64     `json:"succeeded"`
	Failed    int64     `json:"failed"`
	// HasLeft says that the worker has stopped, or has closed the connection of its last claim.
	HasLeft  bool   `json:"has_left,omitempty"`
	Node     string `json:"-"`
	Draining bool   `json:"-"`
}

// Run writes the record until ctx ends, and deletes it then.
func (n *Node) Run(ctx context.Context) {
	loop := outage.Loop{Log: n.Log, Name: "node record"}
	for {
		loop.Report(ctx, n.Write(ctx))
		if !n.awaitWrite(ctx) {
			break
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	_ = n.Engine.ChangeRecords(last, n.lock(), func(w engine.RecordWriter) error {
		if err := n.Engine.SavePolls(w, true); err != nil {
			return err
		}
		return w.DeleteRecords(RecordKind, n.Engine.Node())
	})
}

// awaitWrite waits until the record is to be written again: at the next tick that comes after
// earlyInterval, see clock.UntilTick, or earlier for a queue that was not polled before. It returns
// false when ctx ends.
func (n *Node) awaitWrite(ctx context.Context) bool {
	return n.Timer.Wait(ctx, earlyInterval) &&
		n.Timer.WaitOr(ctx, clock.UntilTick(interval), n.Engine.NewlyPolled()) && ctx.Err() == nil
}

// lock is the lock of the record. No other node writes it.
func (n *Node) lock() string { return RecordKind + ":" + n.Engine.Node() }

// Write writes the record once.
func (n *Node) Write(ctx context.Context) error {
	n.mu.Lock()
	n.latency = n.Engine.TakeLatencies()
	n.mu.Unlock()
	return n.Engine.ChangeRecords(ctx, n.lock(), func(w engine.RecordWriter) error {
		if err := n.Engine.SavePolls(w, false); err != nil {
			return err
		}
		body, err := json.Marshal(n.info(w.Now()))
		if err != nil {
			return err
		}
		return w.UpsertRecords(job.Record{Kind: RecordKind, Key: n.Engine.Node(), Body: body,
			ExpiresAt: w.Now().Add(recordLife)})
	})
}

// info describes the node at a time.
func (n *Node) info(now time.Time) Info {
	memory, goroutines := readRuntime()
	i := Info{Name: n.Engine.Node(), Version: n.Version, LastSeen: now,
		StartedAt: now.Add(-n.Elapsed()), Contracts: n.Contracts,
		LeaderRoles: n.Engine.LeaderRoles(), Goroutines: goroutines, Memory: memory,
		OpenFiles: countOpenFiles(),
		Store:     PartStatus{Kind: n.StoreKind, LatencyP95: n.latencyP95()},
		Stream:    n.part("streams"), Objects: n.part("objects"), Workers: n.workers(now),
		Polled: n.polledQueues(now)}
	if address := n.address.Load(); address != nil {
		i.Address = *address
	}
	if p := n.part("store"); p != nil {
		i.Store.Failing = p.Failing
	}
	if n.Pool != nil {
		i.Store.Pool = &Pool{}
		i.Store.Pool.InUse, i.Store.Pool.Open, i.Store.Pool.Max = n.Pool()
	}
	return i
}

// latencyP95 returns the PartStatus.LatencyP95 of the store.
func (n *Node) latencyP95() float64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d, ok := n.latency.Quantile(0.95); ok {
		return d.Seconds()
	}
	return -1
}

// part returns the status of a part, or nil if the node has no such part or runs it in this
// process.
func (n *Node) part(name string) *PartStatus {
	for _, p := range n.Monitors {
		if s := p.Status(); s.Endpoint.Name == name && s.Endpoint.Address != "" {
			return &PartStatus{Kind: name, Failing: s.Degraded, LatencyP95: -1}
		}
	}
	return nil
}

// workers returns the workers that used the node, the one that was seen last first.
func (n *Node) workers(now time.Time) []Worker {
	known := n.Engine.Workers()
	slices.SortFunc(known, func(a, b engine.Worker) int { return int(a.LastSeen - b.LastSeen) })
	known = known[:min(len(known), maxWorkers)]
	all := make([]Worker, len(known))
	for i, w := range known {
		all[i] = Worker{Name: w.Name, JobType: w.JobType, Local: w.Local, Queues: w.Queues,
			Slots: w.Slots, Agent: w.Agent, FirstSeen: now.Add(-w.FirstSeen),
			LastSeen: now.Add(-w.LastSeen), Succeeded: w.Succeeded, Failed: w.Failed,
			HasLeft: w.HasLeft}
	}
	return all
}

// All returns all nodes, by name, each with its workers. It describes this node as it is now, and
// the other nodes as their records do. With OneNode there are no others.
func (n *Node) All(ctx context.Context) ([]Info, error) {
	var all []Info
	err := n.Engine.ViewRecords(ctx, func(r engine.RecordReader) (err error) {
		all, err = n.read(r)
		return err
	})
	if n.OneNode {
		all = slices.DeleteFunc(all, func(i Info) bool { return i.Name != n.Engine.Node() })
	}
	return all, err
}

// read is All in a view.
func (n *Node) read(r engine.RecordReader) ([]Info, error) {
	all := []Info{n.info(r.Now())}
	records, err := r.Records(RecordKind, "", "", maxNodes)
	if err != nil {
		return nil, err
	}
	for i := range records {
		if records[i].Key == n.Engine.Node() {
			continue
		}
		var other Info
		if err := json.Unmarshal(records[i].Body, &other); err != nil {
			return nil, &job.Error{Op: "nodes.all", Msg: "a stored record cannot be read", Err: err}
		}
		other.forget(r.Now())
		other.IsGone = r.Now().Sub(other.LastSeen) >= goneAfter
		all = append(all, other)
	}
	for i := range all {
		all[i].complete(n.Engine)
	}
	slices.SortFunc(all, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// forget removes the workers that have not used the node for recordLife. A node that still writes
// its record has left them out itself.
func (i *Info) forget(now time.Time) {
	i.Workers = slices.DeleteFunc(i.Workers, func(w Worker) bool {
		return now.Sub(w.LastSeen) >= recordLife
	})
}

// complete sets the members that are not stored in records.
func (i *Info) complete(e *engine.Engine) {
	i.Draining = e.IsDraining(engine.DrainNode, i.Name)
	for k := range i.Workers {
		w := &i.Workers[k]
		w.Node = i.Name
		w.Draining = e.IsDraining(engine.DrainWorker, w.Name) || (w.Local && i.Draining)
	}
}

// readRuntime returns the bytes that the process has from the system, and its goroutines.
func readRuntime() (memory int64, goroutines int) {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64()), runtime.NumGoroutine()
}

// countOpenFiles returns how many files and connections the process has open; -1 where the system
// does not show it.
func countOpenFiles() int {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return -1
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return -1
	}
	return len(names) - 1 // without dir
}
