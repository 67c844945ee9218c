package admin

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/series"
	"github.com/millrace/millrace/internal/setting"
)

// The list of queues is made as a whole for each page: their counts and settings come from the
// engine. What an order compares is added to all of them, and the rest, such as who polls, to those
// of the page alone. A page begins behind the key of the last queue of the page before, not behind
// a number of entries, so a queue that comes or goes does not shift the others.

// queueRoutes are the routes of queues.
func (a *API) queueRoutes() []route {
	const one = apiPrefix + "/queues/{contract}/{queue}"
	return []route{
		{method: "GET", pattern: apiPrefix + "/queues", action: "queue.list",
			handle: a.listQueues,
			query:  httpapi.PageQuery("contract", "text", "order", "internal")},
		{method: "PATCH", pattern: one, action: "queue.set", handle: a.setQueue,
			target: queueTarget, body: true},
		{method: "DELETE", pattern: one, action: "queue.reset", handle: a.resetQueue,
			target: queueTarget},
	}
}

// queueTarget names the queue of the path for the audit.
func queueTarget(c *httpapi.Call) string {
	return "queue:" + c.PathValue("contract") + "/" + c.PathValue("queue")
}

// QueueItem is a queue with who asks for it and what was counted in the last five minutes.
type QueueItem struct {
	engine.QueueStatus
	Pollers job.Pollers
	Recent  *series.Window // nil where the queue is beyond the bound of those that are counted
}

// name is what orders queues: contract and name, and in these numbers by their value.
func (q *QueueItem) name() string { return naturalKey(q.JobType + "/" + q.Queue) }

// queueOrder is an order of the list. Its cursor is no cursor of another one.
type queueOrder struct {
	key   func(*QueueItem) string
	pages httpapi.Pages[string]
}

// queueOrders are the orders of the list. Of what changes between two pages a queue may be missed.
var queueOrders = map[string]*queueOrder{
	"name":  {(*QueueItem).name, newPages(nameCursor("queue"))},
	"depth": descending("depth", func(q *QueueItem) int64 { return q.Ready }),
	"age": descending("age", func(q *QueueItem) int64 {
		if q.ReadySince.IsZero() {
			return 0
		}
		return math.MaxInt64 - q.ReadySince.UnixMicro()
	}),
	"failures": descending("failures", func(q *QueueItem) int64 {
		if q.Recent == nil {
			return 0
		}
		return int64(q.Recent.Failed)
	}),
}

// descending makes an order by a number that is not negative, the greatest first.
func descending(name string, number func(*QueueItem) int64) *queueOrder {
	return &queueOrder{func(q *QueueItem) string {
		return fmt.Sprintf("%019d/%s", math.MaxInt64-number(q), q.name())
	}, newPages(nameCursor("queue by " + name))}
}

// listQueues is GET /admin/v1/queues (AD-030).
func (a *API) listQueues(c *httpapi.Call) error {
	page, next, err := a.ListQueues(c)
	if err != nil {
		return err
	}
	o := newList(len(page), next, func(i int, o *strictjson.Object) { page[i].write(o) })
	sendObject(c, http.StatusOK, &o)
	return nil
}

// ListQueues returns the queues that the query of a call asks for, and the cursor of the next page.
func (a *API) ListQueues(c *httpapi.Call) (page []QueueItem, next string, err error) {
	contract, text, by, internal := "", "", "name", ""
	if err := firstError(readText(c, "contract", &contract), readText(c, "text", &text),
		readText(c, "order", &by), readChoice(c, "internal", &internal, "true",
			"false")); err != nil {
		return nil, "", err
	}
	order := queueOrders[by]
	if order == nil {
		return nil, "", invalid("order must be name, depth, age or failures")
	}
	limit, after, err := order.pages.Read(c)
	if err != nil {
		return nil, "", err
	}
	contracts := a.queueContracts(contract)
	if contracts == nil {
		return nil, "", invalid(a.unknownContractText(contract))
	}
	err = a.Engine.ViewQueues(c.Context(), func(r engine.QueueReader) error {
		all, err := queuesWithCounts(r, contracts)
		if err != nil {
			return err
		}
		if internal != "true" && !isInternal(contract) {
			all = WithoutInternal(all)
		}
		all = slices.DeleteFunc(all, func(q QueueItem) bool {
			return !strings.Contains(q.Queue, text)
		})
		switch by { // what orders is read of all of them, the rest of those of the page
		case "age":
			err = addReadySince(r, all)
		case "failures":
			err = a.addRecent(r, all)
		}
		if err != nil {
			return err
		}
		page, next = pageOf(all, order.key, &order.pages, after, limit)
		if by != "age" {
			err = addReadySince(r, page)
		}
		if by != "failures" {
			err = firstError(err, a.addRecent(r, page))
		}
		return firstError(err, a.addPollers(r, page, "", ""))
	})
	return page, next, err
}

