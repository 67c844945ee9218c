package admin

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
)

// The parts of a node are checked when a request asks for them, all at the same time, and by Run
// every now and then in between. Without the latter, "failing since" would begin with the first
// request that came to see it. The overview of the console shows the last look and waits for none.
//
// A part that no check looks at, such as a service that jobs use, is known by how its calls went
// (package outage). The node is ready without it.

// health remembers how the parts of the node were when they were looked at: by a request, or by Run
// meanwhile.
type health struct {
	checks  []httpapi.Check
	outages []*outage.Monitor // of what no check looks at
	now     func() time.Time
	elapsed func() time.Duration

	mu    sync.Mutex
	parts []PartHealth // of the checks
}

// PartHealth is the state of one part as it was last checked.
type PartHealth struct {
	Name      string
	Optional  bool // the node is ready without it
	Failing   bool
	Latency   time.Duration // of the last look
	Since     time.Time     // of the state it has; zero before the first look
	LastError string        // empty: it has not failed yet
	FailedAt  time.Time     // when it failed last
}

// newHealth makes the parts of checks, which were not looked at yet, and adds those that are
// known by their calls alone. A part without an address is not used.
func newHealth(c *Config) *health {
	h := &health{checks: c.Checks, now: c.Now, elapsed: c.Elapsed}
	names := map[string]bool{}
	for _, check := range c.Checks {
		names[check.Name] = true
		h.parts = append(h.parts, PartHealth{Name: check.Name, Optional: check.Optional})
	}
	for _, p := range c.Monitors {
		at := p.Status().Endpoint
		if !names[at.Name] && at.Address != "" {
			h.outages = append(h.outages, p)
		}
	}
	return h
}

// checkTimeout bounds a check of all parts.
const checkTimeout = 5 * time.Second

// check runs all checks, at the same time.
func (h *health) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var all sync.WaitGroup
	for i, c := range h.checks {
		all.Go(func() {
			startedAt := h.elapsed()
			err := c.Run(ctx)
			h.record(i, h.elapsed()-startedAt, err)
		})
	}
	all.Wait()
}

// last returns the parts as they were at the last check.
func (h *health) last() []PartHealth {
	h.mu.Lock()
	defer h.mu.Unlock()
	parts := slices.Clone(h.parts)
	for _, p := range h.outages {
		parts = append(parts, h.partOf(p.Status()))
	}
	return parts
}

// interval returns how long to wait for the next check.
func (h *health) interval() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.ContainsFunc(h.parts, func(p PartHealth) bool { return p.Failing }) {
		return failingInterval
	}
	return healthInterval
}

// partOf returns a part as its calls show it. The node is ready without it, as no check needs it.
func (h *health) partOf(s outage.Status) PartHealth {
	started := h.now().UTC().Add(-h.elapsed())
	p := PartHealth{Name: s.Endpoint.Name, Optional: true, Failing: s.Degraded, Latency: s.Latency,
		Since: started.Add(s.Since)}
	if s.LastErr != nil {
		p.LastError, p.FailedAt = failureText(s.LastErr), started.Add(s.FailedAt)
	}
	return p
}

// record records how a part was.
func (h *health) record(i int, latency time.Duration, err error) {
	now := h.now().UTC()
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.parts[i]
	if failing := err != nil; p.Since.IsZero() || p.Failing != failing {
		p.Failing, p.Since = failing, now
	}
	p.Latency = latency
	if err != nil {
		p.LastError, p.FailedAt = failureText(err), now
	}
}

// failureText returns what may be shown of an error: never the text of a library, which may have
// an address with a password in it.
func failureText(err error) string {
	var e *job.Error
	if errors.As(err, &e) {
		return cmp.Or(e.Msg, "it fails")
	}
	return "it fails; see the log"
}

// showHealth is GET /admin/v1/health (AD-062): the parts of the node that answers.
func (a *API) showHealth(c *httpapi.Call) error {
	parts, ok := a.Health(c.Context())
	o := strictjson.NewObject(nil)
	o.Bool("ok", ok)
	o.Objects("parts", len(parts), func(i int, o *strictjson.Object) { parts[i].write(o) })
	sendObject(c, 200, &o)
	return nil
}

// LastHealth returns the parts of the node as they were at the last look, which Run repeats.
func (a *API) LastHealth() []PartHealth { return a.health.last() }

// Health looks at the parts of the node. ok says that none fails that it needs.
func (a *API) Health(ctx context.Context) (parts []PartHealth, ok bool) {
	a.health.check(ctx)
	parts, ok = a.health.last(), true
	for i := range parts {
		ok = ok && (!parts[i].Failing || parts[i].Optional)
	}
	return parts, ok
}

// write writes the members of a part.
func (p *PartHealth) write(o *strictjson.Object) {
	state := "ok"
	if p.Failing {
		state = "failing"
	}
	o.Text("name", p.Name)
	o.Text("state", state)
	o.Bool("optional", p.Optional)
	o.Raw("latency", strconv.AppendFloat(nil, p.Latency.Seconds(), 'f', 6, 64))
	o.Time("since", p.Since)
	o.Optional("last_error", p.LastError)
	o.Time("last_error_at", p.FailedAt)
}
