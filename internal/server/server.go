package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/maintenance"
	"github.com/millrace/millrace/internal/store"
)

// Service is an HTTP API that has no jobs of its own and so is no contract, such as that of remote
// workers. It is served on the common address.
type Service struct {
	Name    string
	Mount   func() httpapi.PrefixHandler // called once, after those of the contracts
	OpenAPI []byte                       // as that of a contract.Contract
	// Run executes the background work, as that of a contract.Contract; nil means none.
	Run func(ctx context.Context)
}

// Config describes a node. Services, JobTypes, Publishers, Metrics, Docs, Page, Background,
// CountRequests and WorkersOnly are optional; all other members are required.
type Config struct {
	Settings  *config.Settings
	Store     store.Store    // closed by Run
	Engine    *engine.Engine // of the store; the contracts were built with it
	Contracts []*contract.Contract
	Services  []Service
	JobTypes  []engine.JobType // besides those of the contracts
	// Publishers publish messages besides those of the contracts' outboxes.
	Publishers []maintenance.Publisher
	Log        *slog.Logger
	Metrics    http.Handler         // of /metrics and below; nil means none
	Docs       http.Handler         // of /docs and below; nil means none
	Version    string               // of the binary, for the log and the page
	Page       *Page                // nil means none
	Monotonic  func() time.Duration // a clock that never jumps
	// Background is what the node does besides its contracts and maintenance. It ends after the
	// contracts' work.
	Background []func(ctx context.Context)

	// CountRequests, unless nil, is called for each contract that is served, with how its requests
	// are counted.
	CountRequests func(contract string, count func() (requests, errors uint64))

	// WorkersOnly serves no contract, only health and metrics: the node only executes jobs.
	WorkersOnly bool
}

