package fetchbox

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
)

// The states of a component (G-FB-39).
const (
	healthOK       = "ok"
	healthDegraded = "degraded"
	healthDown     = "down"
)

// component is one part, as it is at the moment.
type component struct {
	name           string
	status, detail string
	critical       bool // nothing works without it
}

// componentTimeout bounds the question to one part.
const componentTimeout = 5 * time.Second

// components asks each part.
func (f *FetchBox) components(ctx context.Context) []component {
	ctx, cancel := context.WithTimeout(ctx, componentTimeout)
	defer cancel()
	all := []component{{name: "api", status: healthOK}, {name: "ledger", critical: true},
		{name: "stream", critical: true},
		{name: "storage", critical: true}, {name: "proxy_pools"}}
	var checks sync.WaitGroup
	for i, ask := range map[int]func(context.Context) error{1: f.engine.Ping, 2: f.Streams.Ping,
		3: f.pingStorage} {
		checks.Go(func() {
			c := &all[i]
			if err := ask(ctx); err != nil {
				c.status, c.detail = healthDown, componentDetail(err)
				f.Log.Log(ctx, outage.Level(slog.LevelWarn, err), "a part of the contract is down",
					"component", c.name, "error_message", err)
				return
			}
			c.status = healthOK
		})
	}
	checks.Go(func() { all[4].status, all[4].detail = f.proxyHealth(ctx) })
	checks.Wait()
	return all
}

// componentDetail says what is wrong with a part: what operators may be shown of its error.
func componentDetail(err error) string {
	var known *job.Error
	if errors.As(err, &known) && known.Msg != "" {
		return known.Msg
	}
	return "it does not answer; the server's log says why"
}

// Checks are what FetchBox needs to be of use beside the store: the streams, and the buckets of its
// job types. Other contracts can do without.
func (f *FetchBox) Checks() []httpapi.Check {
	return []httpapi.Check{{Name: Name + " storage", Run: f.pingStorage, Optional: true},
		{Name: Name + " stream", Run: f.Streams.Ping, Optional: true}}
}

// GET /operators/health
func (f *FetchBox) health(c *httpapi.Call) error {
	all := f.components(c.Request.Context())
	overall, status := healthOK, http.StatusOK
	for _, part := range all {
		switch {
		case part.critical && part.status == healthDown:
			overall, status = healthDown, http.StatusServiceUnavailable // FB-066
		case part.status != healthOK && overall == healthOK:
			overall = healthDegraded
		}
	}
	o := strictjson.NewObject(make([]byte, 0, 512))
	o.Text("status", overall)
	o.Object("components", func(o *strictjson.Object) {
		for _, part := range all {
			o.Object(part.name, func(o *strictjson.Object) {
				o.Text("status", part.status)
				if part.detail != "" {
					o.Text("detail", part.detail)
				}
			})
		}
	})
	c.Send(status, httpapi.JSON, o.End())
	return nil
}
