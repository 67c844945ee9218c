package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// The list of jobs has the filters of the API as the fields of one form, which is sent by GET: so
// the address of a page is the search, and can be kept and sent on. The tabs are links with one
// filter changed. A wrong filter does not lose the others: the page comes back with what was typed
// and shows the problem in the field (admin.API.FilterErrors).

// jobListPages is the list of jobs (CO-003). Its bulk actions are forms of the page of bulk.go that
// shows what they would do.
func (o *Console) jobListPages() []admin.Page {
	return []admin.Page{{Method: "GET", Pattern: Path + "/jobs", Action: "console.jobs",
		Query: admin.JobQuery(), Handle: o.show(o.showJobs)}}
}

// jobsPage is what the list of jobs shows.
type jobsPage struct {
	Query       url.Values        // of the filters
	FieldErrors map[string]string // the problem of a filter, by its name
	Filtered    bool
	More        []filterField // filters that are folded until one of them is set
	HasMore     bool          // one of them is set
	Tabs        []tab         // of the phases, and of the states where a contract is chosen
	ByState     []tab
	Fields      []field // the filters as a form sends them on

	Contracts, States, Actions []string
	admin.JobPage
	NextPage string
	Dead     int64  // the jobs that were given up, where these are counted
	Of       string // how many of how many the page shows; "" where that is not known
	Search   *textSearch
	// Live says that the list is read again and again: searches of texts are too dear for that.
	Live bool
}

// filterField is a filter that is a field with a text.
type filterField struct{ Name, Label, Example, Value, Error string }

// moreFilters are those that are seldom needed.
var moreFilters = []filterField{
	{Name: "id", Label: "Id, exactly"}, {Name: "number", Label: "Numbers", Example: "12,17"},
	{Name: "parent", Label: "Children of number", Example: "12"}, {Name: "kind", Label: "Kind"},
	{Name: "owner", Label: "Owner"}, {Name: "worker", Label: "Worker"},
	{Name: "min_age", Label: "At least as old as", Example: "90m"},
	{Name: "max_age", Label: "Younger than", Example: "24h"},
	{Name: "created_from", Label: "Created from", Example: timeExample},
	{Name: "created_before", Label: "Created before", Example: timeExample},
	{Name: "settled_from", Label: "Done from", Example: timeExample},
	{Name: "settled_before", Label: "Done before", Example: timeExample},
	{Name: "min_attempts", Label: "Attempts at least", Example: "2"},
}

// timeExample is how a time is written.
const timeExample = "2026-03-01T12:00:00Z"

// tab is a link that sets one filter.
type tab struct {
	Text, Path string
	Current    bool
	Count      string // of the jobs that it shows; "" where that is not known
}

// phases are those that the tabs of the list select, "" for all.
var phases = []string{"", job.Waiting.String(), job.Ready.String(), job.Leased.String(),
	job.Done.String(), "dead"}

// showJobs is GET /console/jobs. A wrong filter is marked in its field.
func (o *Console) showJobs(c *httpapi.Call) (view, error) {
	q := c.Request.URL.Query()
	p := jobsPage{Query: q, FieldErrors: o.api.FilterErrors(c), Contracts: o.api.ContractNames(),
		States: o.api.StateNames(q.Get("contract")), Actions: contract.Actions,
		Live: q.Get("text") == "" && q.Get("error") == ""}
	v := view{Name: "jobs", Title: "Jobs", Live: liveScope{Queue: q.Get("contract")}}
	filters := url.Values{}
	for name, values := range q {
		if name != "cursor" && name != "limit" {
			filters[name] = values
		}
	}
	p.Fields = fieldsOf(filters, "order")
	p.Filtered = len(p.Fields) > 0
	for _, f := range moreFilters {
		f.Value, f.Error = q.Get(f.Name), strings.TrimPrefix(p.FieldErrors[f.Name], f.Name+" ")
		p.HasMore = p.HasMore || f.Value != ""
		p.More = append(p.More, f)
	}
	for _, phase := range phases {
		p.Tabs = append(p.Tabs, tabOf(filters, "phase", phase))
	}
	if len(p.FieldErrors) > 0 {
		v.Page, v.Status = p, http.StatusBadRequest
		return v, nil
	}
	if err := o.addCounts(c, filters, &p); err != nil {
		return v, err
	}
	page, next, err := o.api.ListJobs(c, maxSearchTime)
	o.api.Viewer(c).RedactItems(page.Items)
	if p.JobPage, p.NextPage = page, nextPage(c.Request, next); !p.Live {
		p.Search = o.searchOf(c, page.SearchedTo, len(page.Items), page.Limit, next)
	}
	for _, t := range p.Tabs {
		if t.Current && t.Count != "" && !filters.Has("state") {
			p.Of = number(len(page.Items)) + " of " + t.Count
		}
	}
	v.Page = p
	return v, err
}

// tabOf returns the tab that sets a filter to a value, "" for none, and keeps the other filters.
func tabOf(filters url.Values, name, value string) tab {
	query := url.Values{}
	for other, values := range filters {
		if other != name {
			query[other] = values
		}
	}
	if value != "" {
		query.Set(name, value)
	}
	return tab{Text: value, Path: jobsPath(query), Current: filters.Get(name) == value}
}

// addCounts adds how many jobs there are by phase and, of one contract, by state (AD-018). They are
// counted by contract and queue alone, so with other filters there are none.
func (o *Console) addCounts(c *httpapi.Call, filters url.Values, p *jobsPage) error {
	for name := range filters {
		if !slices.Contains([]string{"contract", "queue", "phase", "state", "order"}, name) {
			return nil
		}
	}
	q := admin.CountQuery{By: admin.ByPhase, Contract: filters.Get("contract"),
		Queue: filters.Get("queue")}
	counts, err := o.api.Counts(c.Context(), q)
	if err != nil {
		return err
	}
	all := admin.JobCount{}
	for _, n := range counts {
		all.Jobs += n.Jobs - n.Gone // which the list has among the dead alone
		at := slices.IndexFunc(p.Tabs, func(t tab) bool { return t.Text == n.Value })
		p.Tabs[max(0, at)].Count = countText(&n)
		if n.Value == "dead" {
			p.Dead = n.Jobs
		}
	}
	p.Tabs[0].Count = countText(&all)
	if q.Contract == "" {
		return nil
	}
	q.By = admin.ByState
	if counts, err = o.api.Counts(c.Context(), q); err != nil {
		return err
	}
	for _, n := range counts {
		t := tabOf(filters, "state", n.Value)
		t.Count = countText(&n)
		p.ByState = append(p.ByState, t)
	}
	return nil
}

// countText formats a count.
func countText(n *admin.JobCount) string {
	if n.AtLeast {
		return number(n.Jobs) + "+"
	}
	return number(n.Jobs)
}

// jobsPath returns the path of the list of the jobs that a query selects.
func jobsPath(query url.Values) string {
	return strings.TrimSuffix(Path+"/jobs?"+query.Encode(), "?")
}

// jobsWhere is jobsPath for names of filters and their values, one after the other.
func jobsWhere(pairs ...string) string {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	return jobsPath(query)
}

// fieldsOf returns the parameters of a query but for some as fields, by their names.
func fieldsOf(query url.Values, except ...string) (all []field) {
	for name, values := range query {
		if !slices.Contains(except, name) {
			all = append(all, field{name, strings.Join(values, ",")})
		}
	}
	slices.SortFunc(all, func(a, b field) int { return strings.Compare(a.Name, b.Name) })
	return all
}
