package console

import (
	"cmp"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/series"
)

// The form for the limits of a queue shows the limits in force, which may be those of the settings.
// It sends what it has shown beside what it has now, and only what differs is set: so a limit of
// the settings does not become one of an operator because its form was sent.

// queuePages are the pages of queues and the forms on them.
func (o *Console) queuePages() []admin.Page {
	const one = Path + "/queues/{contract}/{queue}"
	target := func(c *httpapi.Call) string {
		return "queue:" + c.PathValue("contract") + "/" + c.PathValue("queue")
	}
	change := func(name, audit string, do func(*httpapi.Call) error) admin.Page {
		return admin.Page{Method: "POST", Pattern: one + "/" + name, Audit: audit, Target: target,
			Action: "console.queue." + name, Handle: o.submit(
				func(c *httpapi.Call, _ url.Values) (string, error) {
					return queuePath(c), do(c)
				})}
	}
	pause := func(value string) func(*httpapi.Call) error {
		return func(c *httpapi.Call) error {
			return o.api.PatchQueue(c, map[string][]byte{"paused": []byte(value)})
		}
	}
	return []admin.Page{
		{Method: "GET", Pattern: Path + "/queues", Action: "console.queues",
			Query:  httpapi.PageQuery("contract", "text", "order", "view"),
			Handle: o.show(o.showQueues)},
		{Method: "GET", Pattern: one, Action: "console.queue", Handle: o.show(o.showQueue)},
		{Method: "POST", Pattern: one, Action: "console.queue.limits", Audit: "queue.set",
			Target: target, Handle: o.submitOn(o.showQueue, func(c *httpapi.Call,
				form url.Values) (string, error) {
				return queuePath(c), o.setLimits(c, form)
			}, limitFields()...)},
		{Method: "GET", Pattern: one + "/clear", Action: "console.queue.clearing",
			Handle: o.show(o.previewClear)},
		{Method: "POST", Pattern: one + "/clear", Action: "console.queue.clear",
			Audit: "queue.clear", Target: target, Handle: o.submit(o.clearQueue,
				admin.AsOf)},
		change("pause", "queue.set", pause("true")),
		change("resume", "queue.set", pause("false")),
		change("reset", "queue.reset", o.api.ResetQueue),
	}
}

// queuePath is the path of the page of the queue of the path of a call.
func queuePath(c *httpapi.Call) string {
	return pathOf("queues", c.PathValue("contract"), c.PathValue("queue"))
}

// previewClear is GET /console/queues/{contract}/{queue}/clear: what would be deleted.
func (o *Console) previewClear(c *httpapi.Call) (view, error) {
	r, err := o.api.ClearRequest(c, "")
	if err != nil {
		return view{}, err
	}
	return o.preview(c, previewPage{Request: r, Path: queuePath(c) + "/clear", Back: queuePath(c),
		Filter: []field{{"queue", c.PathValue("contract") + "/" + c.PathValue("queue")},
			{"phase", "waiting, ready"}}})
}

// clearQueue is POST /console/queues/{contract}/{queue}/clear.
func (o *Console) clearQueue(c *httpapi.Call, form url.Values) (string, error) {
	r, err := o.api.ClearRequest(c, form.Get(admin.AsOf))
	if err != nil {
		return "", err
	}
	started, err := o.api.StartBulk(c, r)
	if err != nil {
		return "", err
	}
	return pathOf("bulk", started.ID), nil
}

// queuesPage is what the list of queues shows.
type queuesPage struct {
	Contract, Text, Order string
	View                  string // how they are shown, one of queueViews
	Views                 []tab
	Contracts             []string
	Queues                []queueRow
	Next                  string
	Filtered              bool
}

// queueViews are how the list is shown: as a table, or as a board with larger sparklines.
var queueViews = []string{"table", "board"}

// queueRow is a queue as tables show it.
type queueRow struct {
	admin.QueueItem
	Rates *rates // nil where they are not known
	Spark spark  // set in lists alone
}

// rates are the figures of a queue over five minutes, or since its first figure.
type rates struct {
	Submitted, Started, Succeeded, Failed string // a minute
	WaitP50, WaitP95, RunP50, RunP95      string
	HasFailures                           bool
}

// rowOf returns the row of a queue.
func rowOf(q admin.QueueItem) queueRow {
	b := q.Recent
	if b == nil {
		return queueRow{QueueItem: q}
	}
	perMinute := func(n uint64) string { return formatCount(b.PerMinute(n)) }
	return queueRow{QueueItem: q, Rates: &rates{perMinute(b.Submitted), perMinute(b.Started),
		perMinute(b.Succeeded), perMinute(b.Failed), quantile(b.Wait.Quantile(0.5)),
		quantile(b.Wait.Quantile(0.95)), quantile(b.Run.Quantile(0.5)),
		quantile(b.Run.Quantile(0.95)), b.Failed > 0}}
}

// quantile formats a quantile; a dash where nothing was counted.
func quantile(d time.Duration, counted bool) string {
	if !counted {
		return "–"
	}
	return formatDuration(d)
}

// queueOrders are the orders of the list with what the page calls them, the first where none is
// asked for.
var queueOrders = []field{{"age", "oldest job first"}, {"depth", "most ready first"},
	{"failures", "most failures first"}, {"name", "by name"}}

// NeedsWorker reports whether nobody asks for the jobs of the queue, of which some are ready.
func (r queueRow) NeedsWorker() bool { return hasNoWorker(&r.QueueItem) }

// IsLimited reports whether ready jobs of the queue wait because MaxRunning jobs run.
func (r queueRow) IsLimited() bool {
	limit := r.Settings.Limits().MaxRunning
	return limit > 0 && r.Ready > 0 && r.Leased >= int64(limit)
}

