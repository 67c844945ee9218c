package console

import (
	"net/url"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/nodes"
)

// Drains of workers and of nodes differ in their kind alone, so one loop makes the forms of both:
// each has a button that begins the drain, or one that ends it.

// workerPages are the page of workers and nodes and the forms on it.
func (o *Console) workerPages() []admin.Page {
	all := []admin.Page{{Method: "GET", Pattern: Path + "/workers", Action: "console.workers",
		Query: httpapi.PageQuery(), Handle: o.show(o.showWorkers)}}
	for _, kind := range []engine.DrainKind{engine.DrainWorker, engine.DrainNode} {
		for _, name := range []string{"drain", "resume"} {
			all = append(all, admin.Page{Method: "POST",
				Pattern: Path + "/" + string(kind) + "s/{name}/" + name,
				Action:  "console." + string(kind) + "." + name, Audit: string(kind) + "." + name,
				Target: func(c *httpapi.Call) string { return string(kind) + ":" + c.PathValue("name") },
				Handle: o.submit(func(c *httpapi.Call, _ url.Values) (string, error) {
					return Path + "/workers", o.api.SetDrain(c, kind, name == "drain")
				})})
		}
	}
	return all
}

// workerRow is a worker as the page shows it.
type workerRow struct {
	admin.WorkerItem
	// Named is how many workers of the page have the name of this one, which is the first of them;
	// 0 in the others. A drain goes by the name alone.
	Named int
}

// showWorkers is GET /console/workers.
func (o *Console) showWorkers(c *httpapi.Call) (view, error) {
	workers, err := o.api.ListWorkers(c)
	if err != nil {
		return view{}, err
	}
	all, err := o.api.Node.All(c.Context())
	if err != nil {
		return view{}, err
	}
	var rows []workerRow
	for i, item := range workers.Items {
		rows = append(rows, workerRow{WorkerItem: item})
		first := i
		for first > 0 && rows[first-1].Name == item.Name {
			first--
		}
		rows[first].Named++
	}
	return view{Name: "workers", Title: "Workers", Page: struct {
		Workers    []workerRow
		SearchedTo time.Time
		Nodes      []nodes.Info
		Next       string
	}{rows, workers.SearchedTo, all, nextPage(c.Request, workers.Next)}}, nil
}
