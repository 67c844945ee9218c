package console

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/series"
)

// queuePages are the pages of queues and the forms on them.
func (o *Console) queuePages() []admin.Page {
	const one = Path + "/queues/{contract}/{queue}"
	target := func(c *httpapi.Call) string {
		return "queue:" + c.PathValue("contract") + "/" + c.PathValue("queue")
	}
	change := func(name, audit string, do func(*httpapi.Call, url.Values) error,
		fields ...string) admin.Page {
		return admin.Page{Method: "POST", Pattern: one + "/" + name, Audit: audit, Target: target,
			Action: "console.queue." + name, Handle: o.submit(
				func(c *httpapi.Call, form url.Values) (string, error) {
					return pathOf("queues", c.PathValue("contract"), c.PathValue("queue")),
						do(c, form)
				}, fields...)}
	}
	pause := func(value string) func(*httpapi.Call, url.Values) error {
		return func(c *httpapi.Call, _ url.Values) error {
			return o.api.PatchQueue(c, map[string][]byte{"paused": []byte(value)})
		}
	}
	return []admin.Page{
		{Method: "GET", Pattern: Path + "/queues", Action: "console.queues",
			Query: httpapi.PageQuery("contract", "text", "order"), Handle: o.show(o.showQueues)},
		{Method: "GET", Pattern: one, Action: "console.queue", Handle: o.show(o.showQueue)},
		change("pause", "queue.set", pause("true")),
		change("resume", "queue.set", pause("false")),
		change("limits", "queue.set", o.setLimits, "run_limit", "rate", "rate_period"),
		change("reset", "queue.reset", func(c *httpapi.Call, _ url.Values) error {
			return o.api.ResetQueue(c)
		}),
	}
}

// queuesPage is what the list of queues shows.
type queuesPage struct {
	Contract, Text, Order string
	Contracts             []string
	Queues                []queueRow
	Next                  string
	Filtered              bool
}

// queueRow is a queue as tables show it.
type queueRow struct {
	admin.QueueItem
	Rates *rates // nil where they are not known
}

// rates are the figures of a queue over five minutes.
type rates struct {
	Submitted, Started, Succeeded, Failed string // a minute
	WaitP50, WaitP95, RunP50, RunP95      string
	HasFailures                           bool
}

// rowOf returns the row of a queue.
func rowOf(q admin.QueueItem) queueRow {
	b := q.Recent
	if b == nil {
		return queueRow{q, nil}
	}
	return queueRow{q, &rates{perMinute(b.Submitted), perMinute(b.Started), perMinute(b.Succeeded),
		perMinute(b.Failed), quantile(b.Wait.Quantile(0.5)), quantile(b.Wait.Quantile(0.95)),
		quantile(b.Run.Quantile(0.5)), quantile(b.Run.Quantile(0.95)), b.Failed > 0}}
}

// perMinute formats a count over the window of rates.
func perMinute(n uint64) string {
	rate := float64(n) / series.RateWindow.Minutes()
	if rate >= 10 || rate == 0 {
		return number(int64(rate + 0.5))
	}
	return strconv.FormatFloat(rate, 'f', 1, 64)
}

// quantile formats a quantile; a dash where nothing was counted.
func quantile(d time.Duration, counted bool) string {
	if !counted {
		return "–"
	}
	return lasted(d)
}

// showQueues is GET /console/queues.
func (o *Console) showQueues(c *httpapi.Call) (view, error) {
	found, next, err := o.api.ListQueues(c)
	if err != nil {
		return view{}, err
	}
	q := c.Request.URL.Query()
	p := queuesPage{Contract: q.Get("contract"), Text: q.Get("text"), Order: q.Get("order"),
		Contracts: o.api.ContractNames(), Next: nextPage(c.Request, next), Filtered: len(q) > 0}
	for _, item := range found {
		p.Queues = append(p.Queues, rowOf(item))
	}
	return view{Name: "queues", Title: "Queues", Page: p}, nil
}

// queuePage is what the page of a queue shows.
type queuePage struct {
	queueRow
	Limits queueLimits
	Live   bool // limits were set here, so that those of the settings are not in force
	Charts []chart
}

// queueLimits are the limits of a queue as its form has them.
type queueLimits struct{ Run, Rate, Period string }

// showQueue is GET /console/queues/{contract}/{queue}.
func (o *Console) showQueue(c *httpapi.Call) (view, error) {
	item, err := o.api.Queue(c.Context(), c.PathValue("contract"), c.PathValue("queue"))
	if err != nil {
		return view{}, err
	}
	charts, err := o.charts(c, series.Query{Contract: item.Contract, Queue: item.Queue})
	if err != nil {
		return view{}, err
	}
	p := queuePage{queueRow: rowOf(item), Charts: charts}
	l := item.Settings.Limits()
	if l.MaxRunning > 0 {
		p.Limits.Run = strconv.Itoa(l.MaxRunning)
	}
	if !l.Rate.IsZero() {
		p.Limits.Rate, p.Limits.Period = strconv.Itoa(l.Rate.Starts), periodText(l.Rate.Period)
	}
	p.Live = item.Settings.Live.MaxRunning != nil || item.Settings.Live.Rate != nil
	return view{Name: "queue", Title: item.Contract + "/" + item.Queue, Page: p}, nil
}

// setLimits is POST /console/queues/{contract}/{queue}/limits. An empty field takes a limit away.
func (o *Console) setLimits(c *httpapi.Call, form url.Values) error {
	members := map[string][]byte{}
	for _, name := range []string{"run_limit", "rate"} {
		text := strings.TrimSpace(form.Get(name))
		if text == "" {
			text = "null"
		}
		if _, err := strconv.ParseUint(text, 10, 31); err != nil && text != "null" {
			return invalid(name + " must be a whole number")
		}
		members[name] = []byte(text)
	}
	if period := strings.TrimSpace(form.Get("rate_period")); period != "" && form.Get("rate") != "" {
		members["rate_period"] = []byte(strconv.Quote(period))
	}
	return o.api.PatchQueue(c, members)
}
