package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Contract is a contract as a node needs it. It may have more than that, see room.go.
type Contract interface {
	Contract() engine.Contract
	// Mount hands over the engine and makes the room's part of the API. It is called once, before
	// anything runs.
	Mount(*engine.Engine) httpapi.PrefixHandler
}

// ServedContract is a room and the address it is served on; empty is the common one.
type ServedContract struct {
	Contract Contract
	Listen   string
	OpenAPI  []byte // its description, served as /openapi/NAME.yaml; nil serves none
}

// API is a part of the API that is no contract: it has no jobs of its own. It is served on the
// common address.
type API struct {
	Name    string
	Mount   func(*engine.Engine) httpapi.PrefixHandler // called once, after those of the rooms
	OpenAPI []byte                                     // see Place
}

// Config is what a node is made of. All members but Surfaces, Metrics, Page and Engine are needed.
type Config struct {
	Settings  *config.Settings
	Store     store.Store // closed by Run
	Contracts []ServedContract
	APIs      []API
	Log       *slog.Logger
	Metrics   http.Handler         // of /metrics and below; nil serves none
	Node      string               // unique among the nodes
	Version   string               // of the binary, for the log and the page
	Page      *Page                // nil serves none
	Random    func() [16]byte      // of cryptographic quality
	Monotonic func() time.Duration // a clock that never jumps

	// WorkersOnly serves no contract, only health and metrics: the node is there to run jobs.
	WorkersOnly bool

	// ConfigureEngine, when set, is given the engine once it is made: for what has to be told of it
	// before anything is served.
	ConfigureEngine func(*engine.Engine) error
}

func (c *Config) validate() error {
	for name, missing := range map[string]bool{"Settings": c.Settings == nil,
		"Store": c.Store == nil, "Places": len(c.Contracts) == 0,
		"Log": c.Log == nil, "Node": c.Node == "", "Random": c.Random == nil,
		"Elapsed": c.Monotonic == nil} {
		if missing {
			return fmt.Errorf("server: Config.%s is missing", name)
		}
	}
	return nil
}

// Server is one node.
type Server struct {
	config    Config
	log       *slog.Logger
	engine    *engine.Engine
	listeners []*httpListener
	stopping  atomic.Bool
}

// New puts a node together.
func New(c Config) (*Server, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	e, err := engine.New(engine.Config{Store: c.Store, Contracts: allEngineContracts(c.Contracts),
		Node: c.Node, Random: c.Random, Monotonic: c.Monotonic, Log: c.Log})
	if err != nil {
		return nil, err
	}
	if c.ConfigureEngine != nil {
		if err := c.ConfigureEngine(e); err != nil {
			return nil, err
		}
	}
	s := &Server{config: c, log: c.Log, engine: e}
	return s, s.buildListeners()
}

// build makes a door for every address that something is served on.
func (s *Server) buildListeners() error {
	common := []httpapi.PrefixHandler{s.health()}
	if s.config.Metrics != nil {
		common = append(common, httpapi.PrefixHandler{Name: "metrics",
			Prefixes: []string{"/metrics"}, Handler: s.config.Metrics})
	}
	if !s.config.WorkersOnly {
		common = append(common, openAPIHandler(s.config.Contracts, s.config.APIs))
	}
	var entries []pageEntry
	byAddress := map[string][]httpapi.PrefixHandler{}
	var addresses []string
	for _, p := range s.config.Contracts {
		m := p.Contract.Mount(s.engine)
		if s.config.WorkersOnly {
			continue
		}
		entries = append(entries, pageEntry{p.Contract.Contract().Name, m.Prefixes, p.Listen,
			openAPIPath(p.Contract.Contract().Name, p.OpenAPI)})
		if p.Listen == "" {
			common = append(common, m)
			continue
		}
		if byAddress[p.Listen] == nil {
			byAddress[p.Listen] = []httpapi.PrefixHandler{s.health()}
			addresses = append(addresses, p.Listen)
		}
		byAddress[p.Listen] = append(byAddress[p.Listen], m)
	}
	if !s.config.WorkersOnly {
		for _, f := range s.config.APIs {
			m := f.Mount(s.engine)
			common = append(common, m)
			entries = append(entries, pageEntry{f.Name, m.Prefixes, "",
				openAPIPath(f.Name, f.OpenAPI)})
		}
	}
	if s.config.Page != nil {
		common = append(common, s.page(entries))
	}
	credentials, err := loadTLS(s.config.Settings.TLS)
	if err != nil {
		return err
	}
	s.listeners = []*httpListener{newListener(s.config.Settings.Listen, common,
		s.config.Settings.TrustedProxies, credentials, s.log)}
	for _, address := range addresses {
		s.listeners = append(s.listeners,
			newListener(address, byAddress[address], s.config.Settings.TrustedProxies, credentials,
				s.log))
	}
	return nil
}

// openAPIHandler serves the OpenAPI documents of all contracts and surfaces.
func openAPIHandler(contracts []ServedContract, apis []API) httpapi.PrefixHandler {
	files := map[string][]byte{}
	for _, p := range contracts {
		files[openAPIPath(p.Contract.Contract().Name, p.OpenAPI)] = p.OpenAPI
	}
	for _, f := range apis {
		files[openAPIPath(f.Name, f.OpenAPI)] = f.OpenAPI
	}
	delete(files, "")
	return httpapi.PrefixHandler{Name: "openapi", Prefixes: []string{"/openapi/"},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, found := files[r.URL.Path]
			if found && r.Method != http.MethodGet && r.Method != http.MethodHead {
				w.Header().Set("Allow", "GET, HEAD")
				http.Error(w, "this path takes GET, HEAD", http.StatusMethodNotAllowed)
				return
			}
			if !found {
				httpapi.NotFound(w)
				return
			}
			w.Header().Set("Content-Type", "application/yaml")
			_, _ = w.Write(text)
		})}
}

// openAPIPath is where an OpenAPI document is served; empty where there is none.
func openAPIPath(name string, document []byte) string {
	if document == nil {
		return ""
	}
	return "/openapi/" + name + ".yaml"
}

// health says whether the node is of use.
func (s *Server) health() httpapi.PrefixHandler {
	checks := []httpapi.Check{
		{Name: "store", Run: func(ctx context.Context) error { return s.engine.Ping(ctx) }},
		{Name: "shutdown", Run: func(context.Context) error {
			if s.stopping.Load() {
				return &job.Error{Kind: job.Unavailable, Op: "server.health",
					Msg: "the node is stopping"}
			}
			return nil
		}},
	}
	return httpapi.Health(append(checks, healthChecks(s.config.Contracts)...)...)
}
