package admin

import (
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/events"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/live"
	"github.com/millrace/millrace/internal/nodes"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/series"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/webhook"
)

// Name is the name of the API among the handlers of a listener and among the OpenAPI documents.
const Name = "admin"

// OpenAPI is the OpenAPI document. The server serves it, and the tests check every exchange by it.
//
//go:embed openapi.yaml
var OpenAPI []byte

// maxBodyBytes bounds the body of every request, in bytes.
const maxBodyBytes = 1 << 20

// Config configures the API. Engine, Log, Now, Pepper, TokenFile and AuditRetention are required.
type Config struct {
	Engine  *engine.Engine
	Log     *slog.Logger
	Now     func() time.Time // the process's clock; entries and sessions have the store's
	Elapsed func() time.Duration
	Tracing *telemetry.Tracing // nil makes no spans

	Pepper    []byte         // the same on every node
	Token     setting.Secret // of the settings; empty: the one of TokenFile
	TokenFile string
	Shared    bool // other nodes use the store, so the token is stored there too
	ReadToken setting.Secret
	// ReadPayloads shows the read token what jobs carry.
	ReadPayloads bool

	AuditRetention time.Duration
	TraceURL       string            // of the page of a trace, as the settings have it; "" for none
	Settings       []Setting         // as they are shown, by key
	Node           *nodes.Node       // nil makes one of Engine
	Series         *series.Recorder  // nil makes one of Engine
	Checks         []httpapi.Check   // of the parts that health shows
	Monitors       []*outage.Monitor // of further parts that health shows
	SecureCookies  bool              // all listeners use TLS
	// Contracts are the contracts of the node, whose jobs operators may change.
	Contracts []*contract.Contract
	Schedules *schedule.Schedules // nil makes those of Engine and Contracts
	Events    *events.Catalog     // nil makes that of Contracts
	Webhooks  *webhook.Webhooks   // nil takes those of Contracts, which may have none
}

// validate names the first required member that is missing.
func (c *Config) validate() error {
	switch {
	case c.Engine == nil || c.Log == nil || c.Now == nil || c.Elapsed == nil:
		return errors.New("admin: Engine, Log, Now and Elapsed are required")
	case c.TokenFile == "" && c.Token.Empty():
		return errors.New("admin: Token or TokenFile is required")
	case c.AuditRetention <= 0:
		return errors.New("admin: AuditRetention is required")
	}
	return nil
}

// API is the admin API, with the sessions of the console. Its methods are safe for concurrent use.
type API struct {
	Config

	tokens      *tokens
	health      *health
	crossOrigin *http.CrossOriginProtection
	byAction    map[string]*route
	audit       auditLog
	bulk        *bulk.Bulk
	console     Console
	maxCounted  int // the constant maxCounted; tests set fewer
	maxRuns     int // the constant maxRuns; tests set fewer

	// Live sends callers of the API what changes (AD-061).
	Live *live.Monitor
}

// New checks the config and makes the API. An error is a mistake in this program, or a pepper that
// is too short.
func New(c Config) (*API, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	t, err := newTokens(&c)
	if err != nil {
		return nil, err
	}
	c.Pepper = nil
	if c.Node == nil {
		if c.Node, err = nodes.New(nodes.Config{Engine: c.Engine, Elapsed: c.Elapsed}); err != nil {
			return nil, err
		}
	}
	if c.Series == nil {
		if c.Series, err = series.New(series.Config{Engine: c.Engine}); err != nil {
			return nil, err
		}
	}
	if c.Schedules == nil {
		if c.Schedules, err = schedule.New(schedule.Config{Engine: c.Engine, Log: c.Log,
			Contracts: c.Contracts}); err != nil {
			return nil, err
		}
	}
	if c.Events == nil {
		c.Events = events.New(c.Contracts)
	}
	for _, one := range c.Contracts {
		if c.Webhooks == nil {
			c.Webhooks = one.Webhooks
		}
	}
	a := &API{Config: c, tokens: t, health: newHealth(&c), maxCounted: maxCounted,
		maxRuns: maxRuns, crossOrigin: http.NewCrossOriginProtection(),
		audit: auditLog{retention: c.AuditRetention}}
	if err := a.newBulk(); err != nil {
		return nil, err
	}
	a.Live, err = live.New(live.Config{Engine: c.Engine, Bulk: a.bulk, Items: a.liveItems,
		Sessions: a.sessionsInForce, Log: c.Log})
	return a, err
}

// Prepare reads the operator's token, or makes it at the first start. Its error is one of the file
// and stops the start. A store that does not answer, or that has the token sealed under another
// pepper, is no error here: Run tries again, and requests are answered with 503 until then.
func (a *API) Prepare(ctx context.Context) error {
	made, err := a.tokens.prepare(ctx)
	if made {
		a.Log.Info("made a token for the operator; /operators needs none until operator.token is "+
			"set", "file", a.TokenFile)
	}
	return err
}

// Mount returns the handler of the API and of the pages of the console. It is called once.
func (a *API) Mount(console Console) httpapi.PrefixHandler {
	a.console = console
	t := httpapi.Router{
		Name:        Name,
		Prefixes:    []string{apiPrefix, consolePrefix},
		Authorize:   a.authorize,
		StrictQuery: true,
		BodyLimit:   maxBodyBytes,
		WriteError:  a.sendError,
		Log:         a.Log,
		Tracing:     a.Tracing,
	}
	a.byAction = map[string]*route{}
	for _, r := range append(a.routes(), pageRoutes(console.Pages())...) {
		a.byAction[r.action] = &r
		t.Routes = append(t.Routes, r.httpRoutes()...)
	}
	return t.MustMount()
}

const (
	// tokenRetryPause is the pause before a token of the store is read again that could not be.
	tokenRetryPause = time.Second
	// healthInterval is how often the parts are checked, so that health has the time since when one
	// fails even if no request came. It is failingInterval while one fails, as at a start.
	healthInterval  = 30 * time.Second
	failingInterval = time.Second
)

// Run keeps the token and the health of the parts up to date, carries out bulk operations and reads
// what callers watch, until ctx ends.
func (a *API) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for a.health.check(ctx); clock.Sleep(ctx, a.health.interval()); a.health.check(ctx) {
		}
	})
	wg.Go(func() { a.bulk.Run(ctx) })
	wg.Go(func() { a.Live.Run(ctx) })
	a.tokens.run(ctx)
	wg.Wait()
}
