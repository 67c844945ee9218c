package admin

import (
	"context"
	"slices"
	"strconv"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/nodes"
	"github.com/millrace/millrace/internal/store"
)

var (
	workerPages = newPages(nameCursor("worker"))
	nodePages   = newPages(nameCursor("node"))
)

// listNodes is GET /admin/v1/nodes (AD-042).
func (a *API) listNodes(c *httpapi.Call) error {
	limit, after, err := nodePages.Read(c)
	if err != nil {
		return err
	}
	all, err := a.Node.All(c.Context())
	if err != nil {
		return err
	}
	name := func(n *nodes.Info) string { return n.Name }
	page, next := pageOf(all, name, &nodePages, after, limit)
	o := newList(len(page), next, func(i int, o *strictjson.Object) { writeNode(o, &page[i]) })
	sendObject(c, 200, &o)
	return nil
}

func writeNode(o *strictjson.Object, n *nodes.Info) {
	o.Text("name", n.Name)
	o.Optional("version", n.Version)
	o.Optional("address", n.Address)
	o.Time("started_at", n.StartedAt)
	o.Time("last_seen", n.LastSeen)
	o.Bool("draining", n.Draining)
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
func writeNodePart(o *strictjson.Object, name string, p *nodes.Part) {
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
	})
}

// workerItem is a worker on the node that knows it.
type workerItem struct {
	nodes.Worker
	version string
	running []int64
}

// key is what orders workers: those of one name on several nodes are entries of their own.
func (w *workerItem) key() string { return w.Name + "\x00" + w.Node + "\x00" + w.Contract }

// maxRunningListed bounds the running jobs that a list of workers looks through.
const maxRunningListed = 2000

// allWorkers returns the workers that all nodes know, with the jobs that they run.
func (a *API) allWorkers(ctx context.Context) ([]workerItem, error) {
	all, err := a.Node.All(ctx)
	if err != nil {
		return nil, err
	}
	leased, err := a.Engine.List(ctx,
		store.Filter{Phases: []job.Phase{job.Leased}, Limit: maxRunningListed})
	if err != nil {
		return nil, err
	}
	running := map[[2]string][]int64{}
	for _, j := range leased {
		key := [2]string{j.ID.Contract, j.Worker}
		running[key] = append(running[key], j.Seq)
	}
	var items []workerItem
	for _, n := range all {
		for _, w := range n.Workers {
			item := workerItem{Worker: w, version: w.Agent,
				running: running[[2]string{w.Contract, w.Name}]}
			if w.Local {
				item.version = n.Version
			}
			items = append(items, item)
		}
	}
	return items, nil
}

// listWorkers is GET /admin/v1/workers (AD-040).
func (a *API) listWorkers(c *httpapi.Call) error {
	limit, after, err := workerPages.Read(c)
	if err != nil {
		return err
	}
	all, err := a.allWorkers(c.Context())
	if err != nil {
		return err
	}
	page, next := pageOf(all, (*workerItem).key, &workerPages, after, limit)
	o := newList(len(page), next, func(i int, o *strictjson.Object) { page[i].write(o) })
	sendObject(c, 200, &o)
	return nil
}

func (w *workerItem) write(o *strictjson.Object) {
	o.Text("name", w.Name)
	o.Text("node", w.Node)
	o.Text("kind", map[bool]string{true: "process", false: "outside"}[w.Local])
	o.Text("contract", w.Contract)
	o.Texts("queues", w.Queues)
	o.Raw("running", formatNumbers(w.running))
	if w.Local {
		o.Int("slots", int64(w.Slots))
	} else {
		o.Null("slots")
	}
	o.Time("first_seen", w.FirstSeen)
	o.Time("last_seen", w.LastSeen)
	o.Int("succeeded", w.Succeeded)
	o.Int("failed", w.Failed)
	o.Optional("version", w.version)
	o.Bool("draining", w.Draining)
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
		name := c.PathValue("name")
		known, err := a.knows(c.Context(), kind, name)
		if err != nil {
			return err
		}
		if !known {
			return &job.Error{Kind: job.NotFound, Op: "admin.drain",
				Msg: "no " + string(kind) + " of this name was seen in the last five minutes"}
		}
		err = a.Engine.SetDrain(c.Context(), kind, name, draining,
			func(w engine.RecordWriter, was bool) error {
				return a.record(w, c, drainState{was}, drainState{draining})
			})
		if err != nil {
			return err
		}
		o := strictjson.NewObject(nil)
		o.Text("name", name)
		o.Bool("draining", draining)
		sendObject(c, 200, &o)
		return nil
	}
}

// drainState is the state of a worker or node in the audit.
type drainState struct {
	Draining bool `json:"draining"`
}

// knows reports whether a worker or node is listed or drained.
func (a *API) knows(ctx context.Context, kind engine.DrainKind, name string) (bool, error) {
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