// WorstQueues returns the first n of queues in an order of the list.
func WorstQueues(all []QueueItem, order string, n int) []QueueItem {
	return firstOf(all, queueOrders[order].key, "", n)
}

// isInternal reports whether the jobs of a job type are the server's own: its bulk operations and
// schedules.
func isInternal(contract string) bool { return contract == bulk.Name || contract == schedule.Name }

// WithoutInternal returns those of queues whose jobs are not the server's own.
func WithoutInternal(all []QueueItem) []QueueItem {
	return slices.DeleteFunc(slices.Clone(all), func(q QueueItem) bool {
		return isInternal(q.JobType)
	})
}

// queueContracts returns the job types that a filter names: one of them, or those that are one
// contract to clients; "" is all, as one name. Nil means that there is none.
func (a *API) queueContracts(name string) (all []string) {
	if name == "" {
		return []string{""}
	}
	for _, jobs := range a.Engine.JobTypes() {
		if jobs == name || contract.PublicName(jobs) == name {
			all = append(all, jobs)
		}
	}
	return all
}

// unknownContractText says that queues have no contract of a name, and which contracts they have.
func (a *API) unknownContractText(name string) string {
	known := slices.DeleteFunc(slices.Sorted(slices.Values(a.Engine.JobTypes())), isInternal)
	hint := "."
	if similar, ok := setting.Closest(name, known); ok {
		hint = ", did you mean " + similar + "?"
	}
	return "there is no contract " + setting.Quote(name) + hint + " The queues of this server are of " +
		strings.Join(known, ", ")
}

// Queues returns all queues.
func (a *API) Queues(ctx context.Context) (all []QueueItem, err error) {
	err = a.Engine.ViewQueues(ctx, func(r engine.QueueReader) error {
		if all, err = queuesWithCounts(r, []string{""}); err != nil {
			return err
		}
		return firstError(addReadySince(r, all), a.addRecent(r, all), a.addPollers(r, all, "", ""))
	})
	return all, err
}

// queuesWithCounts returns the queues of job types, "" for all, with their counts and settings
// alone.
func queuesWithCounts(r engine.QueueReader, contracts []string) (all []QueueItem, err error) {
	for _, name := range contracts {
		queues, err := r.List(name)
		if err != nil {
			return nil, err
		}
		for _, q := range queues {
			all = append(all, QueueItem{QueueStatus: q})
		}
	}
	return all, nil
}

// addReadySince adds to queues since when they have ready jobs.
func addReadySince(r engine.QueueReader, items []QueueItem) error {
	queues := make([]*engine.QueueStatus, len(items))
	for i := range items {
		queues[i] = &items[i].QueueStatus
	}
	return r.ReadReadySince(queues)
}

// namesOf returns the names of queues by their contracts.
func namesOf(items []QueueItem) map[string][]string {
	names := map[string][]string{}
	for i := range items {
		names[items[i].JobType] = append(names[items[i].JobType], items[i].Queue)
	}
	return names
}

// Trends returns the last hour of queues.
func (a *API) Trends(ctx context.Context, items []QueueItem) (series.Trends, error) {
	return a.Series.Trends(ctx, namesOf(items))
}

// addRecent adds to queues what was counted in the last five minutes.
func (a *API) addRecent(r engine.RecordReader, items []QueueItem) error {
	windows, err := a.Series.Windows(r, namesOf(items))
	if err != nil {
		return err
	}
	for i := range items {
		items[i].Recent = windows.Of(items[i].JobType, items[i].Queue)
	}
	return nil
}

// addPollers adds to queues who asks for them; contract and queue name the only one, if it is one.
func (a *API) addPollers(r engine.RecordReader, items []QueueItem, contract, queue string) error {
	pollers, err := a.Node.Pollers(r, contract, queue)
	if err != nil {
		return err
	}
	for i := range items {
		items[i].Pollers = pollers.Of(items[i].JobType, items[i].Queue)
	}
	return nil
}