// validate names the first required member that is missing.
func (c *Config) validate() error {
	for _, member := range []struct {
		name    string
		missing bool
	}{
		{"Settings", c.Settings == nil},
		{"Store", c.Store == nil},
		{"Engine", c.Engine == nil},
		{"Contracts", len(c.Contracts) == 0},
		{"Log", c.Log == nil},
		{"Monotonic", c.Monotonic == nil},
	} {
		if member.missing {
			return fmt.Errorf("server: %s is required", member.name)
		}
	}
	for _, contract := range c.Contracts {
		if err := contract.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// Server is one node. New, Listen and Run are called once each, in this order and from one
// goroutine.
type Server struct {
	config    Config
	log       *slog.Logger
	engine    *engine.Engine
	listeners []*httpListener
	stopping  atomic.Bool
}

// New builds the node of a Config, and registers its contracts with the engine. It starts nothing.
// It reads the certificate, so that a file that is missing fails the start before a port is opened.
func New(c Config) (*Server, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	types := append(jobTypesOf(c.Contracts), c.JobTypes...)
	if err := c.Engine.Register(types...); err != nil {
		return nil, err
	}
	s := &Server{config: c, log: c.Log, engine: c.Engine}
	return s, s.buildListeners()
}

// buildListeners mounts all contracts and other APIs, and makes a listener for every address.
func (s *Server) buildListeners() error {
	settings := s.config.Settings
	credentials, err := loadTLS(settings.TLS)
	if err != nil {
		return err
	}
	mounted := s.mountContracts()
	common := []httpapi.PrefixHandler{s.health()}
	if s.config.Metrics != nil {
		common = append(common, httpapi.PrefixHandler{Name: "metrics",
			Prefixes: []string{"/metrics"}, Handler: s.config.Metrics})
	}
	if !s.config.WorkersOnly {
		common = append(common, openAPIHandler(s.config.Contracts, s.config.Services))
	}
	if s.servesDocs() {
		common = append(common, httpapi.PrefixHandler{Name: "docs",
			Prefixes: []string{docsPath}, Handler: s.config.Docs})
	}
	common = append(common, mounted.byAddress[""]...)
	if s.config.Page != nil {
		common = append(common, s.page(mounted.entries))
	}
	s.listeners = []*httpListener{newListener(settings.Listen, common, settings.TrustedProxies,
		credentials, s.log)}
	for _, address := range mounted.addresses {
		handlers := append([]httpapi.PrefixHandler{s.health()}, mounted.byAddress[address]...)
		s.listeners = append(s.listeners, newListener(address, handlers, settings.TrustedProxies,
			credentials, s.log))
	}
	return nil
}

// docsPath is the path of the documentation.
const docsPath = "/docs"

// servesDocs reports whether the node serves the documentation: to those who use or operate it.
func (s *Server) servesDocs() bool { return s.config.Docs != nil && !s.config.WorkersOnly }

// mounts are the handlers of contracts and other APIs by address; "" is the common address.
type mounts struct {
	byAddress map[string][]httpapi.PrefixHandler
	addresses []string // of contracts with an address of their own, in the order of the contracts
	entries   []pageEntry
}

// mountContracts mounts all contracts and other APIs. A node that only executes jobs serves none of
// them, but has their metrics, which the routes of contracts create.
func (s *Server) mountContracts() mounts {
	all := mounts{byAddress: map[string][]httpapi.PrefixHandler{}}
	for _, c := range s.config.Contracts {
		h := c.Mount()
		if !s.config.WorkersOnly {
			all.add(c.Name, h, c.Listen, c.OpenAPI)
			if s.config.CountRequests != nil && h.Requests != nil {
				s.config.CountRequests(c.Name, h.Requests)
			}
		}
	}
	if s.config.WorkersOnly {
		return all
	}
	for _, a := range s.config.Services {
		all.add(a.Name, a.Mount(), "", a.OpenAPI)
	}
	return all
}

// add adds a handler to those of its address, and names it on the page.
func (m *mounts) add(name string, h httpapi.PrefixHandler, address string, document []byte) {
	if address != "" && m.byAddress[address] == nil {
		m.addresses = append(m.addresses, address)
	}
	m.byAddress[address] = append(m.byAddress[address], h)
	m.entries = append(m.entries, pageEntry{Name: name, Prefixes: h.Prefixes, Listen: address,
		OpenAPI: openAPIPath(name, document)})
}

// openAPIHandler serves the OpenAPI documents of all contracts and other APIs. They are on the
// common listener, also those of contracts with an address of their own.
func openAPIHandler(contracts []*contract.Contract, apis []Service) httpapi.PrefixHandler {
	files := map[string][]byte{}
	for _, c := range contracts {
		files[openAPIPath(c.Name, c.OpenAPI)] = c.OpenAPI
	}
	for _, a := range apis {
		files[openAPIPath(a.Name, a.OpenAPI)] = a.OpenAPI
	}
	delete(files, "") // those without a document
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

// openAPIPath returns where an OpenAPI document is served, or "" where there is none.
func openAPIPath(name string, document []byte) string {
	if document == nil {
		return ""
	}
	return "/openapi/" + name + ".yaml"
}

// health serves the checks of the node: the store answers, the node is not stopping, and the
// contracts are healthy. A node that stops is not ready from the beginning of the stop on, so
// that a load balancer sends it no further requests while it finishes those it has; so is one that
// is drained (AD-042).
func (s *Server) health() httpapi.PrefixHandler {
	checks := []httpapi.Check{
		{Name: "store", Run: func(ctx context.Context) error { return s.engine.Ping(ctx) }},
		{Name: "shutdown", Run: func(context.Context) error {
			switch {
			case s.stopping.Load():
				return errNotReady("the node is stopping")
			case s.engine.IsNodeDraining():
				return errNotReady("the node is drained")
			}
			return nil
		}},
	}
	return httpapi.Health(append(checks, healthChecks(s.config.Contracts)...)...)
}

// errNotReady is why a node wants no further requests.
func errNotReady(msg string) error {
	return &job.Error{Kind: job.Unavailable, Op: "server.health", Msg: msg}
}
