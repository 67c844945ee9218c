package admin

import (
	"bytes"
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// Bulk operations are those of package bulk. Each is one entry of the audit at its start and one at
// its end (G-AD-04).

// bulkRoutes are the routes of bulk operations.
func (a *API) bulkRoutes() []route {
	const all, one = apiPrefix + "/bulk", apiPrefix + "/bulk/{id}"
	routes := []route{
		{method: "GET", pattern: all, action: "bulk.list", handle: a.listBulk,
			query: httpapi.PageQuery()},
		{method: "POST", pattern: all, action: bulkStart, handle: a.startBulk,
			target: Always("bulk"), body: true, dryRun: true},
		{method: "GET", pattern: one, action: "bulk.show", handle: a.showBulk},
		{method: "POST", pattern: apiPrefix + "/queues/{contract}/{queue}/clear",
			action: "queue.clear", handle: a.clearQueue, target: queueTarget, body: true},
	}
	for _, what := range []bulk.Change{bulk.Pause, bulk.Resume, bulk.Cancel} {
		routes = append(routes, route{method: "POST", pattern: one + "/" + string(what),
			action: "bulk." + string(what), target: bulkTarget, body: true,
			handle: func(c *httpapi.Call) error { return a.changeBulk(c, what) }})
	}
	return routes
}

// The actions of the entries at the start and at the end.
const (
	bulkStart = "bulk.start"
	bulkEnd   = "bulk.end"
)

// bulkTarget names the operation of the path for the audit.
func bulkTarget(c *httpapi.Call) string { return "bulk:" + c.PathValue("id") }

// newBulk makes the bulk operations of the node.
func (a *API) newBulk() (err error) {
	a.bulk, err = bulk.New(bulk.Config{Engine: a.Engine, Log: a.Log, Contracts: a.Contracts,
		Elapsed: a.Elapsed,
		Random: func() (r [16]byte) {
			rand.Read(r[:]) // never fails
			return r
		},
		Ended: func(w engine.RecordWriter, o *bulk.Operation) error {
			after, err := encodeState(bulkState(o))
			if err != nil {
				return err
			}
			return a.audit.write(w, Entry{Actor: string(operatorKind), Action: bulkEnd,
				Target: "bulk:" + o.ID, After: after})
		}})
	return err
}

// bulkState returns what the audit keeps of an operation.
func bulkState(o *bulk.Operation) any {
	return struct {
		bulk.Request
		State   string `json:"state"`
		Done    int64  `json:"done"`
		Failed  int64  `json:"failed"`
		Skipped int64  `json:"skipped"`
	}{o.Request, o.State, o.Done, o.Failed, o.Skipped}
}

// The bounds of an operation.
const (
	maxBulkRate   = 100_000
	maxBulkLimit  = 1_000_000_000
	maxBulkCanary = 1000
)

// bulkBody is the body of the request for an operation.
type bulkBody struct {
	bulk.Request
	dryRun bool
}

// readBulk reads {action, filter, rate, limit, canary, dry_run, everything}.
func (a *API) readBulk(c *httpapi.Call) (b bulkBody, err error) {
	body, err := readMembers(c, "action", "filter", "rate", "limit", "canary", "dry_run",
		"everything")
	if err != nil {
		return b, err
	}
	var filter []byte
	everything := false
	for name, value := range strictjson.Members(body) {
		var err error
		switch key := string(name); key {
		case "action":
			if b.Action, err = strictjson.String(value); err != nil {
				err = invalid("action must be a text")
			}
		case "filter":
			filter = bytes.Clone(value)
		case "rate":
			b.Rate, err = readLimit(key, value, maxBulkRate)
		case "limit":
			b.Limit, err = readLimit(key, value, maxBulkLimit)
		case "canary":
			b.Canary, err = readLimit(key, value, maxBulkCanary)
		case "dry_run":
			b.dryRun, err = readBool(key, value)
		case "everything":
			everything, err = readBool(key, value)
		}
		if err != nil {
			return b, err
		}
	}
	if err := checkBulkAction(b.Action); err != nil {
		return b, err
	}
	return b, a.readBulkFilter(a.disclosureTo(c), filter, everything, &b.Request)
}

// checkBulkAction refuses an action that no operation has.
func checkBulkAction(name string) error {
	if name != bulk.Replay && !slices.Contains(contract.Actions, name) {
		return invalid("action must be one of " + strings.Join(contract.Actions, ", ") + ", " +
			bulk.Replay)
	}
	return nil
}

// ReadBulk reads an operation from the fields of a form: action, rate, limit, canary and the
// members of the filter. A field without a value is as one that is left out.
func (a *API) ReadBulk(c *httpapi.Call, form url.Values) (r bulk.Request, err error) {
	r.Action = form.Get("action")
	if err := checkBulkAction(r.Action); err != nil {
		return r, err
	}
	for _, n := range []struct {
		name  string
		p     *int
		limit int
	}{{"rate", &r.Rate, maxBulkRate}, {"limit", &r.Limit, maxBulkLimit},
		{"canary", &r.Canary, maxBulkCanary}} {
		if text := form.Get(n.name); text != "" {
			value, err := strconv.ParseUint(text, 10, 31)
			if err != nil || int(value) > n.limit {
				return r, limitError(n.name, n.limit)
			}
			*n.p = int(value)
		}
	}
	allowed := jobFilterNames
	if r.Action == bulk.Replay {
		allowed = letterFilterNames
	}
	f := bodyFilter{}
	for _, name := range allowed {
		if value := form.Get(name); value != "" {
			f[name] = value
		}
	}
	return r, a.setBulkFilter(a.disclosureTo(c), f, form.Get("everything") == "true", &r)
}

// BulkFields are the fields of a form that ReadBulk reads.
func BulkFields() []string {
	all := append([]string{"action", "rate", "limit", "canary", "everything"}, jobFilterNames...)
	return append(all, letterFilterNames...)
}

// readBool reads true or false.
func readBool(name string, raw []byte) (bool, error) {
	value, err := strictjson.Bool(raw)
	if err != nil {
		return false, invalid(name + " must be true or false")
	}
	return value, nil
}

// letterFilterNames are the members of a filter of dead letters (AD-050).
var letterFilterNames = []string{"contract", "queue", "fingerprint", "from", "to"}

// readBulkFilter reads the filter that goes with the action (G-AD-11). One that names nothing is
// refused, unless everything is meant.
func (a *API) readBulkFilter(d disclosure, raw []byte, everything bool,
	r *bulk.Request) error {
	allowed := jobFilterNames
	if r.Action == bulk.Replay {
		allowed = letterFilterNames
	}
	f, err := readFilter(raw, allowed)
	if err != nil {
		return err
	}
	return a.setBulkFilter(d, f, everything, r)
}

// setBulkFilter sets the filter of an operation.
func (a *API) setBulkFilter(d disclosure, f bodyFilter, everything bool, r *bulk.Request) error {
	if err := d.checkSearch(f); err != nil {
		return err
	}
	if len(f) == 0 && !everything {
		return invalid("the filter names nothing; everything: true means all")
	}
	if r.Action == bulk.Replay {
		letters, err := a.readDeadLetterFilter(f)
		r.DeadLetters = &letters
		return err
	}
	jobs, err := a.readJobFilter(f, a.Now())
	r.Jobs = &jobs
	return err
}

// startBulk is POST /admin/v1/bulk (AD-020): 202, or what would be done for a dry run, which is a
// read (G-AD-03).
func (a *API) startBulk(c *httpapi.Call) error {
	b, err := a.readBulk(c)
	switch {
	case callerOf(c).kind == readKind && !b.dryRun:
		a.recordRefusal(c, a.routeOf(c), codeReadOnly)
		return errReadOnly
	case err != nil:
		return err
	case b.dryRun:
		return a.previewBulk(c, b.Request)
	}
	return a.beginBulk(c, b.Request)
}

// beginBulk starts an operation and answers its id.
func (a *API) beginBulk(c *httpapi.Call, r bulk.Request) error {
	o, err := a.StartBulk(c, r)
	if err != nil {
		return err
	}
	answer := strictjson.NewObject(nil)
	answer.Text("bulk_id", o.ID)
	sendObject(c, http.StatusAccepted, &answer)
	return nil
}

// StartBulk starts an operation with an entry of the audit.
func (a *API) StartBulk(c *httpapi.Call, r bulk.Request) (*bulk.Operation, error) {
	return a.bulk.Start(c.Context(), a.Now(), r,
		func(w engine.RecordWriter, o *bulk.Operation) error {
			e := newEntry(c, a.routeOf(c))
			e.Action, e.Target = bulkStart, "bulk:"+o.ID
			var err error
			if e.After, err = encodeState(bulkState(o)); err != nil {
				return err
			}
			return a.audit.write(w, e)
		})
}

// previewBulk answers a dry run.
func (a *API) previewBulk(c *httpapi.Call, r bulk.Request) error {
	p, err := a.PreviewBulk(c.Context(), r)
	if err != nil {
		return err
	}
	shown := a.disclosureTo(c)
	o := strictjson.NewObject(nil)
	o.Int("matching", int64(p.Matching))
	o.Bool("more", p.More)
	o.Int("refused", int64(p.Refused))
	o.Objects("sample", len(p.Jobs)+len(p.DeadLetters), func(i int, o *strictjson.Object) {
		if r.DeadLetters != nil {
			writeDeadLetter(o, shown, p.DeadLetters[i])
			return
		}
		p.Items[i].write(o, shown)
	})
	sendObject(c, http.StatusOK, &o)
	return nil
}

// BulkPreview is what an operation would do.
type BulkPreview struct {
	bulk.Preview
	Items []JobItem // of its Jobs
}

// PreviewBulk returns what an operation would do.
func (a *API) PreviewBulk(ctx context.Context, r bulk.Request) (p BulkPreview, err error) {
	if p.Preview, err = a.bulk.Preview(ctx, r); err != nil {
		return p, err
	}
	p.Items, err = a.JobItems(ctx, p.Jobs)
	return p, err
}

var bulkPages = newPages(nameCursor("bulk"))

// listBulk is GET /admin/v1/bulk: the newest operations first.
func (a *API) listBulk(c *httpapi.Call) error {
	all, next, err := a.ListBulk(c)
	if err != nil {
		return err
	}
	shown := a.disclosureTo(c)
	o := newList(len(all), next, func(i int, o *strictjson.Object) {
		a.writeBulk(o, shown, all[i])
	})
	sendObject(c, http.StatusOK, &o)
	return nil
}

// ListBulk returns the operations that the query of a call asks for, and the cursor of the next
// page.
func (a *API) ListBulk(c *httpapi.Call) (all []*bulk.Operation, next string, err error) {
	limit, after, err := bulkPages.Read(c)
	if err != nil {
		return nil, "", err
	}
	if all, err = a.bulk.List(c.Context(), after, limit+1); err != nil {
		return nil, "", err
	}
	if len(all) > limit {
		all = all[:limit]
		next = bulkPages.Cursor.Format(all[limit-1].ID)
	}
	return all, next, nil
}

// Bulk returns the operation of the path of a call.
func (a *API) Bulk(c *httpapi.Call) (*bulk.Operation, error) {
	return a.bulk.Get(c.Context(), c.PathValue("id"))
}

// showBulk is GET /admin/v1/bulk/{id} (AD-021).
func (a *API) showBulk(c *httpapi.Call) error {
	found, err := a.Bulk(c)
	if err != nil {
		return err
	}
	o := strictjson.NewObject(nil)
	a.writeBulk(&o, a.disclosureTo(c), found)
	sendObject(c, http.StatusOK, &o)
	return nil
}

// changeBulk is POST /admin/v1/bulk/{id}/pause, resume or cancel.
func (a *API) changeBulk(c *httpapi.Call, what bulk.Change) error {
	if _, err := readMembers(c); err != nil {
		return err
	}
	after, err := a.ChangeBulk(c, what)
	if err != nil {
		return err
	}
	o := strictjson.NewObject(nil)
	a.writeBulk(&o, a.disclosureTo(c), after)
	sendObject(c, http.StatusOK, &o)
	return nil
}

// ChangeBulk pauses, resumes or cancels the operation of the path of a call.
func (a *API) ChangeBulk(c *httpapi.Call, what bulk.Change) (*bulk.Operation, error) {
	return a.bulk.Change(c.Context(), c.PathValue("id"), what,
		func(w engine.RecordWriter, before string, o *bulk.Operation) error {
			return a.record(w, c, before, bulkState(o))
		})
}

// writeBulk writes the members of an operation.
func (a *API) writeBulk(o *strictjson.Object, d disclosure, b *bulk.Operation) {
	o.Text("bulk_id", b.ID)
	o.Text("action", b.Action)
	o.Text("state", b.State)
	o.Optional("reason", b.Reason)
	o.Int("done", b.Done)
	o.Int("failed", b.Failed)
	o.Int("skipped", b.Skipped)
	if b.Counted {
		o.Int("total", b.Total)
	} else {
		o.Null("total")
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"rate", b.Rate}, {"limit", b.Limit}, {"canary", b.Canary}} {
		if n.value == 0 {
			o.Null(n.name)
		} else {
			o.Int(n.name, int64(n.value))
		}
	}
	o.Time("started_at", b.StartedAt)
	o.Time("ended_at", b.EndedAt)
	o.Time("eta", b.ETA(a.Now()))
	o.Objects("errors", len(b.Errors), func(i int, o *strictjson.Object) {
		o.Int("number", b.Errors[i].Number)
		d.text(o, "error", b.Errors[i].Error)
	})
}

// clearQueue is POST /admin/v1/queues/{contract}/{queue}/clear (AD-033): a bulk delete of what is
// not over and does not run.
func (a *API) clearQueue(c *httpapi.Call) error {
	if _, err := readMembers(c); err != nil {
		return err
	}
	name := c.PathValue("contract")
	o := contract.OperatorOf(a.Contracts, name)
	if o == nil {
		return &job.Error{Kind: job.NotFound, Op: "admin.queue", Msg: "there is no contract " +
			strconv.Quote(name[:min(len(name), maxQuoted)])}
	}
	if !slices.ContainsFunc(o.Actions, func(one contract.Action) bool {
		return one.Name == contract.ActionDelete
	}) {
		return &httpapi.CodedError{Code: codeNotAllowed,
			Detail: "the jobs of " + name + " cannot be deleted"}
	}
	return a.beginBulk(c, bulk.Request{Action: contract.ActionDelete,
		Jobs: &bulk.JobFilter{Contracts: []string{name}, Queue: c.PathValue("queue"),
			Phases: []job.Phase{job.Waiting, job.Ready}}})
}
