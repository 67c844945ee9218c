package console

import (
	"net/url"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi"
)

// bulkPages are the pages of bulk operations and the forms on them.
func (o *Console) bulkPages() []admin.Page {
	const all, one = Path + "/bulk", Path + "/bulk/{id}"
	pages := []admin.Page{
		{Method: "GET", Pattern: all, Action: "console.bulk", Query: httpapi.PageQuery(),
			Handle: o.show(o.showBulk)},
		{Method: "GET", Pattern: all + "/new", Action: "console.bulk.new", Query: admin.BulkFields(),
			Handle: o.show(o.previewBulk)},
		{Method: "POST", Pattern: all, Action: "console.bulk.start", Audit: "bulk.start",
			Target: admin.Always("bulk"), Handle: o.submit(o.startBulk, admin.BulkFields()...)},
		{Method: "GET", Pattern: one, Action: "console.bulk.show", Handle: o.show(o.showOperation)},
	}
	for _, what := range []bulk.Change{bulk.Pause, bulk.Resume, bulk.Cancel} {
		pages = append(pages, admin.Page{Method: "POST", Pattern: one + "/" + string(what),
			Action: "console.bulk." + string(what), Audit: "bulk." + string(what),
			Target: func(c *httpapi.Call) string { return "bulk:" + c.PathValue("id") },
			Handle: o.submit(func(c *httpapi.Call, _ url.Values) (string, error) {
				_, err := o.api.ChangeBulk(c, what)
				return pathOf("bulk", c.PathValue("id")), err
			})})
	}
	return pages
}

// showBulk is GET /console/bulk.
func (o *Console) showBulk(c *httpapi.Call) (view, error) {
	found, next, err := o.api.ListBulk(c)
	if err != nil {
		return view{}, err
	}
	return view{Name: "bulk", Title: "Bulk operations", Page: struct {
		Operations []*bulk.Operation
		Next       string
	}{found, nextPage(c.Request, next)}}, nil
}

// showOperation is GET /console/bulk/{id}.
func (o *Console) showOperation(c *httpapi.Call) (view, error) {
	found, err := o.api.Bulk(c)
	if err != nil {
		return view{}, err
	}
	o.api.Caller(c).LimitOperation(found)
	return view{Name: "operation", Title: "Bulk " + found.Action, Page: found}, nil
}

// field is a field of a form.
type field struct{ Name, Value string }

// previewBulk is GET /console/bulk/new: what an operation would do, before it is confirmed.
func (o *Console) previewBulk(c *httpapi.Call) (view, error) {
	q := c.Request.URL.Query()
	r, err := o.api.ReadBulk(c, q)
	if err != nil {
		return view{}, err
	}
	p, err := o.api.PreviewBulk(c.Context(), r)
	if err != nil {
		return view{}, err
	}
	who := o.api.Caller(c)
	who.LimitItems(p.Items)
	who.LimitLetters(p.DeadLetters...)
	var filter []field
	for name, values := range q {
		if !slices.Contains([]string{"action", "rate", "limit", "canary"}, name) {
			filter = append(filter, field{name, values[0]})
		}
	}
	slices.SortFunc(filter, func(a, b field) int { return strings.Compare(a.Name, b.Name) })
	return view{Name: "preview", Title: "Confirm: " + r.Action, Page: struct {
		admin.BulkPreview
		Request  bulk.Request
		Filter   []field
		IsDanger bool
	}{p, r, filter, r.Action == contract.ActionDelete || r.Action == contract.ActionCancel}}, nil
}

// startBulk is POST /console/bulk.
func (o *Console) startBulk(c *httpapi.Call, form url.Values) (string, error) {
	r, err := o.api.ReadBulk(c, form)
	if err != nil {
		return "", err
	}
	started, err := o.api.StartBulk(c, r)
	if err != nil {
		return "", err
	}
	return pathOf("bulk", started.ID), nil
}
