package console

import (
	"net/url"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// The inbox shows what programs have submitted by SQL, the newest first, and for those requests
// that a contract has refused the reason and a button to try again. Only PostgreSQL has an inbox.

// inboxPages are the page of the inbox and the forms on it.
func (o *Console) inboxPages() []admin.Page {
	const all, one = Path + "/inbox", Path + "/inbox/{id}"
	form := func(path, action string, do func(*httpapi.Call) error) admin.Page {
		return admin.Page{Method: "POST", Pattern: one + path, Action: "console." + action,
			Audit:  action,
			Target: func(c *httpapi.Call) string { return "inbox:" + c.PathValue("id") },
			Handle: o.submit(func(c *httpapi.Call, _ url.Values) (string, error) {
				return all, do(c)
			})}
	}
	return []admin.Page{
		{Method: "GET", Pattern: all, Action: "console.inbox",
			Query: httpapi.PageQuery("state", "contract"), Handle: o.show(o.showInbox)},
		form("/retry", "inbox.retry", o.api.RetryInboxRequest),
		form("/discard", "inbox.discard", o.api.DiscardInboxRequest),
	}
}

// showInbox is GET /console/inbox.
func (o *Console) showInbox(c *httpapi.Call) (view, error) {
	found, next, err := o.api.ListInbox(c)
	if err != nil {
		return view{}, err
	}
	o.api.Viewer(c).RedactInbox(found)
	q := c.Request.URL.Query()
	return view{Name: "inbox", Title: "Inbox", Page: struct {
		State, Contract string
		Requests        []job.InboxRequest
		Next            string
	}{q.Get("state"), q.Get("contract"), found, nextPage(c.Request, next)}}, nil
}