// write writes the members of a queue.
func (q *QueueItem) write(o *strictjson.Object) {
	o.Text("contract", q.JobType)
	o.Text("queue", q.Queue)
	o.Int("waiting", q.Waiting)
	o.Int("delayed", q.Delayed)
	o.Int("ready", q.Ready)
	o.Int("leased", q.Leased)
	o.Int("dead", q.Dead)
	o.Time("oldest_ready_at", q.ReadySince)
	q.writeRecent(o)
	o.Int("workers", int64(q.Pollers.Workers))
	o.Time("last_asked_at", q.Pollers.LastPolled)
	s := queueStateOf(&q.Settings)
	o.Bool("paused", s.Paused)
	if s.MaxRunning == 0 {
		o.Null("run_limit")
	} else {
		o.Int("run_limit", int64(s.MaxRunning))
	}
	if s.Rate == 0 {
		o.Null("rate")
	} else {
		o.Int("rate", int64(s.Rate))
	}
	o.Optional("rate_period", s.RatePeriod)
}

// writeRecent writes what was counted in the last five minutes.
func (q *QueueItem) writeRecent(o *strictjson.Object) {
	b := q.Recent
	if b == nil {
		for _, unknown := range []string{"submitted_per_minute", "started_per_minute",
			"succeeded_per_minute", "failed_per_minute", "wait_p50", "wait_p95", "run_p50",
			"run_p95"} {
			o.Null(unknown)
		}
		return
	}
	perMinute := func(n uint64) []byte { return formatNumber(b.PerMinute(n)) }
	o.Raw("submitted_per_minute", perMinute(b.Submitted))
	o.Raw("started_per_minute", perMinute(b.Started))
	o.Raw("succeeded_per_minute", perMinute(b.Succeeded))
	o.Raw("failed_per_minute", perMinute(b.Failed))
	o.Raw("wait_p50", formatQuantile(&b.Wait, 0.5))
	o.Raw("wait_p95", formatQuantile(&b.Wait, 0.95))
	o.Raw("run_p50", formatQuantile(&b.Run, 0.5))
	o.Raw("run_p95", formatQuantile(&b.Run, 0.95))
}

// queueState has the settings in force for a queue, as the audit shows them.
type queueState struct {
	Paused     bool   `json:"paused"`
	MaxRunning int    `json:"run_limit"`
	Rate       int    `json:"rate"`
	RatePeriod string `json:"rate_period"`
}

func queueStateOf(q *job.QueueSettings) queueState {
	l := q.Limits()
	s := queueState{Paused: q.Paused, MaxRunning: l.MaxRunning, Rate: l.Rate.Starts}
	if !l.Rate.IsZero() {
		s.RatePeriod = setting.FormatDuration(l.Rate.Period)
	}
	return s
}

// setQueue is PATCH /admin/v1/queues/{contract}/{queue} (AD-031).
func (a *API) setQueue(c *httpapi.Call) error {
	body, err := readMembers(c, "paused", "run_limit", "rate", "rate_period")
	if err != nil {
		return err
	}
	members := map[string][]byte{}
	for name, value := range strictjson.Members(body) {
		members[string(name)] = bytes.Clone(value)
	}
	if len(members) == 0 {
		return invalid("the body names nothing to set")
	}
	return a.sendQueue(c, a.PatchQueue(c, members))
}

// PatchQueue sets the members of a queue, JSON by their names, of the queue of the path of a call.
func (a *API) PatchQueue(c *httpapi.Call, members map[string][]byte) error {
	return a.changeQueue(c, func(q *job.QueueSettings) error { return patchQueue(q, members) })
}

// resetQueue is DELETE /admin/v1/queues/{contract}/{queue}: the settings file's are back.
func (a *API) resetQueue(c *httpapi.Call) error { return a.sendQueue(c, a.ResetQueue(c)) }

// ResetQueue puts the settings of the settings file back, for the queue of the path of a call.
func (a *API) ResetQueue(c *httpapi.Call) error {
	return a.changeQueue(c, func(q *job.QueueSettings) error {
		q.Paused, q.Live = false, job.LiveLimits{}
		return nil
	})
}

