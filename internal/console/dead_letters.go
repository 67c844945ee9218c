package console

import (
	"net/url"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// Dead letters are shown in groups of one reason first, as there may be thousands of one kind, and
// one by one behind the link of a group. A replay of all that a list shows is a bulk operation with
// the filter of the list.

// deadLetterPages are the pages of dead letters and the forms on them.
func (o *Console) deadLetterPages() []admin.Page {
	const all, one = Path + "/dead-letters", Path + "/dead-letters/{id}"
	target := func(c *httpapi.Call) string { return "dead_letter:" + c.PathValue("id") }
	return []admin.Page{
		{Method: "GET", Pattern: all, Action: "console.dead_letter_groups",
			Query: httpapi.PageQuery("contract"), Handle: o.show(o.showGroups)},
		{Method: "GET", Pattern: all + "/list", Action: "console.dead_letters",
			Query:  httpapi.PageQuery("contract", "queue", "fingerprint", "error", "from", "to"),
			Handle: o.show(o.showDeadLetters)},
		{Method: "POST", Pattern: one + "/replay", Action: "console.dead_letter.replay",
			Audit: "dead_letter.replay", Target: target, Handle: o.submit(o.replayDeadLetter, "again")},
		{Method: "POST", Pattern: one + "/discard", Action: "console.dead_letter.discard",
			Audit: "dead_letter.discard", Target: target,
			Handle: o.submit(func(c *httpapi.Call, _ url.Values) (string, error) {
				return all, o.api.DiscardDeadLetter(c)
			})},
	}
}

// showGroups is GET /console/dead-letters: the groups of what was not replayed.
func (o *Console) showGroups(c *httpapi.Call) (view, error) {
	groups, next, searchedTo, err := o.api.ListDeadLetterGroups(c)
	if err != nil {
		return view{}, err
	}
	viewer := o.api.Viewer(c)
	for _, g := range groups {
		viewer.RedactDeadLetters(g.Newest)
	}
	return view{Name: "groups", Title: "Dead letters", Page: struct {
		Contract   string
		Contracts  []string
		Groups     []admin.DeadLetterGroup
		SearchedTo time.Time
		Next       string
	}{c.Request.URL.Query().Get("contract"), o.api.ContractNames(), groups, searchedTo,
		nextPage(c.Request, next)}}, nil
}

// showDeadLetters is GET /console/dead-letters/list.
func (o *Console) showDeadLetters(c *httpapi.Call) (view, error) {
	found, next, err := o.api.ListDeadLetters(c, maxSearchTime)
	if err != nil {
		return view{}, err
	}
	viewer := o.api.Viewer(c)
	for i := range found.Items {
		viewer.RedactDeadLetters(&found.Items[i])
	}
	q := c.Request.URL.Query()
	isLive, search := q.Get("error") == "", (*textSearch)(nil)
	if !isLive {
		search = o.searchOf(c, found.SearchedTo, len(found.Items), found.Limit, next)
	}
	q.Del("cursor")
	q.Del("limit")
	if len(q) == 0 {
		q.Set("everything", "true")
	}
	q.Set("action", "replay")
	return view{Name: "dead_letters", Title: "Dead letters one by one", Page: struct {
		Query       url.Values
		Bulk        string // the address of a replay of all of them
		DeadLetters []job.DeadLetter
		Next        string
		Live        bool // as for jobs: searches of texts are too dear for that
		Search      *textSearch
	}{c.Request.URL.Query(), Path + "/bulk/new?" + q.Encode(), found.Items,
		nextPage(c.Request, next), isLive, search}}, nil
}

// replayDeadLetter is POST /console/dead-letters/{id}/replay. It goes to the job that runs then.
func (o *Console) replayDeadLetter(c *httpapi.Call, form url.Values) (string, error) {
	_, j, err := o.api.ReplayDeadLetter(c, form.Get("again") == "true")
	if err != nil {
		return "", err
	}
	return pathOf("jobs", strconv.FormatInt(j.Seq, 10)), nil
}
