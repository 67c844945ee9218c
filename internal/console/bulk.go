package console

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi"
)

// A bulk operation is started in two steps. The page of its confirmation shows what the filter of
// the query matches, which is a dry run. Its form sends the same filter with the time of the dry
// run, so that the operation is about what was shown and not about what has come since (AD-022).

// bulkPages are the pages of bulk operations and the forms on them.
func (o *Console) bulkPages() []admin.Page {
	const all, one = Path + "/bulk", Path + "/bulk/{id}"
	pages := []admin.Page{
		{Method: "GET", Pattern: all, Action: "console.bulk", Query: httpapi.PageQuery(),
			Handle: o.show(o.showBulk)},
		{Method: "GET", Pattern: all + "/new", Action: "console.bulk.new",
			Query: append(admin.BulkFields(), "of", "mark"), Handle: o.show(o.previewBulk)},
		{Method: "POST", Pattern: all, Action: "console.bulk.start", Audit: "bulk.start",
			Target: admin.FixedTarget("bulk"), Handle: o.submit(o.startBulk,
				admin.BulkFields()...)},
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
	return view{Name: "bulk", Title: "Bulk operations", Live: liveScope{Bulk: anyBulk},
		Page: struct {
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
	o.api.Viewer(c).RedactOperation(found)
	return view{Name: "operation", Title: printable(operationTitle(found)), Page: found,
		Live: liveScope{Bulk: found.ID}}, nil
}

// field is a field of a form.
type field struct{ Name, Value string }

// previewBulk is GET /console/bulk/new: what an operation would do, before it is confirmed.
func (o *Console) previewBulk(c *httpapi.Call) (view, error) {
	q, err := url.ParseQuery(c.Request.URL.RawQuery)
	if err != nil {
		return view{}, invalid("the query is escaped wrongly")
	}
	for name, values := range q {
		if name != "mark" && len(values) > 1 { // of which the dry run would look at one alone
			return view{}, invalid(name + " is given twice")
		}
	}
	if q.Get("of") == onlyMarked {
		if len(q["mark"]) == 0 {
			return view{}, invalid("no job is marked: go back and mark some")
		}
		q = url.Values{"action": q["action"], "number": {strings.Join(q["mark"], ",")}}
	}
	q.Del("of")
	q.Del("mark")
	r, err := o.api.ReadBulk(c, q)
	if err != nil {
		return view{}, err
	}
	p := previewPage{Request: r, Path: Path + "/bulk", HasBounds: true,
		Filter: fieldsOf(q, "action", "rate", "limit", "canary", admin.AsOf)}
	filter := url.Values{}
	for _, f := range p.Filter {
		if f.Name != "everything" {
			filter.Set(f.Name, f.Value)
		}
	}
	if p.Back = jobsPath(filter); r.DeadLetters != nil {
		p.Back = Path + "/dead-letters/list?" + filter.Encode()
	}
	return o.preview(c, p)
}

// onlyMarked says that an action of the list of jobs is about those that are marked, and not about
// all that match.
const onlyMarked = "marked"

// previewPage is what the page shows that asks for the confirmation of an operation.
type previewPage struct {
	admin.BulkPreview
	Request   bulk.Request
	Filter    []field // as the form sends it, beside the time of the preview
	Path      string  // of the form that starts it
	HasBounds bool    // that form has bounds
	IsDanger  bool
	IsDelete  bool
	Sampled   int    // how many the sample has
	Back      string // the page that lists what matches
	CountText string // how many jobs match, or dead letters
	LookedAt  string // how many were looked at, the oldest, where these are not all; "" else
	Phases    string // how many of them are in each phase, where all of them were looked at
	Summary   string // what would be done
}

// preview shows what an operation would do.
func (o *Console) preview(c *httpapi.Call, p previewPage) (v view, err error) {
	if p.BulkPreview, err = o.api.PreviewBulk(c.Context(), p.Request,
		maxSearchTime); err != nil {
		return v, err
	}
	viewer := o.api.Viewer(c)
	viewer.RedactItems(p.Items)
	viewer.RedactDeadLetters(p.DeadLetters...)
	p.IsDelete = p.Request.Action == contract.ActionDelete
	p.IsDanger = p.IsDelete || p.Request.Action == contract.ActionCancel
	p.Sampled = len(p.Items) + len(p.DeadLetters)
	p.count()
	return view{Name: "preview", Title: p.Summary + "?", Page: p}, nil
}

// count sets what the page says of how many match.
func (p *previewPage) count() {
	noun := "job"
	if p.Request.DeadLetters != nil {
		noun = "dead letter"
	}
	p.CountText = pluralize(p.Matching, noun)
	p.Summary = actionText(p.Request.Action, p.CountText)
	switch {
	case !p.SearchedTo.IsZero(): // of some it is known that they match
		p.LookedAt = pluralize(p.Read, noun)
		p.Summary = actionText(p.Request.Action, "all "+noun+"s that match")
	case p.More:
		p.CountText = number(p.Matching) + " or more " + noun + "s"
		p.Summary = actionText(p.Request.Action, p.CountText)
	}
	if p.More || p.Matching != len(p.Items) {
		return
	}
	phases := map[string]int{}
	for i := range p.Items {
		phases[phaseWord(p.Items[i].Phase)]++
	}
	var texts []string
	for _, phase := range slices.Sorted(maps.Keys(phases)) {
		texts = append(texts, number(phases[phase])+" "+phase)
	}
	p.Phases = strings.Join(texts, ", ")
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
