package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// forgeRunner is one load on the real binary, serving ForgeRun on SQLite to one client. Each run
// has a server process and a data directory of its own.
type forgeRunner struct {
	binary      string
	dir         string
	clients     int
	serverFlags []string // of the server
	load        forgeLoad
	rate        int // jobs a second of a steady load, 0 for its own
	durability  string
}

// forgeLoad takes n jobs through on so many connections.
type forgeLoad func(ctx context.Context, s *forgeServer, conns, n int) ([]Phase, error)

// forgeLimits keep the limits of a client out of what is measured.
var forgeLimits = []string{"--set", "forgerun.rate_limit_per_minute=1000000000", "--set",
	"forgerun.queue_size=1000000000"}

// forgeWorkers are workers that are idle most of the time, with work that ends at once.
var forgeWorkers = []string{"--set", "forgerun.workers=16", "--set",
	"forgerun.duration_scale=0.001"}

func setupForge(load forgeLoad, flags ...string) func(context.Context, *Env) (Runner, error) {
	return func(ctx context.Context, env *Env) (Runner, error) {
		dir, err := os.MkdirTemp(env.Dir, "forgerun-")
		if err != nil {
			return nil, err
		}
		binary, err := millrace.build(ctx)
		return &forgeRunner{binary: binary, dir: dir, clients: env.Clients,
			serverFlags: slices.Concat(flags, forgeLimits), load: load, rate: env.Rate}, err
	}
}

func (f *forgeRunner) Durability() string {
	return "SQLite WAL synchronous=FULL: an fsync before every answer; log lines of requests and " +
		"jobs to a file; " + f.durability
}

func (f *forgeRunner) Close() error { return nil }

func (f *forgeRunner) Run(ctx context.Context, n int) ([]Phase, error) {
	s, err := f.serve(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	if err := s.createClient(ctx); err != nil {
		return nil, fmt.Errorf("sign up: %w", err)
	}
	phases, err := f.load(ctx, s, f.clients, n)
	if err != nil {
		return nil, err
	}
	memory := residentMemory(s.cmd.Process.Pid)
	if err := s.Stop(); err != nil {
		return nil, err
	}
	spent := s.cmd.ProcessState.UserTime() + s.cmd.ProcessState.SystemTime()
	f.durability = fmt.Sprintf("the server used %v of processor time (%v a job) and %s",
		spent.Round(10*time.Millisecond), formatDuration(spent/time.Duration(n)), memory)
	return phases, nil
}

// serve starts a server on an empty directory.
func (f *forgeRunner) serve(ctx context.Context) (*forgeServer, error) {
	data := filepath.Join(f.dir, "data")
	if err := os.RemoveAll(data); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(f.dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	s, err := serveMillrace(ctx, f.binary, data, log, f.serverFlags...)
	return &forgeServer{millraceServer: s, rate: f.rate}, err
}

// forgeServer is a server with a client that has a key.
type forgeServer struct {
	*millraceServer
	key  string
	rate int
}

// request makes one; no body is a GET.
func (s *forgeServer) request(path string, body []byte) []byte {
	method := http.MethodPost
	if body == nil {
		method = http.MethodGet
	}
	head := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, path, s.addr)
	if s.key != "" {
		head = fmt.Appendf(head, "Authorization: Bearer %s\r\n", s.key)
	}
	if body != nil {
		head = fmt.Appendf(head, "Content-Type: application/json\r\nContent-Length: %d\r\n",
			len(body))
	}
	return append(append(head, "\r\n"...), body...)
}

// createClient makes the client and its key.
func (s *forgeServer) createClient(ctx context.Context) error {
	conns, closeAll, err := dialMany(ctx, s.addr, 1)
	if err != nil {
		return err
	}
	defer closeAll()
	body, err := conns[0].Expect(s.request("/v1/clients", []byte("{}")), http.StatusCreated)
	if err != nil {
		return err
	}
	body, err = conns[0].Expect(s.request("/v1/clients/"+member(body, "client_id")+"/keys",
		[]byte("{}")), http.StatusCreated)
	s.key = member(body, "api_key")
	return err
}

// forgeJob is what is known of a job here.
type forgeJob struct {
	sent time.Time
	due  time.Time // zero: at once
	id   string
}

// submission is the request that submits job i. A key of its own comes with it, as the client
// library has it.
func (s *forgeServer) submission(i int, due time.Time) []byte {
	typ, at := "EXECUTE", ""
	if !due.IsZero() {
		typ, at = "DEFERRED", `,"execution_at":"`+due.UTC().Format(time.RFC3339Nano)+`"`
	}
	return s.request("/v1/jobs", fmt.Appendf(nil,
		`{"type":"%s","work_kind":"SUCCESS_FAST","idempotency_key":"bench-%d-%d"%s}`, typ,
		due.Unix(), i, at))
}

// submit submits one job and remembers it.
func (s *forgeServer) submit(c *rawConn, i int, j *forgeJob) error {
	request := s.submission(i, j.due)
	j.sent = time.Now()
	body, err := c.Expect(request, http.StatusAccepted)
	j.id = member(body, "job_id")
	return err
}

// reports waits until the jobs are final and reads their reports.
func (s *forgeServer) reports(ctx context.Context, conns []*rawConn,
	jobs []forgeJob) ([]forgeReport, error) {
	reports := make([]forgeReport, len(jobs))
	_, err := runParallel(ctx, len(conns), len(jobs), func(ctx context.Context, g, i int) error {
		request := s.request("/v1/jobs/"+jobs[i].id+"/report", nil)
		for {
			status, body, err := conns[g].Do(request)
			if err != nil {
				return err
			}
			switch status {
			case http.StatusOK:
				return json.Unmarshal(body, &reports[i])
			case http.StatusNotFound: // not final yet
				if err := sleep(ctx, 20*time.Millisecond); err != nil {
					return err
				}
			default:
				return fmt.Errorf("a report was answered %d: %.200s", status, body)
			}
		}
	})
	return reports, err
}

// forgeReport is what matters here of a job's report.
type forgeReport struct {
	Outcome string `json:"outcome"`
	Events  []struct {
		Name string    `json:"event_name"`
		At   time.Time `json:"timestamp"`
	} `json:"events"`
}

// timeOf is when the named event was; there must be one.
func (r *forgeReport) timeOf(name string) (at time.Time, err error) {
	found := 0
	for _, e := range r.Events {
		if e.Name == name {
			at = e.At
			found++
		}
	}
	if found != 1 || r.Outcome != "SUCCESS" {
		return at, fmt.Errorf("a report with the outcome %q has %d events %s, not one", r.Outcome,
			found, name)
	}
	return at, nil
}

// delaysSince are the times from what since answers to the named event of each report.
func delaysSince(reports []forgeReport, name string,
	since func(i int) (time.Time, error)) ([]time.Duration, error) {
	took := make([]time.Duration, len(reports))
	for i := range reports {
		from, err := since(i)
		if err != nil {
			return nil, err
		}
		at, err := reports[i].timeOf(name)
		if err != nil {
			return nil, err
		}
		took[i] = at.Sub(from)
	}
	return took, nil
}
