package admin

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/nodes"
	"github.com/millrace/millrace/internal/store"
)

// Nodes and workers are read from the record that each node keeps of itself (package nodes); which
// jobs a worker runs is read from the jobs that are leased. Both are few, so each list is made as a
// whole and then cut into pages by name.

var (
	workerPages = newPages(nameCursor("worker"))
	nodePages   = newPages(nameCursor("node"))
)

// listNodes is GET /admin/v1/nodes (AD-042).
func (a *API) listNodes(c *httpapi.Call) error {
	page, next, err := a.ListNodes(c)
	if err != nil {
		return err
	}
	o := newList(len(page), next, func(i int, o *strictjson.Object) { writeNode(o, &page[i]) })
	sendObject(c, 200, &o)
	return nil
}

// ListNodes returns the nodes that the query of a call asks for, and the cursor of the next page.
func (a *API) ListNodes(c *httpapi.Call) (page []nodes.Info, next string, err error) {
	limit, after, err := nodePages.Read(c)
	if err != nil {
		return nil, "", err
	}
	all, err := a.Node.All(c.Context())
	if err != nil {
		return nil, "", err
	}
	name := func(n *nodes.Info) string { return n.Name }
	page, next = pageOf(all, name, &nodePages, after, limit)
	return page, next, nil
}

func writeNode(o *strictjson.Object, n *nodes.Info) {
	o.Text("name", n.Name)
	o.Optional("version", n.Version)
	o.Optional("address", n.Address)
	o.Time("started_at", n.StartedAt)
	o.Time("last_seen", n.LastSeen)
	o.Bool("draining", n.Draining)
	o.Bool("gone", n.IsGone)
	o.Texts("contracts", n.Contracts)
	o.Texts("duties", n.LeaderRoles)
	o.Int("goroutines", int64(n.Goroutines))
	o.Int("memory", n.Memory)
	if n.OpenFiles < 0 {
		o.Null("open_files")
	} else {
		o.Int("open_files", int64(n.OpenFiles))
	}
	writeNodePart(o, "store", &n.Store)
	writeNodePart(o, "stream", n.Stream)
	writeNodePart(o, "objects", n.Objects)
}

// writeNodePart writes how a part of a node is; null where the node has none elsewhere.
func writeNodePart(o *strictjson.Object, name string, p *nodes.PartStatus) {
	if p == nil {
		o.Null(name)
		return
	}
	o.Object(name, func(o *strictjson.Object) {
		o.Optional("kind", p.Kind)
		o.Text("state", map[bool]string{true: "failing", false: "ok"}[p.Failing])
		if p.LatencyP95 < 0 {
			o.Null("latency_p95")
		} else {
			o.Raw("latency_p95", strconv.AppendFloat(nil, p.LatencyP95, 'f', 6, 64))
		}
		if p.Pool == nil {
			o.Null("pool")
			return
		}
		o.Object("pool", func(o *strictjson.Object) {
			o.Int("in_use", int64(p.Pool.InUse))
			o.Int("open", int64(p.Pool.Open))
			o.Int("max", int64(p.Pool.Max))
		})
	})
}

// WorkerItem is a worker, with the node that has seen it.
type WorkerItem struct {
	nodes.Worker
	Version string
	Running []int64 // the numbers of its jobs
	// IsGone says that it has sent no request for a minute, or that it has left, and that it runs
	// nothing.
	IsGone bool
}

// key is what orders workers: those of one name on several nodes are entries of their own.
func (w *WorkerItem) key() string { return w.Name + "\x01" + w.Node + "\x01" + w.JobType }

// maxRuns bounds the running jobs that a list of workers looks through.
const maxRuns = 2000

// WorkerPage is a page of workers.
type WorkerPage struct {
	Items []WorkerItem
	Next  string // the cursor of the next page
	// SearchedTo is when the last running job was created that was looked at, where there are more:
	// workers may have jobs among those too.
	SearchedTo time.Time
}

// addRunning adds to workers the jobs that they run, the oldest ones of all.
func (a *API) addRunning(ctx context.Context, p *WorkerPage) error {
	if len(p.Items) == 0 {
		return nil
	}
	leased, err := a.Engine.List(ctx, store.Filter{Runs: true, Limit: a.maxRuns + 1})
	if err != nil {
		return err
	}
	running := map[[2]string][]int64{}
	for _, j := range leased[:min(a.maxRuns, len(leased))] {
		key := [2]string{j.ID.JobType, j.Worker}
		running[key] = append(running[key], j.Seq)
	}
	for i := range p.Items {
		w := &p.Items[i]
		w.Running = running[[2]string{w.JobType, w.Name}]
	}
	if len(leased) <= a.maxRuns {
		return nil
	}
	last, err := a.Engine.GetBySeqs(ctx, []int64{leased[a.maxRuns-1].Seq}, store.DefinitionOnly)
	for _, j := range last { // none where the job has been removed meanwhile
		p.SearchedTo = j.CreatedAt
	}
	return err
}

// listWorkers is GET /admin/v1/workers (AD-040).
func (a *API) listWorkers(c *httpapi.Call) error {
	page, err := a.ListWorkers(c)
	if err != nil {
		return err
	}
	o := newList(len(page.Items), page.Next, func(i int, o *strictjson.Object) {
		page.Items[i].write(o)
	})
	o.Time("searched_to", page.SearchedTo)
	sendObject(c, 200, &o)
	return nil
}

