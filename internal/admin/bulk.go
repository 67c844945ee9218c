package admin

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// These routes start, list, show and steer bulk operations (package bulk). Each operation writes an
// entry of the audit at its start and one at its end (G-AD-04).

// bulkRoutes are the routes of bulk operations.
func (a *API) bulkRoutes() []route {
	const all, one = apiPrefix + "/bulk", apiPrefix + "/bulk/{id}"
	routes := []route{
		{method: "GET", pattern: all, action: "bulk.list", handle: a.listBulk,
			query: httpapi.PageQuery()},
		{method: "POST", pattern: all, action: bulkStart, handle: a.startBulk,
			target: FixedTarget("bulk"), body: true, dryRun: true},
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

// bulkState returns what the audit keeps of an operation, in the words that clients know.
func bulkState(o *bulk.Operation) any {
	r := o.Request
	if r.Jobs != nil {
		jobs := *r.Jobs
		jobs.JobTypes = contractNames(jobs.JobTypes)
		r.Jobs = &jobs
	}
	if r.DeadLetters != nil {
		deadLetters := *r.DeadLetters
		deadLetters.JobTypes = contractNames(deadLetters.JobTypes)
		r.DeadLetters = &deadLetters
	}
	return struct {
		bulk.Request
		State   string `json:"state"`
		Done    int64  `json:"done"`
		Failed  int64  `json:"failed"`
		Skipped int64  `json:"skipped"`
	}{r, o.State, o.Done, o.Failed, o.Skipped}
}

// contractNames returns the public names of the contracts of some job types.
func contractNames(jobTypes []string) (names []string) {
	for _, name := range jobTypes {
		if public := contract.PublicName(name); !slices.Contains(names, public) {
			names = append(names, public)
		}
	}
	return names
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
	sendBulkID(c, o)
	return nil
}

// sendBulkID answers the id of an operation that has begun.
func sendBulkID(c *httpapi.Call, o *bulk.Operation) {
	answer := strictjson.NewObject(nil)
	answer.Text("bulk_id", o.ID)
	sendObject(c, http.StatusAccepted, &answer)
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
	p, err := a.PreviewBulk(c.Context(), r, bulk.MaxSearchTime)
	if err != nil {
		return err
	}
	shown := a.disclosureTo(c)
	o := strictjson.NewObject(nil)
	o.Int("matching", int64(p.Matching))
	o.Bool("more", p.More)
	o.Time("searched_to", p.SearchedTo)
	o.Time(AsOf, p.AsOf)
	o.Int("refused", int64(p.Refused))
	o.Objects("sample", len(p.Jobs)+len(p.DeadLetters), func(i int, o *strictjson.Object) {
		if r.DeadLetters != nil {
			writeDeadLetter(o, shown, p.DeadLetters[i])
			return
		}
		p.Items[i].Write(o, bool(shown))
	})
	sendObject(c, http.StatusOK, &o)
	return nil
}

// BulkPreview describes what an operation would do.
type BulkPreview struct {
	bulk.Preview
	Items []JobItem // of its Jobs
}

// PreviewBulk returns what an operation would do. A search of texts goes on for searchTime.
func (a *API) PreviewBulk(ctx context.Context, r bulk.Request,
	searchTime time.Duration) (p BulkPreview, err error) {
	if p.Preview, err = a.bulk.Preview(ctx, r, searchTime); err != nil {
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

// clearQueue is POST /admin/v1/queues/{contract}/{queue}/clear (AD-033): a bulk delete of the jobs
// that are not done and do not run.
func (a *API) clearQueue(c *httpapi.Call) error {
	if _, err := readMembers(c); err != nil {
		return err
	}
	r, err := a.ClearRequest(c, "")
	if err != nil {
		return err
	}
	return a.beginBulk(c, r)
}

// ClearRequest returns the operation that clears the queue of the path of a call, as of the time of
// a preview; "" is the start.
func (a *API) ClearRequest(c *httpapi.Call, asOf string) (r bulk.Request, err error) {
	name := c.PathValue("contract")
	if err := a.checkQueueContract(name); err != nil {
		return r, err
	}
	if !a.CanClear(name) {
		return r, &httpapi.CodedError{Code: codeNotAllowed,
			Detail: "the jobs of " + name + " cannot be deleted"}
	}
	f := &bulk.JobFilter{JobTypes: []string{name}, Queue: c.PathValue("queue"),
		Phases: []job.Phase{job.Waiting, job.Ready}}
	r = bulk.Request{Action: contract.ActionDelete, Jobs: f}
	if asOf != "" {
		r.AsOf, err = a.parseAsOf(c.Context(), asOf)
	}
	return r, err
}

// CanClear reports whether the jobs of a job type can be deleted, so that its queues can be
// cleared.
func (a *API) CanClear(jobType string) bool {
	return slices.ContainsFunc(a.operatorOf(jobType).Actions, func(one contract.Action) bool {
		return one.Name == contract.ActionDelete
	})
}
