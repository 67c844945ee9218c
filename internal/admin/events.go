package admin

import (
	"context"
	"net/http"
	"slices"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/live"
)

// Live events report to callers what changes, so that nobody has to poll. One monitor reads for all
// callers of the node (package live), and a caller takes what has changed since its last event:
//
//	live.Monitor ─▶ Watch.Next ─▶ formatEvents ─▶ the caller's connection
//
// A caller that reads slowly gets fewer events, each of which says what holds by then; nothing is
// kept for it meanwhile. What a caller may see is decided at each event, so a token that is
// replaced, or a session that ends, ends its stream.

// eventRoutes are the routes of live events.
func (a *API) eventRoutes() []route {
	return []route{{method: "GET", pattern: apiPrefix + "/events", action: "event.stream",
		handle: a.streamEvents, query: []string{"number"}}}
}

// The kinds of live events.
const (
	eventReset  = "reset"
	eventCounts = "counts"
	eventJob    = "job"
	eventBulk   = "bulk"
)

// maxEventQueues bounds the queues of one event, so that a line has a length that clients can read.
const maxEventQueues = 500

var eventStream = []string{"text/event-stream"}

// streamEvents is GET /admin/v1/events (AD-061): what changes, until the caller leaves or does not
// read, its token is replaced, its session ends, or the node stops. A caller that comes back with
// Last-Event-ID goes on behind the event that it names.
//
//	event: counts
//	id: node-1/17
//	data: {"queues":[{"contract":"relay","queue":"mail","waiting":0,…}]}
func (a *API) streamEvents(c *httpapi.Call) error {
	numbers, err := readNumbers(c, live.MaxNumbers)
	if err != nil {
		return err
	}
	if c.Request.Method == http.MethodHead {
		c.Send(http.StatusOK, eventStream, nil)
		return nil
	}
	watch, err := a.Live.Watch(numbers, c.Request.Header.Get("Last-Event-Id"),
		callerOf(c).session)
	if err != nil {
		return err
	}
	defer watch.Close()
	permitted, _ := a.tokens.grantOf(callerOf(c).kind)
	c.Header()["Content-Type"] = eventStream
	var text []byte
	for {
		if err := c.Stream(text); err != nil {
			return nil // the caller has left
		}
		changes, ok := watch.Next(c.Context())
		if !ok || !a.tokens.isInForce(&permitted) {
			return nil
		}
		text = a.formatEvents(a.disclosureTo(c), &changes)
	}
}

// liveItems returns what the monitor keeps of jobs that are watched.
func (a *API) liveItems(ctx context.Context, jobs []*job.Job) ([]any, error) {
	items, err := a.JobItems(ctx, jobs)
	all := make([]any, len(items))
	for i := range items {
		all[i] = items[i]
	}
	return all, err
}

// formatEvents returns changes as events, a comment where there are none. The last one has the id:
// who has not got it gets all of them again.
func (a *API) formatEvents(d disclosure, c *live.Changes) []byte {
	var events []event
	if c.Reset {
		events = append(events, newEvent(eventReset, func(*strictjson.Object) {}))
	}
	for queues := range slices.Chunk(c.Queues, maxEventQueues) {
		events = append(events, newEvent(eventCounts, func(o *strictjson.Object) {
			o.Objects("queues", len(queues), func(i int, o *strictjson.Object) {
				q := &queues[i]
				o.Text("contract", q.JobType)
				o.Text("queue", q.Queue)
				o.Int("waiting", q.Waiting)
				o.Int("delayed", q.Delayed)
				o.Int("ready", q.Ready)
				o.Int("leased", q.Leased)
				o.Int("dead", q.Dead)
			})
		}))
	}
	for _, j := range c.Jobs {
		events = append(events, newEvent(eventJob, func(o *strictjson.Object) {
			item, exists := j.Item.(JobItem)
			if !exists {
				o.Int("number", j.Number)
				o.Text("state", contract.StateGone)
				return
			}
			item.Write(o, bool(d))
		}))
	}
	for _, operation := range c.Operations {
		events = append(events, newEvent(eventBulk, func(o *strictjson.Object) {
			a.writeBulk(o, d, operation)
		}))
	}
	if len(events) == 0 {
		return []byte(":\n\n")
	}
	var text []byte
	for i, e := range events {
		text = append(text, "event: "+e.kind+"\n"...)
		if i == len(events)-1 {
			text = append(text, "id: "+c.ID+"\n"...)
		}
		text = append(append(append(text, "data: "...), e.data...), "\n\n"...)
	}
	return text
}

// event is one live event.
type event struct {
	kind string
	data []byte
}

func newEvent(kind string, write func(*strictjson.Object)) event {
	o := strictjson.NewObject(nil)
	write(&o)
	return event{kind, o.End()}
}
