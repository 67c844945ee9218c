package console

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/series"
)

// The overview shows what an operator needs to see first: problems (attention), how many jobs
// stand where, what has happened lately, and the queues that are worst. It costs one list of all
// queues and one series, whatever the number of jobs.
//
// Something needs attention where it does not get better by itself. Problems for one reason with
// many things is one entry, so that a thousand paused queues do not hide a part that fails.

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
	Shown      int // how many of these are shown at first
	QueueCount int
}

// totals count the jobs of all queues.
type totals struct{ Waiting, Delayed, Ready, Leased, Dead int64 }

// attention is a state that an operator should look at, with the page that shows it.
type attention struct {
	Many                 string // how many things it is about; "" for one
	Text, Path, LinkText string
	Since                time.Time
}

// shownAttention is how many of them are shown before the list is unfolded.
const shownAttention = 6

// maxWorst is how many queues the overview shows by age and by failures.
const maxWorst = 10

// showOverview is GET /console (CO-002).
func (o *Console) showOverview(c *httpapi.Call) (view, error) {
	rangeName, err := rangeOf(c)
	if err != nil {
		return view{}, err
	}
	queues, err := o.api.Queues(c.Context())
	if err != nil {
		return view{}, err
	}
	all := admin.WithoutInternal(queues)
	p := overviewPage{Range: rangeName, QueueCount: len(all), Shown: shownAttention}
	if p.Charts, err = o.charts(c, rangeName, series.Query{}); err != nil {
		return view{}, err
	}
	for _, q := range all {
		p.Totals.Waiting += q.Waiting
		p.Totals.Delayed += q.Delayed
		p.Totals.Ready += q.Ready
		p.Totals.Leased += q.Leased
		p.Totals.Dead += q.Dead
	}
	for _, q := range admin.WorstQueues(all, "age", maxWorst) {
		if !q.ReadySince.IsZero() {
			p.Oldest = append(p.Oldest, rowOf(q))
		}
	}
	for _, q := range admin.WorstQueues(all, "failures", maxWorst) {
		if row := rowOf(q); row.Rates != nil && row.Rates.HasFailures {
			p.Failing = append(p.Failing, row)
		}
	}
	p.Attention, err = o.attention(c.Context(), o.api.Viewer(c), queues)
	return view{Name: "overview", Title: "Overview", Page: p}, err
}

// maxAttention bounds the entries about webhooks, and those about schedules.
const maxAttention = 10

// attention returns what an operator should look at: failing parts, disabled webhooks, schedules
// and queues. It leaves out what the caller may not know.
func (o *Console) attention(ctx context.Context, viewer admin.Viewer,
	queues []admin.QueueItem) (all []attention, err error) {
	for _, p := range o.api.LastHealth() {
		if p.Failing {
			all = append(all, attention{Text: p.Name + " fails: " + p.LastError,
				Path: Path + "/health", LinkText: "Health", Since: p.Since})
		}
	}
	hooks, err := o.api.DisabledWebhooks(ctx, maxAttention)
	if err != nil {
		return nil, err
	}
	if n := len(hooks); n > maxSingle {
		many := number(n)
		if n == maxAttention {
			many += " or more"
		}
		all = append(all, attention{Many: many, Text: "webhooks are disabled",
			Path: Path + "/webhooks?state=disabled", LinkText: "Webhooks"})
		hooks = nil
	}
	for i := range hooks {
		all = append(all, attention{Text: "a webhook is disabled: " + hooks[i].DisabledReason,
			Path: Path + "/webhooks/" + hooks[i].ID, LinkText: "Deliveries",
			Since: hooks[i].FailingSince})
	}
	schedules, err := o.schedulesNeedingAttention(ctx, viewer)
	all = append(all, schedules...)
	return append(all, queuesNeedingAttention(queues)...), err // of which there may be many
}

// schedulesNeedingAttention returns the first schedules whose jobs are refused at present, or which
// have missed their latest time.
func (o *Console) schedulesNeedingAttention(ctx context.Context,
	viewer admin.Viewer) (all []attention, err error) {
	found, err := o.api.Schedules.NeedingAttention(ctx, maxAttention)
	for _, s := range found {
		if text, since := scheduleProblem(viewer, s); text != "" {
			all = append(all, attention{Text: "schedule " + s.Name + " " + text, Since: since,
				Path: pathOf("schedules", s.Name), LinkText: "Schedule"})
		}
	}
	return all, err
}

// scheduleProblem returns the problem of a schedule, as far as the caller may know, and since
// when; "" for nothing.
func scheduleProblem(viewer admin.Viewer, s *schedule.Schedule) (text string, since time.Time) {
	if latest := s.Latest(); latest != nil && latest.Outcome == schedule.Missed {
		return "has missed its latest time", latest.Time
	}
	if at, why := s.Failing(); !at.IsZero() {
		return "cannot submit" + viewer.RedactText(": "+why), at
	}
	return "", since
}

// maxSingle is how many things that need attention for one reason are shown one by one.
const maxSingle = 3

// queuesNeedingAttention returns the queues that have ready jobs and are paused, and those that
// have some and that no worker polls: one by one where they are few, and together otherwise.
func queuesNeedingAttention(queues []admin.QueueItem) []attention {
	var paused, unpolled []admin.QueueItem
	for _, q := range queues {
		switch {
		case q.Ready == 0:
		case q.Settings.Paused:
			paused = append(paused, q)
		case hasNoWorker(&q):
			unpolled = append(unpolled, q)
		}
	}
	return append(attentionFor(paused, func(q, jobs string) string {
		return "queue " + q + " is paused with " + jobs
	}, "are paused"), attentionFor(unpolled, func(q, jobs string) string {
		return "no worker polls queue " + q + ", which has " + jobs
	}, "have no worker")...)
}

// hasNoWorker reports whether a queue has ready jobs that nobody asks for.
func hasNoWorker(q *admin.QueueItem) bool {
	return q.Ready > 0 && !q.Settings.Paused && !q.Pollers.Asking && q.Leased == 0
}

// attentionFor returns the lines about queues that need attention for one reason, those with the
// most ready jobs first. one says it of a queue with its jobs, and many of several queues.
func attentionFor(queues []admin.QueueItem, one func(q, jobs string) string,
	many string) (all []attention) {
	slices.SortStableFunc(queues, func(a, b admin.QueueItem) int {
		return cmp.Compare(b.Ready, a.Ready)
	})
	var names []string
	ready, since := int64(0), time.Time{}
	for _, q := range queues {
		names = append(names, q.JobType+"/"+q.Queue)
		ready += q.Ready
		if since.IsZero() || (!q.ReadySince.IsZero() && q.ReadySince.Before(since)) {
			since = q.ReadySince
		}
	}
	if len(queues) > maxSingle {
		return []attention{{Many: pluralize(len(queues), "queue"), Since: since,
			Text: "with " + pluralize(ready, "ready job") + " " + many + ": " +
				strings.Join(names[:maxSingle], ", ") + ", …",
			Path: Path + "/queues?order=age", LinkText: "Queues"}}
	}
	for i, q := range queues {
		all = append(all, attention{Text: one(names[i], pluralize(q.Ready, "ready job")),
			Path: pathOf("queues", q.JobType, q.Queue), LinkText: "Queue", Since: q.ReadySince})
	}
	return all
}
