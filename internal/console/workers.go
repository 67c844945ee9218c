package console

import (
	"net/url"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/nodes"
)

// workerPages are the page of workers and nodes and the forms on it.
func (o *Console) workerPages() []admin.Page {
	all := []admin.Page{{Method: "GET", Pattern: Path + "/workers", Action: "console.workers",
		Query: httpapi.PageQuery(), Handle: o.show(o.showWorkers)}}
	for _, kind := range []engine.DrainKind{engine.DrainWorker, engine.DrainNode} {
		for name, draining := range map[string]bool{"drain": true, "resume": false} {
			all = append(all, admin.Page{Method: "POST",
				Pattern: Path + "/" + string(kind) + "s/{name}/" + name,
				Action:  "console." + string(kind) + "." + name, Audit: string(kind) + "." + name,
				Target: func(c *httpapi.Call) string { return string(kind) + ":" + c.PathValue("name") },
				Handle: o.submit(func(c *httpapi.Call, _ url.Values) (string, error) {
					return Path + "/workers", o.api.SetDrain(c, kind, draining)
				})})
		}
	}
	return all
}

// showWorkers is GET /console/workers.
func (o *Console) showWorkers(c *httpapi.Call) (view, error) {
	workers, next, err := o.api.ListWorkers(c)
	if err != nil {
		return view{}, err
	}
	all, err := o.api.Node.All(c.Context())
	if err != nil {
		return view{}, err
	}
	return view{Name: "workers", Title: "Workers and nodes", Page: struct {
		Workers []admin.WorkerItem
		Nodes   []nodes.Info
		Next    string
	}{workers, all, nextPage(c.Request, next)}}, nil
}
