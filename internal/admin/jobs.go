package admin

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
)

// jobListRoutes is the route that lists the jobs of all contracts.
func (a *API) jobListRoutes() []route {
	return []route{{method: "GET", pattern: apiPrefix + "/jobs", action: "job.list",
		handle: a.listJobs, query: httpapi.PageQuery(append(slices.Clone(jobFilterNames),
			"order")...)}}
}

// The bounds of a page of jobs. What the store compares is bounded by time alone; texts need the
// bodies of all jobs that are looked at (AD-012).
const (
	maxListTime   = 30 * time.Millisecond
	maxTextTime   = 500 * time.Millisecond
	maxTextSearch = 200_000
)

// A cursor goes on in the order in which it was made.
var (
	newestJobs = newPages(httpapi.Named("jobs", httpapi.ByNumber))
	oldestJobs = newPages(httpapi.Named("jobs oldest", httpapi.ByNumber))
)

// listJobs is GET /admin/v1/jobs (AD-010): the newest first, unless order is oldest. A page may be
// shorter than its limit, even empty, while there is a next one.
func (a *API) listJobs(c *httpapi.Call) error {
	if err := a.disclosureTo(c).checkSearch(c); err != nil {
		return err
	}
	f, err := a.readJobFilter(c, a.Now())
	if err != nil {
		return err
	}
	order := ""
	if err := readChoice(c, "order", &order, "newest", "oldest"); err != nil {
		return err
	}
	pages := newestJobs
	if order == "oldest" {
		pages = oldestJobs
	}
	limit, after, err := pages.Read(c)
	if err != nil {
		return err
	}
	page, err := a.FindJobs(c.Context(), &f, bulk.JobPage{After: after, Limit: limit,
		Oldest: order == "oldest"})
	if err != nil {
		return err
	}
	next, shown := "", a.disclosureTo(c)
	if page.Next > 0 {
		next = pages.Cursor.Format(page.Next)
	}
	o := newList(len(page.Items), next, func(i int, o *strictjson.Object) {
		page.Items[i].write(o, shown)
	})
	o.Time("searched_to", page.SearchedTo)
	sendObject(c, 200, &o)
	return nil
}

// JobPage is a page of jobs.
type JobPage struct {
	Items []JobItem
	Next  int64 // the After of the next page, 0 on the last one
	// SearchedTo is when the last job was created that was looked at, where a bound has ended the
	// page.
	SearchedTo time.Time
}

// FindJobs returns a page of the jobs that match a filter, bounded as one request is.
func (a *API) FindJobs(ctx context.Context, f *bulk.JobFilter,
	p bulk.JobPage) (page JobPage, err error) {
	if p.MaxTime = maxListTime; f.Text != "" || f.Error != "" {
		p.MaxTime, p.MaxJobs = maxTextTime, maxTextSearch
	}
	found, err := a.bulk.FindJobs(ctx, f, p)
	if err != nil {
		return page, err
	}
	page.Next, page.SearchedTo = found.Next, found.SearchedTo
	page.Items, err = a.JobItems(ctx, found.Jobs)
	return page, err
}
