package client_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/testkit"
)

// exampleServer starts a real server for the examples.
func exampleServer() (baseURL string, stop func()) {
	baseURL, stop, err := testkit.Serve(func(e *engine.Engine) ([]httpapi.PrefixHandler, error) {
		contract, err := relay.New(relay.Config{Engine: e, Log: slog.New(slog.DiscardHandler),
			Registry: prometheus.NewRegistry(), Settings: relay.Settings{V1: true, MaxNumJobs: 1000,
				BodyLimit: 1 << 20, RetryableStatus: 429}})
		if err != nil {
			return nil, err
		}
		return []httpapi.PrefixHandler{contract.Mount()}, e.Register(contract.JobType())
	})
	if err != nil {
		panic(err)
	}
	return baseURL, stop
}

// fakeRelay is a Relay server in memory: faithful enough to test the client with, with a script of
// faults. It proves nothing about the real server.
type fakeRelay struct {
	mu          sync.Mutex
	jobs        map[[2]string]*fakeJob
	runs        int
	order       int
	changed     chan struct{} // closed and created again when a job may have become due
	faults      []*injectedFault
	requests    []recordedRequest
	maxInFlight int // most jobs ever in flight at once
	// latency, unless nil, is how long the answer to a request takes.
	latency func(op string) time.Duration
}

type fakeJob struct {
	spec      fakeSpec
	remaining *int
	runID     string
	leaseEnd  time.Time
	updated   time.Time
	created   time.Time
	order     int
}

type fakeSpec struct {
	Queue      string          `json:"queue"`
	ID         string          `json:"id"`
	Timeout    *int64          `json:"timeout"`
	MaxRetries *int            `json:"max_retries"`
	Payload    json.RawMessage `json:"payload"`
	State      json.RawMessage `json:"state"`
	RunAt      *time.Time      `json:"run_at"`
}

// injectedFault makes exchanges of one kind fail.
type injectedFault struct {
	on     string // the op of a recordedRequest
	times  int    // how many more; negative for ever
	after  bool   // act first, then fail the answer
	drop   bool   // close the connection instead of answering
	status int
	header http.Header
	body   string
	match  func(recordedRequest) bool // nil for all
}

// recordedRequest is one request as the server saw it.
type recordedRequest struct {
	// enqueue, next, heartbeat, heartbeats, requeue, complete, completions, delete, get, exists
	op                 string
	method, uri        string
	queue, id, runID   string
	header             http.Header
	query              url.Values
	body               string
	at                 time.Time
	faulted            bool
	contentTypePresent bool
}

func newFakeRelay() *fakeRelay {
	return &fakeRelay{jobs: map[[2]string]*fakeJob{}, changed: make(chan struct{})}
}

func (d *fakeRelay) inject(f injectedFault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.times == 0 {
		f.times = 1
	}
	d.faults = append(d.faults, &f)
}

// clearFaults ends all faults.
func (d *fakeRelay) clearFaults() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = nil
}

// requestsOf returns those of one kind, in order; all for an empty name.
func (d *fakeRelay) requestsOf(op string) []recordedRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.requests), func(e recordedRequest) bool {
		return op != "" && e.op != op
	})
}

func (d *fakeRelay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	e := parseExchange(r, string(body))
	f := d.record(&e)
	if d.latency != nil {
		select {
		case <-time.After(d.latency(e.op)):
		case <-r.Context().Done():
			return
		}
	}
	if f != nil && !f.after {
		f.apply(w)
		return
	}
	if f != nil {
		d.route(httptest.NewRecorder(), r, e)
		f.apply(w)
		return
	}
	d.route(w, r, e)
}

func (f *injectedFault) apply(w http.ResponseWriter) {
	if f.drop {
		panic(http.ErrAbortHandler)
	}
	for name, values := range f.header {
		w.Header()[name] = values
	}
	w.WriteHeader(f.status)
	_, _ = io.WriteString(w, f.body)
}

// record remembers the request and picks the fault for it.
func (d *fakeRelay) record(e *recordedRequest) *injectedFault {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found *injectedFault
	for _, f := range d.faults {
		if f.on == e.op && f.times != 0 && (f.match == nil || f.match(*e)) {
			f.times--
			found = f
			break
		}
	}
	e.faulted = found != nil
	d.requests = append(d.requests, *e)
	return found
}

// parseExchange matches the path escaped and decodes its members (RL-097).
func parseExchange(r *http.Request, body string) recordedRequest {
	e := recordedRequest{method: r.Method, uri: r.RequestURI, header: r.Header,
		query: r.URL.Query(), body: body, at: time.Now()}
	_, e.contentTypePresent = r.Header["Content-Type"]
	escaped, _, _ := strings.Cut(r.RequestURI, "?")
	parts := strings.Split(strings.TrimPrefix(escaped, "/v2/queues/"), "/")
	for i, part := range parts {
		parts[i], _ = url.PathUnescape(part)
	}
	shape := fmt.Sprintf("%s %d", r.Method, len(parts))
	e.op = map[string]string{
		"POST 1": "enqueue", "GET 2": "next", "DELETE 3": "delete", "HEAD 3": "exists",
		"GET 3": "get", "PATCH 5": "heartbeat", "PUT 5": "requeue", "DELETE 5": "complete",
	}[shape]
	if e.op == "enqueue" && parts[0] != "jobs" {
		e.op = parts[0] // completions or heartbeats
	}
	if len(parts) >= 2 {
		e.queue = parts[0]
	}
	if len(parts) >= 3 {
		e.id = parts[2]
	}
	if len(parts) == 5 {
		e.runID = parts[4]
	}
	return e
}

