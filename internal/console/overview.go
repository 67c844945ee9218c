package console

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/series"
)

// overviewPages are the first page, with and without a slash behind it.
func (o *Console) overviewPages() []admin.Page {
	return []admin.Page{
		{Method: "GET", Pattern: Path, Action: "console.show", Query: []string{"range"},
			Handle: o.show(o.showOverview)},
		{Method: "GET", Pattern: Path + "/", Action: "console.slash", Query: []string{"range"},
			Handle: o.show(o.showOverview)},
	}
}

// overviewPage is what the overview shows.
type overviewPage struct {
	Range      string
	Totals     totals
	Charts     []chart
	Oldest     []queueRow // the worst by age
	Failing    []queueRow // the worst by failures
	Attention  []attention
	QueueCount int
}

// totals are the jobs of all queues by where they stand.
type totals struct{ Waiting, Delayed, Ready, Leased, Dead int64 }

// attention is something that needs somebody.
type attention struct {
	Text, Path, Do string
	Since          time.Time
}

// worst is how many queues the overview shows by age and by failures.
const worst = 10

// showOverview is GET /console (CO-002).
func (o *Console) showOverview(c *httpapi.Call) (view, error) {
	all, err := o.api.Queues(c.Context(), "")
	if err != nil {
		return view{}, err
	}
	p := overviewPage{Range: c.Request.URL.Query().Get("range"), QueueCount: len(all)}
	if ranges[p.Range] == 0 {
		p.Range = "1h"
	}
	if p.Charts, err = o.charts(c, series.Query{}); err != nil {
		return view{}, err
	}
	for _, q := range all {
		p.Totals.Waiting += q.Waiting
		p.Totals.Delayed += q.Delayed
		p.Totals.Ready += q.Ready
		p.Totals.Leased += q.Leased
		p.Totals.Dead += q.Dead
	}
	for _, q := range admin.WorstQueues(all, "age", worst) {
		if !q.ReadySince.IsZero() {
			p.Oldest = append(p.Oldest, rowOf(q))
		}
	}
	for _, q := range admin.WorstQueues(all, "failures", worst) {
		if row := rowOf(q); row.Rates != nil && row.Rates.HasFailures {
			p.Failing = append(p.Failing, row)
		}
	}
	p.Attention, err = o.attention(c.Context(), all)
	return view{Name: "overview", Title: "Overview", Page: p}, err
}

// maxAttention bounds what is named of one sort.
const maxAttention = 10

// attention returns what needs somebody, with a page for each.
func (o *Console) attention(ctx context.Context, queues []admin.QueueItem) (all []attention,
	err error) {
	parts, _ := o.api.Health(ctx)
	for _, p := range parts {
		if p.Failing {
			all = append(all, attention{Text: p.Name + " fails: " + p.LastError,
				Path: Path + "/health", Do: "Health", Since: p.Since})
		}
	}
	all = append(all, queuesInNeed(queues)...)
	hooks, err := o.api.DisabledWebhooks(ctx, maxAttention)
	if err != nil {
		return nil, err
	}
	for i := range hooks {
		all = append(all, attention{Text: "a webhook is disabled: " + hooks[i].DisabledReason,
			Path: Path + "/webhooks/" + hooks[i].ID, Do: "Deliveries", Since: hooks[i].FailingSince})
	}
	schedules, err := o.api.Schedules.List(ctx, "", 500)
	if err != nil {
		return nil, err
	}
	for _, s := range schedules {
		latest := s.Latest()
		if latest != nil && latest.Outcome == schedule.Missed && len(all) < 5*maxAttention {
			all = append(all, attention{Text: "schedule " + s.Name + " has missed its latest time",
				Path: pathOf("schedules", s.Name), Do: "Schedule", Since: latest.Time})
		}
	}
	return all, nil
}

// queuesInNeed returns the queues that are paused with jobs, and those for whose ready jobs nobody
// asks.
func queuesInNeed(queues []admin.QueueItem) (all []attention) {
	for _, q := range queues {
		name, page := q.Contract+"/"+q.Queue, pathOf("queues", q.Contract, q.Queue)
		jobs := "1 ready job"
		if q.Ready > 1 {
			jobs = number(q.Ready) + " ready jobs"
		}
		switch {
		case len(all) >= 2*maxAttention || q.Ready == 0:
		case q.Settings.Paused:
			all = append(all, attention{Text: "queue " + name + " is paused with " + jobs,
				Path: page, Do: "Queue", Since: q.ReadySince})
		case !q.Pollers.Asking && q.Leased == 0:
			all = append(all, attention{Text: "nobody asks for " + jobs + " of queue " + name,
				Path: page, Do: "Queue", Since: q.ReadySince})
		}
	}
	return all
}
