package admin

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
)

// A list of jobs is bounded by time and not by how many match, as a filter may match few of very
// many jobs. A page that ends at the bound is shorter than its limit, perhaps empty; searched_to
// says how far it came, and its cursor goes on from there:
//
//	filters that the store compares   maxListTime
//	text, error                       bulk.MaxSearchTime, and at most bulk.MaxSearchJobs: for them
//	                                  bodies are read; a page of the console has less time

// jobListRoutes is the route that lists the jobs of all contracts.
func (a *API) jobListRoutes() []route {
	return []route{{method: "GET", pattern: apiPrefix + "/jobs", action: "job.list",
		handle: a.listJobs, query: JobQuery()}}
}

// maxListTime is how long a page of jobs is searched by what the store compares.
const maxListTime = 12 * time.Millisecond

// A cursor goes on in the order in which it was made.
var (
	newestJobPages = newPages(httpapi.Named("jobs", httpapi.ByNumber))
	oldestJobPages = newPages(httpapi.Named("jobs oldest", httpapi.ByNumber))
)

// listJobs is GET /admin/v1/jobs (AD-010): the newest first, unless order is oldest. A page may be
// shorter than its limit, even empty, while there is a next one.
func (a *API) listJobs(c *httpapi.Call) error {
	page, next, err := a.ListJobs(c, bulk.MaxSearchTime)
	if err != nil {
		return err
	}
	shown := a.disclosureTo(c)
	o := newList(len(page.Items), next, func(i int, o *strictjson.Object) {
		page.Items[i].Write(o, bool(shown))
	})
	o.Time("searched_to", page.SearchedTo)
	sendObject(c, 200, &o)
	return nil
}

// JobQuery are the query parameters of a list of jobs: those of AD-010 and of its pages.
func JobQuery() []string {
	return httpapi.PageQuery(append(slices.Clone(jobFilterNames), "order")...)
}

// ListJobs returns the jobs that the query of a call asks for, and the cursor of the next page. A
// search of texts goes on for searchTime.
func (a *API) ListJobs(c *httpapi.Call, searchTime time.Duration) (page JobPage, next string,
	err error) {
	if err := a.disclosureTo(c).checkSearch(c); err != nil {
		return page, "", err
	}
	f, err := a.readJobFilter(c.Context(), c, time.Time{})
	if err != nil {
		return page, "", err
	}
	order := ""
	if err := readOrder(c, &order); err != nil {
		return page, "", err
	}
	pages := newestJobPages
	if order == orderOldest {
		pages = oldestJobPages
	}
	limit, after, err := pages.Read(c)
	if err != nil {
		return page, "", err
	}
	page, err = a.findJobs(c.Context(), &f, boundsOf(f.SearchesTexts(), searchTime,
		bulk.JobPage{After: after, Limit: limit, Oldest: order == orderOldest}))
	if page.Next > 0 {
		next = pages.Cursor.Format(page.Next)
	}
	return page, next, err
}

// The orders of a list of jobs.
const (
	orderNewest = "newest"
	orderOldest = "oldest"
)

// readOrder reads the order of a list of jobs into p, if it is given.
func readOrder(c parameters, p *string) error {
	return readChoice(c, "order", p, orderNewest, orderOldest)
}

// jobFilterRanges are the filters that bound one thing together.
var jobFilterRanges = [][2]string{{"created_from", "created_before"},
	{"settled_from", "settled_before"}, {"min_age", "max_age"}}

// FilterErrors returns the problems of the filters of a list of jobs, by their names.
func (a *API) FilterErrors(c *httpapi.Call) map[string]string {
	wrong := map[string]string{}
	for name, values := range c.Request.URL.Query() {
		if !slices.Contains(jobFilterNames, name) && name != "order" {
			continue
		}
		order, one := "", bodyFilter{name: values[0]}
		_, err := a.readJobFilter(c.Context(), one, time.Time{})
		if len(values) > 1 {
			err = invalid(name + " is given twice")
		}
		if err = firstError(err, a.disclosureTo(c).checkSearch(one),
			readOrder(one, &order)); err != nil {
			wrong[name] = Answer(err).Detail
		}
	}
	for _, pair := range jobFilterRanges {
		both := bodyFilter{}
		for _, name := range pair {
			if value := c.Request.URL.Query().Get(name); value != "" && wrong[name] == "" {
				both[name] = value
			}
		}
		if _, err := a.readJobFilter(c.Context(), both, time.Time{}); err != nil {
			wrong[pair[0]] = Answer(err).Detail
		}
	}
	return wrong
}

// JobPage is a page of jobs.
type JobPage struct {
	Items []JobItem
	Limit int   // how many a whole page has
	Next  int64 // the After of the next page, 0 on the last one
	// SearchedTo is when the last job was created that was looked at, where a bound has ended the
	// page.
	SearchedTo time.Time
}

// findJobs returns a page of the jobs that match a filter, with those that are deleted and left an
// open dead letter, where it selects dead ones.
func (a *API) findJobs(ctx context.Context, f *bulk.JobFilter,
	p bulk.JobPage) (page JobPage, err error) {
	found, err := a.bulk.ListJobs(ctx, f, p)
	if err != nil {
		return page, err
	}
	page.Limit, page.Next, page.SearchedTo = p.Limit, found.Next, found.SearchedTo
	page.Items, err = a.JobItems(ctx, found.Jobs)
	return page, err
}

// boundsOf bounds a page as one request is.
func boundsOf(searchesTexts bool, searchTime time.Duration, p bulk.JobPage) bulk.JobPage {
	if p.MaxTime = maxListTime; searchesTexts {
		p.MaxTime, p.MaxJobs = searchTime, bulk.MaxSearchJobs
	}
	return p
}