// ListWorkers returns the workers that the query of a call asks for.
func (a *API) ListWorkers(c *httpapi.Call) (page WorkerPage, err error) {
	limit, after, err := workerPages.Read(c)
	if err != nil {
		return page, err
	}
	known, err := a.Node.All(c.Context())
	if err != nil {
		return page, err
	}
	var all []WorkerItem
	var now time.Time // by the store: this node is as it is now
	for _, n := range known {
		if n.LastSeen.After(now) {
			now = n.LastSeen
		}
		for _, w := range n.Workers {
			item := WorkerItem{Worker: w, Version: w.Agent}
			if w.Local {
				item.Version = n.Version
			}
			all = append(all, item)
		}
	}
	page.Items = all
	if err := a.addRunning(c.Context(), &page); err != nil {
		return page, err
	}
	all = slices.DeleteFunc(page.Items, func(w WorkerItem) bool {
		return w.HasLeft && !w.Draining && len(w.Running) == 0
	})
	for i := range all {
		all[i].IsGone = all[i].IsSilent(now) && len(all[i].Running) == 0
	}
	page.Items, page.Next = pageOf(all, (*WorkerItem).key, &workerPages, after, limit)
	return page, nil
}

func (w *WorkerItem) write(o *strictjson.Object) {
	o.Text("name", w.Name)
	o.Text("node", w.Node)
	o.Text("kind", map[bool]string{true: "process", false: "outside"}[w.Local])
	o.Text("contract", w.JobType)
	o.Texts("queues", w.Queues)
	o.Raw("running", formatNumbers(w.Running))
	if w.Local {
		o.Int("slots", int64(w.Slots))
	} else {
		o.Null("slots")
	}
	o.Time("first_seen", w.FirstSeen)
	o.Time("last_seen", w.LastSeen)
	o.Int("succeeded", w.Succeeded)
	o.Int("failed", w.Failed)
	o.Optional("version", w.Version)
	o.Bool("draining", w.Draining)
	o.Bool("gone", w.IsGone)
}

// formatNumbers returns numbers as a JSON array.
func formatNumbers(numbers []int64) []byte {
	b := []byte{'['}
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return append(b, ']')
}

// drain returns the handler that begins or ends a drain (AD-041, AD-042). Its name is one of those
// that are listed, or of a drain in force.
func (a *API) drain(kind engine.DrainKind, draining bool) httpapi.Handler {
	return func(c *httpapi.Call) error {
		if _, err := readMembers(c); err != nil {
			return err
		}
		if err := a.SetDrain(c, kind, draining); err != nil {
			return err
		}
		o := strictjson.NewObject(nil)
		o.Text("name", c.PathValue("name"))
		o.Bool("draining", draining)
		sendObject(c, 200, &o)
		return nil
	}
}

// SetDrain begins or ends the drain of the worker or node of the path of a call.
func (a *API) SetDrain(c *httpapi.Call, kind engine.DrainKind, draining bool) error {
	name := c.PathValue("name")
	known, err := a.isKnown(c.Context(), kind, name)
	if err != nil {
		return err
	}
	if !known {
		return &job.Error{Kind: job.NotFound, Op: "admin.drain",
			Msg: "no " + string(kind) + " of this name was seen in the last five minutes"}
	}
	return a.Engine.SetDrain(c.Context(), kind, name, draining,
		func(w engine.RecordWriter, was bool) error {
			return a.record(w, c, drainState{was}, drainState{draining})
		})
}

// drainState is the state of a worker or node in the audit.
type drainState struct {
	Draining bool `json:"draining"`
}

// isKnown reports whether a worker or node is listed or drained.
func (a *API) isKnown(ctx context.Context, kind engine.DrainKind, name string) (bool, error) {
	if a.Engine.IsDraining(kind, name) {
		return true, nil
	}
	all, err := a.Node.All(ctx)
	for _, n := range all {
		if kind == engine.DrainNode && n.Name == name {
			return true, err
		}
		named := func(w nodes.Worker) bool { return w.Name == name }
		if kind == engine.DrainWorker && slices.ContainsFunc(n.Workers, named) {
			return true, err
		}
	}
	return false, err
}

// nodeRoutes are the routes of workers and nodes.
func (a *API) nodeRoutes() []route {
	named := func(kind string) func(*httpapi.Call) string {
		return func(c *httpapi.Call) string { return kind + ":" + c.PathValue("name") }
	}
	const worker, node = apiPrefix + "/workers/{name}", apiPrefix + "/nodes/{name}"
	return []route{
		{method: "GET", pattern: apiPrefix + "/workers", action: "worker.list",
			handle: a.listWorkers, query: httpapi.PageQuery()},
		{method: "POST", pattern: worker + "/drain", action: "worker.drain", body: true,
			handle: a.drain(engine.DrainWorker, true), target: named("worker")},
		{method: "POST", pattern: worker + "/resume", action: "worker.resume", body: true,
			handle: a.drain(engine.DrainWorker, false), target: named("worker")},
		{method: "GET", pattern: apiPrefix + "/nodes", action: "node.list",
			handle: a.listNodes, query: httpapi.PageQuery()},
		{method: "POST", pattern: node + "/drain", action: "node.drain", body: true,
			handle: a.drain(engine.DrainNode, true), target: named("node")},
		{method: "POST", pattern: node + "/resume", action: "node.resume", body: true,
			handle: a.drain(engine.DrainNode, false), target: named("node")},
	}
}