// checkQueueContract refuses a contract that the engine does not have.
func (a *API) checkQueueContract(name string) error {
	if slices.Contains(a.Engine.JobTypes(), name) {
		return nil
	}
	return &job.Error{Kind: job.NotFound, Op: "admin.queue", Msg: a.unknownContractText(name)}
}

// changeQueue changes the settings of the queue of the path with an entry of the audit.
func (a *API) changeQueue(c *httpapi.Call, change func(*job.QueueSettings) error) error {
	if err := a.checkQueueContract(c.PathValue("contract")); err != nil {
		return err
	}
	return a.Engine.ChangeQueue(c.Context(), c.PathValue("contract"), c.PathValue("queue"),
		func(w engine.RecordWriter, q *job.QueueSettings) error {
			before := queueStateOf(q)
			if err := change(q); err != nil {
				return err
			}
			return a.record(w, c, before, queueStateOf(q))
		})
}

// Queue returns a queue; one that nobody has used is empty.
func (a *API) Queue(ctx context.Context, contract, queue string) (QueueItem, error) {
	one := make([]QueueItem, 1)
	err := a.Engine.ViewQueues(ctx, func(r engine.QueueReader) (err error) {
		if one[0].QueueStatus, err = r.Queue(contract, queue); err != nil {
			return err
		}
		return firstError(a.addRecent(r, one), a.addPollers(r, one, contract, queue))
	})
	return one[0], err
}

// sendQueue answers with the queue of the path after a change.
func (a *API) sendQueue(c *httpapi.Call, err error) error {
	if err != nil {
		return err
	}
	item, err := a.Queue(c.Context(), c.PathValue("contract"), c.PathValue("queue"))
	if err != nil {
		return err
	}
	o := strictjson.NewObject(nil)
	item.write(&o)
	sendObject(c, http.StatusOK, &o)
	return nil
}

// maxRunning bounds run_limit.
const maxRunning = 1_000_000

// patchQueue sets the members of a body. null and 0 take a limit away (G-AD-12).
func patchQueue(q *job.QueueSettings, members map[string][]byte) error {
	if raw, ok := members["paused"]; ok {
		paused, err := strictjson.Bool(raw)
		if err != nil {
			return invalid("paused must be true or false")
		}
		q.Paused = paused
	}
	if raw, ok := members["run_limit"]; ok {
		n, err := readLimit("run_limit", raw, maxRunning)
		if err != nil {
			return err
		}
		q.Live.MaxRunning = &n
	}
	return patchRate(q, members)
}

// patchRate sets the rate. One of its members alone keeps the other as it is in force.
func patchRate(q *job.QueueSettings, members map[string][]byte) error {
	rawStarts, hasStarts := members["rate"]
	rawPeriod, hasPeriod := members["rate_period"]
	if !hasStarts && !hasPeriod {
		return nil
	}
	rate := q.Limits().Rate
	if hasStarts {
		n, err := readLimit("rate", rawStarts, job.MaxRateStarts)
		if err != nil {
			return err
		}
		rate.Starts = n
	}
	if hasPeriod {
		rate.Period = 0
	}
	if hasPeriod && !strictjson.IsNull(rawPeriod) {
		text, err := strictjson.String(rawPeriod)
		d, isDuration := setting.ParseDuration(text)
		rate.Period = d
		if valid := (job.Rate{Starts: 1, Period: d}).IsValid(); err != nil || !isDuration || !valid {
			return invalid("rate_period must be a duration such as 1m, from " +
				setting.FormatDuration(job.MinRatePeriod) + " to " +
				setting.FormatDuration(job.MaxRatePeriod))
		}
	}
	switch {
	case rate.Starts == 0 && !hasStarts:
		return invalid("rate_period needs a rate")
	case rate.Starts == 0:
		rate = job.Rate{}
	case rate.Period == 0:
		return invalid("rate needs a rate_period")
	}
	q.Live.Rate = &rate
	return nil
}

// readLimit reads a whole number; null is 0.
func readLimit(name string, raw []byte, limit int) (int, error) {
	if strictjson.IsNull(raw) {
		return 0, nil
	}
	n, err := strictjson.Int(raw, 32)
	if err != nil || n < 0 || n > int64(limit) {
		return 0, limitError(name, limit)
	}
	return int(n), nil
}

// limitError says what a number may be.
func limitError(name string, limit int) error {
	return invalid(name + " must be a whole number from 0 to " + strconv.Itoa(limit))
}