func (d *fakeRelay) route(w http.ResponseWriter, r *http.Request, e recordedRequest) {
	if e.op == "next" {
		d.next(w, r, e)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	job := d.jobs[[2]string{e.queue, e.id}]
	current := job != nil && job.runID != "" && job.runID == e.runID
	switch e.op {
	case "enqueue":
		d.store(w, e, nil)
	case "requeue":
		if !current { // RL-066
			w.Header().Set("Millrace-Lost-Runs", "0")
			w.WriteHeader(http.StatusAccepted)
			return
		}
		d.store(w, e, job)
	case "heartbeat":
		if !current {
			http.Error(w, "job not found", http.StatusNotFound)
			return
		}
		job.heartbeat(e.body)
		w.WriteHeader(http.StatusAccepted)
	case "completions", "heartbeats":
		d.forEachRun(w, e)
	case "complete", "delete":
		if e.op == "delete" || current {
			delete(d.jobs, [2]string{e.queue, e.id})
		} else {
			w.Header().Set("Millrace-Lost-Runs", "0")
		}
		w.WriteHeader(http.StatusOK)
	case "exists", "get":
		if job == nil {
			http.Error(w, "job not found", http.StatusNotFound)
			return
		}
		if e.op == "get" {
			_, _ = w.Write(job.encode())
		}
	default:
		http.NotFound(w, r)
	}
}

// forEachRun completes the runs of a request, or sends their heartbeats. With next it claims jobs
// of the queue of the first one.
func (d *fakeRelay) forEachRun(w http.ResponseWriter, e recordedRequest) {
	type result struct {
		ID    string `json:"id"`
		RunID string `json:"run_id"`
		Known bool   `json:"known"`
	}
	var runs []struct {
		Queue string
		result
		State json.RawMessage
	}
	if err := json.Unmarshal([]byte(e.body), &runs); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	results := []result{}
	var lost []string
	for i, run := range runs {
		key := [2]string{run.Queue, run.ID}
		job := d.jobs[key]
		run.Known = job != nil && job.runID != "" && job.runID == run.RunID
		switch {
		case run.Known && e.op == "completions":
			delete(d.jobs, key)
		case run.Known:
			job.heartbeat(string(run.State))
		default:
			lost = append(lost, strconv.Itoa(i))
		}
		results = append(results, run.result)
	}
	if next, err := strconv.Atoi(e.query.Get("next")); err == nil {
		if len(lost) > 0 {
			w.Header().Set("Millrace-Lost-Runs", strings.Join(lost, ","))
		}
		sendClaimed(w, d.claimLocked(runs[0].Queue, next))
		return
	}
	_ = json.NewEncoder(w).Encode(results)
}

func sendClaimed(w http.ResponseWriter, claimed [][]byte) {
	if len(claimed) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	_, _ = fmt.Fprintf(w, "[%s]", bytes.Join(claimed, []byte(",")))
}

func (j *fakeJob) heartbeat(state string) {
	if state != "" {
		j.spec.State = json.RawMessage(state)
	}
	j.updated = time.Now()
	j.leaseEnd = j.updated.Add(j.timeout())
}

// store is enqueue and, with the job to remove first, requeue.
func (d *fakeRelay) store(w http.ResponseWriter, e recordedRequest, remove *fakeJob) {
	var specs []fakeSpec
	if e.header.Get("Content-Type") != "application/json" {
		http.Error(w, "not JSON", http.StatusUnsupportedMediaType)
		return
	}
	if err := json.Unmarshal([]byte(e.body), &specs); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	mode := e.query.Get("mode")
	if !slices.Contains([]string{"", "unique", "ignore", "replace"}, mode) {
		http.Error(w, "unknown mode", http.StatusBadRequest)
		return
	}
	for _, spec := range specs {
		old := d.jobs[[2]string{spec.Queue, spec.ID}]
		if old != nil && old != remove && (mode == "" || mode == "unique") {
			http.Error(w, fmt.Sprintf("job %s exists in queue %s", spec.ID, spec.Queue),
				http.StatusConflict)
			return
		}
		if spec.Timeout == nil || *spec.Timeout < 0 || utf8.RuneCountInString(spec.Queue) > 1024 {
			http.Error(w, "timeout or queue out of range", http.StatusUnprocessableEntity)
			return
		}
	}
	if remove != nil {
		delete(d.jobs, [2]string{remove.spec.Queue, remove.spec.ID})
	}
	for _, spec := range specs {
		d.put(spec, mode)
	}
	close(d.changed)
	d.changed = make(chan struct{})
	w.WriteHeader(http.StatusAccepted)
}

func (d *fakeRelay) put(spec fakeSpec, mode string) {
	key := [2]string{spec.Queue, spec.ID}
	if d.jobs[key] != nil && mode == "ignore" {
		return
	}
	now := time.Now()
	if spec.RunAt == nil {
		spec.RunAt = &now
	}
	d.order++
	d.jobs[key] = &fakeJob{spec: spec, remaining: spec.MaxRetries, created: now, updated: now,
		order: d.order}
}

func (d *fakeRelay) next(w http.ResponseWriter, r *http.Request, e recordedRequest) {
	limit, err := strconv.Atoi(e.query.Get("num_jobs"))
	if err != nil || limit < 1 {
		http.Error(w, "bad num_jobs", http.StatusBadRequest)
		return
	}
	var wait time.Duration
	if seconds, err := strconv.Atoi(strings.TrimPrefix(e.header.Get("Prefer"),
		"wait=")); err == nil {
		wait = time.Duration(min(seconds, 30)) * time.Second
		w.Header().Set("Preference-Applied", fmt.Sprintf("wait=%d", seconds))
	}
	over := time.After(wait)
	for {
		claimed, changed := d.claim(e.queue, limit)
		if len(claimed) > 0 {
			sendClaimed(w, claimed)
			return
		}
		select {
		case <-changed:
		case <-time.After(50 * time.Millisecond): // a job's time or the end of a lease
		case <-over:
			w.WriteHeader(http.StatusNoContent)
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (d *fakeRelay) claim(queue string, limit int) ([][]byte, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.claimLocked(queue, limit), d.changed
}

func (d *fakeRelay) claimLocked(queue string, limit int) [][]byte {
	d.expire()
	var due []*fakeJob
	for _, job := range d.jobs {
		if job.spec.Queue == queue && job.runID == "" && !job.spec.RunAt.After(time.Now()) {
			due = append(due, job)
		}
	}
	slices.SortFunc(due, func(a, b *fakeJob) int {
		if c := a.spec.RunAt.Compare(*b.spec.RunAt); c != 0 {
			return c
		}
		return a.order - b.order
	})
	var out [][]byte
	for _, job := range due[:min(limit, len(due))] {
		d.runs++
		job.runID = fmt.Sprintf("00000000-0000-4000-8000-%012d", d.runs)
		job.leaseEnd = time.Now().Add(job.timeout())
		out = append(out, job.encode())
	}
	inFlight := 0
	for _, job := range d.jobs {
		if job.runID != "" {
			inFlight++
		}
	}
	d.maxInFlight = max(d.maxInFlight, inFlight)
	return out
}

// expire returns what timed out to its queue, or removes it (RL-085 to RL-088).
func (d *fakeRelay) expire() {
	for key, job := range d.jobs {
		if job.runID == "" || time.Now().Before(job.leaseEnd) {
			continue
		}
		job.runID = ""
		if job.remaining == nil {
			continue
		}
		if *job.remaining == 0 {
			delete(d.jobs, key)
			continue
		}
		left := *job.remaining - 1
		job.remaining = &left
	}
}

func (j *fakeJob) timeout() time.Duration { return time.Duration(*j.spec.Timeout) * time.Second }

// encode writes payload and state as they came.
func (j *fakeJob) encode() []byte {
	quote := func(v any) string {
		raw, _ := json.Marshal(v)
		return string(raw)
	}
	state, run := "null", "null"
	if j.spec.State != nil {
		state = string(j.spec.State)
	}
	if j.runID != "" {
		run = quote(j.runID)
	}
	return fmt.Appendf(nil,
		`{"queue":%s,"id":%s,"timeout":%d,"max_retries":%s,"retries_remaining":%s,`+
			`"payload":%s,"state":%s,"run_id":%s,"run_at":%s,"updated_at":%s,"created_at":%s}`,
		quote(j.spec.Queue), quote(j.spec.ID), *j.spec.Timeout, quote(j.spec.MaxRetries),
		quote(j.remaining),
		j.spec.Payload, state, run, quote(j.spec.RunAt), quote(j.updated), quote(j.created))
}

// direct serves requests without a network, so that tests can run them in a synctest bubble, where
// time is not waited for.
type direct struct{ handler http.Handler }

func (d direct) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	defer func() {
		if value := recover(); value != nil {
			if value != http.ErrAbortHandler {
				panic(value)
			}
			err = io.ErrUnexpectedEOF
		}
	}()
	in := req.Clone(req.Context())
	in.RequestURI = req.URL.RequestURI()
	if in.Body == nil {
		in.Body = http.NoBody
	}
	recorder := httptest.NewRecorder()
	d.handler.ServeHTTP(recorder, in)
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	return recorder.Result(), nil
}
