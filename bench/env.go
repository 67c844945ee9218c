package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Env is what cases share in one bench: a folder, a PostgreSQL server, the processes that were
// started, and the settings that flags may change.
type Env struct {
	Name    string // random name of this bench, used in every name it creates
	Dir     string // folder of this bench, removed by Close
	Clients int    // goroutines or connections of a case that works with single jobs
	Rate    int    // jobs a second of a case with a steady rate, 0 for its own
	Server  string // DSN of a PostgreSQL server, "" for that of the environment
	Tuning  Tuning
	Log     io.Writer

	mu                 sync.Mutex
	databases          map[string]*database
	children           []*Child
	serverDescriptions []string // of the servers that cases found or started
}

// Tuning holds the peers' knobs. The defaults are the best that were found on a small machine; see
// the comments at the cases.
type Tuning struct {
	PostgresConns    int `json:"postgres_conns"`
	RiverWorkers     int `json:"river_workers"`
	RiverConns       int `json:"river_conns"`
	RiverInserters   int `json:"river_inserters"`
	AsynqServers     int `json:"asynq_servers"`
	AsynqConcurrency int `json:"asynq_concurrency"`
	AsynqClients     int `json:"asynq_clients"`
}

// database is the outcome of the one attempt to create it.
type database struct {
	pg  *Postgres
	err error
}

// newEnv creates the folder of the bench inside dir ("" is the system's).
func newEnv(dir string, clients int, tune Tuning, log io.Writer) (*Env, error) {
	token := make([]byte, 4)
	if _, err := rand.Read(token); err != nil {
		return nil, err
	}
	made, err := os.MkdirTemp(dir, "millrace-bench-")
	if err != nil {
		return nil, err
	}
	return &Env{
		Name: hex.EncodeToString(token), Dir: made, Clients: clients, Tuning: tune, Log: log,
		databases: map[string]*database{},
	}, nil
}

// rateOr is the rate that was asked for, or a case's own.
func (e *Env) rateOr(own int) int { return cmp.Or(e.Rate, own) }

// Folder makes a folder for one case.
func (e *Env) Folder(name string) (string, error) {
	path := filepath.Join(e.Dir, name)
	return path, os.MkdirAll(path, 0o700)
}

// Postgres returns a database of that name in this bench, created at the first call and dropped by
// Close. All are on one server. When there is none, each case gets the same skip.
func (e *Env) Postgres(ctx context.Context, name string) (*Postgres, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := e.databases[name]
	if d == nil {
		d = &database{}
		d.pg, d.err = createPostgres(ctx, e.Server, "millrace_bench_"+e.Name+"_"+name)
		e.databases[name] = d
	}
	return d.pg, d.err
}

// Servers describes the database servers that cases used.
func (e *Env) Servers() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var descriptions []string
	for _, d := range e.databases {
		if d.err != nil {
			continue
		}
		descriptions = append(descriptions, d.pg.Describe())
		break // one server, the same for all
	}
	return append(descriptions, e.serverDescriptions...)
}

func (e *Env) addChild(c *Child) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.children = append(e.children, c)
}

func (e *Env) addServer(line string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.serverDescriptions = append(e.serverDescriptions, line)
}

// Close drops the databases, stops the processes and removes the folder.
func (e *Env) Close(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, d := range e.databases {
		if d.err != nil {
			continue
		}
		errs = append(errs, d.pg.Drop(ctx))
	}
	for _, c := range e.children {
		errs = append(errs, c.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(e.Dir))...)
}

// KillAll kills the processes that were started. The last resort of a bench that does not come to
// its end.
func (e *Env) KillAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.children {
		c.Kill()
	}
}

// checkLocal refuses a server on another machine: a bench puts load on whatever it is pointed at.
func checkLocal(host string) error {
	if host == "localhost" || strings.HasPrefix(host, "/") {
		return nil
	}
	if ip := net.ParseIP(strings.Trim(host, "[]")); ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("host %q is not this machine; the bench talks to 127.0.0.1 only", host)
}
