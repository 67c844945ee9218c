package admin

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/nodes"
	"github.com/millrace/millrace/internal/setting"
)

// queueRoutes are the routes of queues.
func (a *API) queueRoutes() []route {
	const one = apiPrefix + "/queues/{contract}/{queue}"
	return []route{
		{method: "GET", pattern: apiPrefix + "/queues", action: "queue.list",
			handle: a.listQueues, query: httpapi.PageQuery("contract", "text")},
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

var queuePages = newPages(nameCursor("queue"))

// queueKey is what orders queues: by contract and name.
func queueKey(q *engine.QueueStatus) string { return q.Contract + "/" + q.Queue }

// listQueues is GET /admin/v1/queues (AD-030).
func (a *API) listQueues(c *httpapi.Call) error {
	contract, text := "", ""
	if err := firstError(readText(c, "contract", &contract),
		readText(c, "text", &text)); err != nil {
		return err
	}
	limit, after, err := queuePages.Read(c)
	if err != nil {
		return err
	}
	all, err := a.Engine.ListQueues(c.Context(), contract)
	if job.IsKind(err, job.NotFound) {
		return invalid("contract: " + err.Error())
	}
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(q engine.QueueStatus) bool {
		return !strings.Contains(q.Queue, text)
	})
	page, next := pageOf(all, queueKey, &queuePages, after, limit)
	pollers, err := a.pollers(c.Context(), "", "")
	if err != nil {
		return err
	}
	o := newList(len(page), next, func(i int, o *strictjson.Object) {
		writeQueue(o, &page[i], pollers.Of(page[i].Contract, page[i].Queue))
	})
	sendObject(c, http.StatusOK, &o)
	return nil
}

// writeQueue writes the members of a queue.
func writeQueue(o *strictjson.Object, q *engine.QueueStatus, pollers job.Pollers) {
	o.Text("contract", q.Contract)
	o.Text("queue", q.Queue)
	o.Int("waiting", q.Waiting)
	o.Int("delayed", q.Delayed)
	o.Int("ready", q.Ready)
	o.Int("leased", q.Leased)
	o.Int("dead", q.Dead)
	for _, unknown := range []string{"oldest_ready_at", "submitted_per_minute",
		"started_per_minute", "succeeded_per_minute", "failed_per_minute", "wait_p50", "wait_p95",
		"run_p50", "run_p95"} {
		o.Null(unknown)
	}
	o.Int("workers", int64(pollers.Workers))
	o.Time("last_asked_at", pollers.LastAsked)
	s := queueStateOf(&q.Settings)
	o.Bool("paused", s.Paused)
	if s.RunLimit == 0 {
		o.Null("run_limit")
	} else {
		o.Int("run_limit", int64(s.RunLimit))
	}
	if s.Rate == 0 {
		o.Null("rate")
	} else {
		o.Int("rate", int64(s.Rate))
	}
	o.Optional("rate_period", s.RatePeriod)
}

// queueState is what is in force for a queue, as the audit has it.
type queueState struct {
	Paused     bool   `json:"paused"`
	RunLimit   int    `json:"run_limit"`
	Rate       int    `json:"rate"`
	RatePeriod string `json:"rate_period"`
}

func queueStateOf(q *job.QueueSettings) queueState {
	l := q.Limits()
	s := queueState{Paused: q.Paused, RunLimit: l.MaxRunning, Rate: l.Rate.Starts}
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
	return a.changeQueue(c, func(q *job.QueueSettings) error { return patchQueue(q, members) })
}

// resetQueue is DELETE /admin/v1/queues/{contract}/{queue}: the settings file's are back.
func (a *API) resetQueue(c *httpapi.Call) error {
	return a.changeQueue(c, func(q *job.QueueSettings) error {
		q.Paused, q.Live = false, job.LiveLimits{}
		return nil
	})
}

// changeQueue changes the settings of the queue of the path with an entry of the audit, and answers
// the queue.
func (a *API) changeQueue(c *httpapi.Call, change func(*job.QueueSettings) error) error {
	contract, queue := c.PathValue("contract"), c.PathValue("queue")
	err := a.Engine.ChangeQueue(c.Context(), contract, queue,
		func(w engine.RecordWriter, q *job.QueueSettings) error {
			before := queueStateOf(q)
			if err := change(q); err != nil {
				return err
			}
			return a.record(w, c, before, queueStateOf(q))
		})
	if err != nil {
		return err
	}
	status, err := a.Engine.Queue(c.Context(), contract, queue)
	if err != nil {
		return err
	}
	pollers, err := a.pollers(c.Context(), contract, queue)
	if err != nil {
		return err
	}
	o := strictjson.NewObject(nil)
	writeQueue(&o, &status, pollers.Of(contract, queue))
	sendObject(c, http.StatusOK, &o)
	return nil
}

// pollers reads who asks for the jobs of a queue; the empty names mean all queues.
func (a *API) pollers(ctx context.Context, contract, queue string) (t *nodes.Pollers, err error) {
	err = a.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		t, err = a.Node.Pollers(r, contract, queue)
		return err
	})
	return t, err
}

// maxRunLimit bounds run_limit.
const maxRunLimit = 1_000_000

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
		n, err := readLimit("run_limit", raw, maxRunLimit)
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
func readLimit(name string, raw []byte, most int) (int, error) {
	if strictjson.IsNull(raw) {
		return 0, nil
	}
	n, err := strictjson.Int(raw, 32)
	if err != nil || n < 0 || n > int64(most) {
		return 0, invalid(name + " must be a whole number from 0 to " + strconv.Itoa(most))
	}
	return int(n), nil
}
