package admin

import (
	"context"
	"net/http"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
)

// What producers have submitted by SQL (package inbox). A request that was refused stays with its
// reason until an operator retries or discards it; one that waits is taken by a node on its own. A
// database without an inbox has no requests.

// inboxRoutes are the routes of the inbox (TX-003).
func (a *API) inboxRoutes() []route {
	const all, one = apiPrefix + "/inbox", apiPrefix + "/inbox/{id}"
	return []route{
		{method: "GET", pattern: all, action: "inbox.list", handle: a.listInbox,
			query: httpapi.PageQuery("state", "contract")},
		{method: "GET", pattern: one, action: "inbox.show", handle: a.showInboxRequest},
		{method: "POST", pattern: one + "/retry", action: "inbox.retry",
			handle: a.retryInboxRequest, target: inboxTarget, body: true},
		{method: "DELETE", pattern: one, action: "inbox.discard", handle: a.discardInboxRequest,
			target: inboxTarget},
	}
}

// inboxTarget names the request of the path for the audit.
func inboxTarget(c *httpapi.Call) string { return "inbox:" + c.PathValue("id") }

var inboxPages = newPages(httpapi.Named("inbox", httpapi.ByNumber))

// listInbox is GET /admin/v1/inbox: the newest first. Of a contract a page may be shorter than its
// limit, even empty, while there is a next one.
func (a *API) listInbox(c *httpapi.Call) error {
	page, next, err := a.ListInbox(c)
	if err != nil {
		return err
	}
	shown := a.disclosureTo(c)
	o := newList(len(page), next, func(i int, o *strictjson.Object) {
		writeInboxRequest(o, shown, &page[i])
	})
	sendObject(c, http.StatusOK, &o)
	return nil
}

// ListInbox returns the requests in the inbox that the query of a call asks for, without their
// bodies, and the cursor of the next page.
func (a *API) ListInbox(c *httpapi.Call) (page []job.InboxRequest, next string, err error) {
	var f job.InboxFilter
	err = firstError(readText(c, "contract", &f.Contract),
		readChoice(c, "state", (*string)(&f.State), string(job.InboxWaiting),
			string(job.InboxSubmitted), string(job.InboxRefused)))
	if err != nil {
		return nil, "", err
	}
	if f.Limit, f.Before, err = inboxPages.Read(c); err != nil {
		return nil, "", err
	}
	page, before, err := a.Engine.ListInbox(c.Context(), f)
	if before > 0 {
		next = inboxPages.Cursor.Format(before)
	}
	return page, next, err
}

// writeInboxRequest writes the members of a request without its body.
func writeInboxRequest(o *strictjson.Object, d disclosure, r *job.InboxRequest) {
	o.Text("id", r.ID)
	o.Int("number", r.Number)
	o.Text("state", string(r.State))
	o.Text("contract", r.Contract)
	o.Optional("owner", r.Owner)
	o.Optional("job_type", r.Type)
	o.Optional("idempotency_key", r.Key)
	o.Text("producer", r.Producer)
	o.Time("created_at", r.CreatedAt)
	o.Time("finished_at", r.FinishedAt)
	if r.Job == 0 {
		o.Null("job")
	} else {
		o.Int("job", r.Job)
	}
	o.Optional("job_id", r.JobID)
	d.text(o, "error", r.Error)
}

// showInboxRequest is GET /admin/v1/inbox/{id}, with the request itself.
func (a *API) showInboxRequest(c *httpapi.Call) error {
	r, err := a.InboxRequest(c)
	if err != nil {
		return err
	}
	a.sendInboxRequest(c, r)
	return nil
}

// InboxRequest returns the request of the path of a call, without what its contract hides.
func (a *API) InboxRequest(c *httpapi.Call) (*job.InboxRequest, error) {
	id, ok := uuids.Parse(c.PathValue("id"))
	if !ok {
		return nil, engine.ErrNoRequest
	}
	r, err := a.Engine.InboxRequest(c.Context(), id)
	if err != nil {
		return nil, err
	}
	j := job.Job{Payload: r.Body}
	a.operatorOf(r.Contract).HideSecrets(&j)
	r.Body = j.Payload
	return r, nil
}

// sendInboxRequest answers with a request.
func (a *API) sendInboxRequest(c *httpapi.Call, r *job.InboxRequest) {
	o, shown := strictjson.NewObject(make([]byte, 0, 512+len(r.Body))), a.disclosureTo(c)
	writeInboxRequest(&o, shown, r)
	body, isCut := contract.ShownBody(r.Body, maxBodyShown)
	shown.raw(&o, "request", body)
	o.Bool("truncated", isCut && shown.SeesPayloads())
	sendObject(c, http.StatusOK, &o)
}

// retryInboxRequest is POST /admin/v1/inbox/{id}/retry.
func (a *API) retryInboxRequest(c *httpapi.Call) error {
	if _, err := readMembers(c); err != nil {
		return err
	}
	if err := a.RetryInboxRequest(c); err != nil {
		return err
	}
	return a.showInboxRequest(c)
}

// RetryInboxRequest lets the request of the path of a call, which was refused, wait again.
func (a *API) RetryInboxRequest(c *httpapi.Call) error {
	return a.changeInbox(c, a.Engine.RetryInbox, job.InboxWaiting)
}

// discardInboxRequest is DELETE /admin/v1/inbox/{id}.
func (a *API) discardInboxRequest(c *httpapi.Call) error {
	if err := a.DiscardInboxRequest(c); err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// DiscardInboxRequest removes the request of the path of a call.
func (a *API) DiscardInboxRequest(c *httpapi.Call) error {
	return a.changeInbox(c, a.Engine.DiscardInbox, "")
}

// changeInbox changes the request of the path of a call, with its entry of the audit. It is gone in
// the state "".
func (a *API) changeInbox(c *httpapi.Call, change func(context.Context, string,
	func(engine.RecordWriter, *job.InboxRequest) error) error, to job.InboxState) error {
	id, ok := uuids.Parse(c.PathValue("id"))
	if !ok {
		return engine.ErrNoRequest
	}
	return change(c.Context(), id, func(w engine.RecordWriter, before *job.InboxRequest) error {
		var after any
		if to != "" {
			after = inboxState{to, before.Contract}
		}
		return a.record(w, c, inboxState{before.State, before.Contract}, after)
	})
}

// inboxState is a request in the audit.
type inboxState struct {
	State    job.InboxState `json:"state"`
	Contract string         `json:"contract"`
}