// Rate says how many jobs of the queue may start in which time; "" for no limit.
func (r queueRow) Rate() string {
	rate := r.Settings.Limits().Rate
	if rate.IsZero() {
		return ""
	}
	return number(rate.Starts) + " in " + periodText(rate.Period)
}

// MoreWorkers is how many workers ask for the queue beside those that Pollers names.
func (r queueRow) MoreWorkers() int { return r.Pollers.Workers - len(r.Pollers.Names) }

// queueName shows a queue with its contract, its name cut to maxQueueName characters.
func queueName(contract, queue string) template.HTML {
	return template.HTML(`<span class="queue"><span class="quiet">`+
		template.HTMLEscapeString(contract)+`/</span>`) + abbreviate(queue, maxQueueName) + `</span>`
}

// maxQueueName bounds the name of a queue in a row, in characters.
const maxQueueName = 20

// showQueues is GET /console/queues.
func (o *Console) showQueues(c *httpapi.Call) (view, error) {
	q := c.Request.URL.Query()
	isFiltered := q.Has("contract") || q.Has("text")
	if q.Get("order") == "" {
		q.Set("order", queueOrders[0].Name)
		c.Request.URL.RawQuery = q.Encode()
	}
	shownAs := cmp.Or(q.Get("view"), queueViews[0])
	if !slices.Contains(queueViews, shownAs) {
		return view{}, invalid("view must be " + strings.Join(queueViews, " or "))
	}
	found, next, err := o.api.ListQueues(c)
	if err != nil {
		return view{}, err
	}
	trends, err := o.api.Trends(c.Context(), found)
	if err != nil {
		return view{}, err
	}
	p := queuesPage{Contract: q.Get("contract"), Text: q.Get("text"), Order: q.Get("order"),
		View: shownAs, Contracts: o.api.ContractNames(), Next: nextPage(c.Request, next),
		Filtered: isFiltered}
	for _, name := range queueViews {
		q.Set("view", name)
		p.Views = append(p.Views, tab{Text: name, Path: c.Request.URL.Path + "?" + q.Encode(),
			Current: name == shownAs})
	}
	for _, item := range found {
		row := rowOf(item)
		row.Spark = sparkOf(trends.Of(item.JobType, item.Queue), item.Ready)
		p.Queues = append(p.Queues, row)
	}
	return view{Name: "queues", Title: "Queues", Page: p}, nil
}

// queuePage is what the page of a queue shows.
type queuePage struct {
	queueRow
	Limits queueLimits
	// HasOwnLimits says that limits were set here, so that those of the settings are not in force.
	HasOwnLimits bool
	Clears       bool // it has jobs that can be deleted
	Exists       bool // it has or had jobs, settings or somebody who asks for it
	Charts       []chart
}

// queueLimits are the limits of a queue as its form has them.
type queueLimits struct{ Run, Rate, Period string }

// showQueue is GET /console/queues/{contract}/{queue}.
func (o *Console) showQueue(c *httpapi.Call) (view, error) {
	item, err := o.api.Queue(c.Context(), c.PathValue("contract"), c.PathValue("queue"))
	if err != nil {
		return view{}, err
	}
	charts, err := o.charts(c, "1h", series.Query{JobType: item.JobType, Queue: item.Queue})
	if err != nil {
		return view{}, err
	}
	p := queuePage{queueRow: rowOf(item), Charts: charts,
		Clears: o.api.CanClear(item.JobType) && item.Ready+item.Waiting > 0,
		Exists: item.Ready+item.Waiting+item.Leased+item.Done+item.Dead > 0 || item.Settings.Paused ||
			item.Pollers.Asking || !item.Pollers.LastPolled.IsZero()}
	l := item.Settings.Limits()
	if l.MaxRunning > 0 {
		p.Limits.Run = strconv.Itoa(l.MaxRunning)
	}
	if !l.Rate.IsZero() {
		p.Limits.Rate, p.Limits.Period = strconv.Itoa(l.Rate.Starts), periodText(l.Rate.Period)
	}
	p.HasOwnLimits = item.Settings.Live.MaxRunning != nil || item.Settings.Live.Rate != nil
	p.Exists = p.Exists || p.HasOwnLimits || p.Limits != queueLimits{}
	return view{Name: "queue", Title: item.JobType + "/" + item.Queue, Page: p,
		Live: liveScope{Queue: item.JobType + "/" + item.Queue}}, nil
}

// limits are the members of a queue that its form has. Beside each field stands what the page has
// shown in it, as shown_run_limit and so on.
var limits = []string{"run_limit", "rate", "rate_period"}

// limitFields are the fields of the form.
func limitFields() (all []string) {
	for _, name := range limits {
		all = append(all, name, "shown_"+name)
	}
	return all
}

// setLimits is POST /console/queues/{contract}/{queue}. An empty field takes a limit away. One that
// is as it was shown is left as it is: the settings go on to decide about it.
func (o *Console) setLimits(c *httpapi.Call, form url.Values) error {
	members := map[string][]byte{}
	for _, name := range limits {
		text := strings.TrimSpace(form.Get(name))
		n, err := strconv.ParseUint(text, 10, 31)
		switch {
		case text == form.Get("shown_"+name):
		case name == "rate_period":
			if text != "" {
				members[name] = strictjson.AppendString(nil, text)
			}
		case text == "":
			members[name] = []byte("null")
		case err != nil:
			return invalid(name + " must be a whole number")
		default:
			members[name] = strconv.AppendUint(nil, n, 10)
		}
	}
	if len(members) == 0 {
		return nil
	}
	return o.api.PatchQueue(c, members)
}
