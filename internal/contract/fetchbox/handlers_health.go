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

// component is the health of one component.
type component struct {
	name           string
	status, detail string
	critical       bool // the contract is down without it
}

// componentTimeout bounds the check of a component.
const componentTimeout = 5 * time.Second

// components checks all components at the same time. The pools of proxies are not critical: without
// them only the tasks that use them fail. The API itself is always ok, as it has answered.
func (f *FetchBox) components(ctx context.Context) []component {
	ctx, cancel := context.WithTimeout(ctx, componentTimeout)
	defer cancel()
	ledger := component{name: "ledger", critical: true}
	streams := component{name: "stream", critical: true}
	storage := component{name: "storage", critical: true}
	proxies := component{name: "proxy_pools"}
	var checks sync.WaitGroup
	checks.Go(func() { f.checkComponent(ctx, &ledger, f.Engine.Ping) })
	checks.Go(func() { f.checkComponent(ctx, &streams, f.Streams.Ping) })
	checks.Go(func() { f.checkComponent(ctx, &storage, f.pingStorage) })
	checks.Go(func() { proxies.status, proxies.detail = f.proxyRoutes.health(ctx) })
	checks.Wait()
	return []component{{name: "api", status: healthOK}, ledger, streams, storage, proxies}
}

// checkComponent sets the status of a component by a ping. It logs a failure at the level of
// outage.Level, since an outage of the component has a line of its own.
func (f *FetchBox) checkComponent(ctx context.Context, c *component,
	ping func(context.Context) error) {
	c.status = healthOK
	if err := ping(ctx); err != nil {
		c.status, c.detail = healthDown, componentDetail(err)
		f.Log.Log(ctx, outage.Level(slog.LevelWarn, err), "a component is down",
			"component", c.name, "error_message", err)
	}
}

// componentDetail is the part of an error that operators may see.
func componentDetail(err error) string {
	var known *job.Error
	if errors.As(err, &known) && known.Msg != "" {
		return known.Msg
	}
	return "it does not respond; the server's log says why"
}

// Checks are the readiness checks of what FetchBox needs besides the store: the streams, and the
// buckets of its job types. They are optional, as other contracts work without them.
func (f *FetchBox) Checks() []httpapi.Check {
	return []httpapi.Check{{Name: Name + " storage", Run: f.pingStorage, Optional: true},
		{Name: Name + " stream", Run: f.Streams.Ping, Optional: true}}
}

// GET /operators/health: all five components (FB-065, G-FB-39). The route is served also while the
// node refuses its objects or streams; the storage is then down with the reason.
func (f *FetchBox) health(c *httpapi.Call) error {
	all := f.components(c.Context())
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
