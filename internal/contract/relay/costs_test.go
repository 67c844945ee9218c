package relay_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// What a request costs is counted and not timed: allocations, their bytes, goroutines started, and
// calls of the connection. The server is the one of a node, on a connection of the loopback device
// with a client that allocates nothing, and the same requests are sent to an empty handler on the
// same server. The difference is what Millrace adds to net/http.

// costs are the costs of requests, in all or for each.
type costs struct {
	allocs, bytes, goroutines, reads, writes, deadlines float64
}

// minus returns the difference of costs, divided by n.
func (c costs) minus(before costs, n int) costs {
	per := func(after, before float64) float64 { return (after - before) / float64(n) }
	return costs{per(c.allocs, before.allocs), per(c.bytes, before.bytes),
		per(c.goroutines, before.goroutines), per(c.reads, before.reads),
		per(c.writes, before.writes), per(c.deadlines, before.deadlines)}
}

// connCalls counts the calls of the connections of a server.
type connCalls struct{ reads, writes, deadlines atomic.Int64 }

// now returns what the process and the connections have done so far.
func (c *connCalls) now() costs {
	started := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(started)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return costs{float64(m.Mallocs), float64(m.TotalAlloc), float64(started[0].Value.Uint64()),
		float64(c.reads.Load()), float64(c.writes.Load()), float64(c.deadlines.Load())}
}

// countedListener accepts connections that count their calls.
type countedListener struct {
	net.Listener
	calls *connCalls
}

func (l countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return countedConn{conn, l.calls}, err
}

type countedConn struct {
	net.Conn
	calls *connCalls
}

func (c countedConn) Read(p []byte) (int, error) { c.calls.reads.Add(1); return c.Conn.Read(p) }

func (c countedConn) Write(p []byte) (int, error) { c.calls.writes.Add(1); return c.Conn.Write(p) }

func (c countedConn) SetReadDeadline(t time.Time) error {
	c.calls.addDeadline(t)
	return c.Conn.SetReadDeadline(t)
}

func (c countedConn) SetWriteDeadline(t time.Time) error {
	c.calls.addDeadline(t)
	return c.Conn.SetWriteDeadline(t)
}

// addDeadline counts a deadline that is set. It leaves out those that net/http clears and those in
// the past, with which it ends its own read of a connection: how many there are depends on how
// quick the handler was.
func (c *connCalls) addDeadline(t time.Time) {
	if t.After(time.Unix(1, 0)) {
		c.deadlines.Add(1)
	}
}

// costServer is a server on a connection, and the client at its other end.
type costServer struct {
	calls  *connCalls
	conn   net.Conn
	answer []byte // the buffer of answers
}

// newCostServer serves a handler as a node does and connects to it.
func newCostServer(tb testing.TB, handler http.Handler) *costServer {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := &costServer{calls: &connCalls{}, answer: make([]byte, 256<<10)}
	server := httpapi.NewServer(httpapi.TrustProxies(nil, handler), slog.New(slog.DiscardHandler))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(countedListener{httpapi.LimitConnections(server, l, 1), s.calls})
	}()
	tb.Cleanup(func() { server.Close(); <-served })
	s.connect(tb, l.Addr().String())
	return s
}

// connect makes the connection of the client.
func (s *costServer) connect(tb testing.TB, address string) {
	tb.Helper()
	var err error
	if s.conn, err = net.Dial("tcp", address); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.conn.Close() })
}

// another returns the same server with a connection more.
func (s *costServer) another(tb testing.TB) *costServer {
	tb.Helper()
	other := &costServer{calls: s.calls, answer: make([]byte, 4<<10)}
	other.connect(tb, s.conn.RemoteAddr().String())
	return other
}

// relayCostServer serves Relay on a store in memory.
func relayCostServer(tb testing.TB) *costServer {
	tb.Helper()
	p := testkit.InMemory(tb)
	return relayCostServerOn(tb, p.Store, p.Clock)
}

// relayCostServerOn serves Relay on a store.
func relayCostServerOn(tb testing.TB, s store.Store, clock *testkit.Clock) *costServer {
	tb.Helper()
	c := config()
	c.Log, c.Registry = slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	c.MaxNumJobs = costBatch
	c.Engine = testkit.NewEngine(tb, s, clock)
	r, err := relay.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	testkit.Register(tb, c.Engine, r.JobType())
	return newCostServer(tb, httpapi.NewMux(r.Mount(), httpapi.Health()))
}

// emptyCostServer answers every request with a status and does nothing else.
func emptyCostServer(tb testing.TB, status int) *costServer {
	return newCostServer(tb, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
	}))
}

// Parts of an answer.
var (
	headerEnd     = []byte("\r\n\r\n")
	contentLength = []byte("\r\nContent-Length: ")
)

// exchange sends a request and returns the answer, which is valid until the next exchange.
func (s *costServer) exchange(tb testing.TB, request []byte, status int) []byte {
	if _, err := s.conn.Write(request); err != nil {
		tb.Fatal(err)
	}
	received, want := 0, -1
	for received != want {
		n, err := s.conn.Read(s.answer[received:])
		if err != nil {
			tb.Fatal(err)
		}
		received += n
		want = answerLength(s.answer[:received])
	}
	if got, _ := strconv.Atoi(string(s.answer[9:12])); got != status {
		tb.Fatalf("%s\ngot %s", request, s.answer[:received])
	}
	return s.answer[:received]
}

// answerLength returns the length of an answer, or −1 while its header is incomplete.
func answerLength(answer []byte) int {
	header := bytes.Index(answer, headerEnd)
	if header < 0 {
		return -1
	}
	at := bytes.Index(answer[:header], contentLength)
	if at < 0 {
		return header + len(headerEnd)
	}
	length := 0
	for _, digit := range answer[at+len(contentLength) : header+1] {
		if digit < '0' || digit > '9' {
			break
		}
		length = length*10 + int(digit-'0')
	}
	return header + len(headerEnd) + length
}

// The size of a measurement.
const (
	costRounds  = 100 // requests of each kind
	batchRounds = 30  // of each kind in batches
	costBatch   = 100 // jobs of a request in batches
)

// costStep is one kind of request.
type costStep struct {
	name    string
	status  int
	request func(i int) []byte
	// then, unless nil, is called with each answer.
	then func(i int, answer []byte)
	// large says that the answer does not fit into the buffer of net/http.
	large bool
	// rounds is the number of requests; 0 means costRounds.
	rounds int
}

// costRequest writes a request as clients send it.
func costRequest(method, path, body string, header ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: millrace\r\n", method, path)
	for _, line := range header {
		b.WriteString(line + "\r\n")
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n" + body)
	return b.Bytes()
}

// costRun is a run that an answer has named.
type costRun struct{ id, run string }

// costRunsOf finds the runs of an answer.
func costRunsOf(answer []byte) (runs []costRun) {
	var jobs []jobView
	_, body, _ := bytes.Cut(answer, headerEnd)
	if json.Unmarshal(body, &jobs) != nil {
		return nil
	}
	for _, j := range jobs {
		runs = append(runs, costRun{j.ID, *j.RunID})
	}
	return runs
}

// costRuns are the runs of the answers of one step, which those of a later one name. There are so
// many requests in each.
type costRuns struct {
	queue   string
	answers [][]byte
	buffer  []byte
}

func newCostRuns(queue string, requests, bytes int) *costRuns {
	return &costRuns{queue: queue, answers: make([][]byte, requests),
		buffer: make([]byte, 0, requests*bytes)}
}

// keep keeps an answer in place of the one before.
func (r *costRuns) keep(i int, answer []byte) {
	at := len(r.buffer)
	r.buffer = append(r.buffer, answer...)
	r.answers[i] = r.buffer[at:]
}

// on returns requests on the first of the runs of each answer.
func (r *costRuns) on(method, body string) func(int) []byte {
	return func(i int) []byte {
		run := costRunsOf(r.answers[i])[0]
		return costRequest(method, jobPath(r.queue, run.id)+"/run-id/"+run.run, body)
	}
}

// post returns requests that list all runs of each answer.
func (r *costRuns) post(path string) func(int) []byte {
	return func(i int) []byte {
		var entries []string
		for _, run := range costRunsOf(r.answers[i]) {
			entries = append(entries, fmt.Sprintf(`{"queue":%q,"id":%q,"run_id":%q}`, r.queue, run.id,
				run.run))
		}
		return costRequest("POST", path, "["+strings.Join(entries, ",")+"]")
	}
}

// singleSteps are the requests of a client that submits one job at a time, and of a worker that
// does one at a time. header is the header of its polls. Of the jobs a half is taken by ends.
func singleSteps(queue string, header ...string) []costStep {
	runs := newCostRuns(queue, costRounds, 2<<10)
	return []costStep{
		{name: "enqueue", status: 202, rounds: 2 * costRounds, request: func(i int) []byte {
			return costRequest("POST", "/v2/queues/jobs",
				"["+jobBody(queue, fmt.Sprintf("job-%08d", i))+"]")
		}},
		{name: "next", status: 200, request: func(int) []byte {
			return costRequest("GET", "/v2/queues/"+queue+"/jobs", "", header...)
		}, then: runs.keep},
		{name: "heartbeat", status: 202, request: runs.on("PATCH", "")},
		{name: "heartbeat with state", status: 202, request: runs.on("PATCH", `{"done":7}`)},
		{name: "completion and next", status: 200, request: runs.post(completions + "?next=1"),
			then: runs.keep},
		{name: "complete", status: 200, request: runs.on("DELETE", "")},
		{name: "next, nothing ready", status: 204, request: func(int) []byte {
			return costRequest("GET", "/v2/queues/"+queue+"/jobs", "")
		}},
	}
}

// batchSteps are the requests of a client and a worker with batches of costBatch jobs. Of the jobs
// a half is taken by ends.
func batchSteps(queue string) []costStep {
	runs := newCostRuns(queue, batchRounds, 2*400*costBatch)
	return []costStep{
		{name: "enqueue of 100", status: 202, rounds: 2 * batchRounds, request: func(i int) []byte {
			var jobs []string
			for n := range costBatch {
				jobs = append(jobs, jobBody(queue, fmt.Sprintf("job-%08d", i*costBatch+n)))
			}
			return costRequest("POST", "/v2/queues/jobs", "["+strings.Join(jobs, ",")+"]")
		}},
		{name: "next of 100", status: 200, request: func(int) []byte {
			return costRequest("GET", fmt.Sprintf("/v2/queues/%s/jobs?num_jobs=%d", queue, costBatch),
				"")
		}, then: runs.keep, large: true, rounds: batchRounds},
		{name: "heartbeats of 100", status: 200, request: runs.post("/v2/queues/heartbeats"),
			large: true, rounds: batchRounds},
		{name: "completions and next of 100", status: 200,
			request: runs.post(fmt.Sprintf("%s?next=%d", completions, costBatch)),
			then:    runs.keep, large: true, rounds: batchRounds},
		{name: "completions of 100", status: 200, request: runs.post(completions),
			large: true, rounds: batchRounds},
	}
}

// measure sends the requests of a step and returns what each has cost.
func (s *costServer) measure(tb testing.TB, status int, requests [][]byte,
	then func(int, []byte)) costs {
	tb.Helper()
	before := s.calls.now()
	for i, request := range requests {
		answer := s.exchange(tb, request, status)
		if then != nil {
			then(i, answer)
		}
	}
	return s.calls.now().minus(before, len(requests))
}

// costGroups are all steps, in the groups whose steps share a server.
func costGroups() [][]costStep {
	waiting := singleSteps("waiting", "Prefer: wait=10")[:2]
	waiting[1].name = "next with a wait"
	return [][]costStep{singleSteps("single"), waiting[:2], batchSteps("batch")}
}

// measureStep returns what a request of a step costs above an empty handler, and what that costs.
func (s *costServer) measureStep(tb testing.TB, step costStep) (above, empty costs) {
	tb.Helper()
	requests := make([][]byte, cmp.Or(step.rounds, costRounds))
	for i := range requests {
		requests[i] = step.request(i)
	}
	all := s.measure(tb, step.status, requests, step.then)
	empty = emptyCostServer(tb, step.status).measure(tb, step.status, requests, nil)
	return all.minus(empty, 1), empty
}

// maxAllocs is how many allocations a request of each step may make above an empty handler: what
// was measured with the race detector, which makes pools drop some of their entries, and 5 to 15 %
// more.
var maxAllocs = map[string]float64{
	"enqueue":                     161,
	"next":                        190,
	"next with a wait":            202,
	"next, nothing ready":         361,
	"heartbeat":                   93,
	"heartbeat with state":        107,
	"complete":                    130,
	"completion and next":         240,
	"enqueue of 100":              1105,
	"next of 100":                 1065,
	"heartbeats of 100":           501,
	"completions of 100":          534,
	"completions and next of 100": 1440,
}

// TestRequestCosts holds what a request does above an empty handler: few more allocations than it
// needs, no deadline, one goroutine at most, and no second write of an answer that fits into the
// buffer of net/http. It is not parallel, since it counts what the whole process does.
func TestRequestCosts(t *testing.T) {
	for _, steps := range costGroups() {
		server := relayCostServer(t)
		for _, step := range steps {
			above, _ := server.measureStep(t, step)
			limit, found := maxAllocs[step.name]
			if !found || above.allocs > limit {
				t.Errorf("%s: %.1f allocations above an empty handler, want %.0f at most", step.name,
					above.allocs, limit)
			}
			extraWrites := 0.0
			if step.large {
				extraWrites = 1
			}
			// The margins are for the runtime.
			if above.goroutines > 1.5 || above.deadlines > 0.1 || above.writes > extraWrites+0.1 {
				t.Errorf("%s: above an empty handler %.2f goroutines, %.2f deadlines, %.2f writes",
					step.name, above.goroutines, above.deadlines, above.writes)
			}
		}
	}
}

// The crowd of TestGoroutinesOfManyRequests, and how many goroutines above an empty handler a
// request of it may start. A request that comes alone starts one, that of its group in the engine.
const (
	crowd            = 64
	crowdRounds      = 60 // requests of each connection
	maxCrowdRoutines = 0.2
)

// syncedStore is a store whose updates take as long as they do where a log is synced to a disk.
type syncedStore struct{ store.Store }

// Update is documented at the port.
func (s syncedStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	time.Sleep(2 * time.Millisecond)
	return s.Store.Update(ctx, fn)
}

// TestGoroutinesOfManyRequests holds that requests that come at the same time share the goroutine
// that serves them. Like TestRequestCosts it is not parallel.
func TestGoroutinesOfManyRequests(t *testing.T) {
	enqueue := func(i int) []byte {
		return costRequest("POST", "/v2/queues/jobs", "["+jobBody("crowd", fmt.Sprint("job-", i))+"]")
	}
	p := testkit.InMemory(t)
	all := relayCostServerOn(t, syncedStore{p.Store}, p.Clock).measureCrowd(t, enqueue)
	empty := emptyCostServer(t, http.StatusAccepted).measureCrowd(t, enqueue)
	above := all.minus(empty, 1)
	t.Logf("%.3f goroutines of a request, %.3f of one of an empty handler", all.goroutines,
		empty.goroutines)
	if above.goroutines > maxCrowdRoutines {
		t.Errorf("%.2f goroutines of a request above an empty handler, want %.1f at most",
			above.goroutines, maxCrowdRoutines)
	}
}

// measureCrowd sends requests on as many connections as the crowd has and returns what each
// request has cost. The first request of each connection is not counted, as it makes the goroutine
// of the connection. Those of the clients are counted, with any handler as many.
func (s *costServer) measureCrowd(tb testing.TB, request func(i int) []byte) costs {
	tb.Helper()
	clients := make([]*costServer, crowd)
	requests := make([][][]byte, crowd)
	for n := range crowd {
		clients[n] = s.another(tb)
		for i := range crowdRounds + 1 {
			requests[n] = append(requests[n], request(n*(crowdRounds+1)+i))
		}
		clients[n].exchange(tb, requests[n][0], http.StatusAccepted)
	}
	before := s.calls.now()
	testkit.RunConcurrently(crowd, func(n int) struct{} {
		for _, r := range requests[n][1:] {
			clients[n].exchange(tb, r, http.StatusAccepted)
		}
		return struct{}{}
	})
	return s.calls.now().minus(before, crowd*crowdRounds)
}

// BenchmarkRequestCosts reports what a request costs above an empty handler, and its calls of
// write. Each step is measured once, however often its benchmark runs.
func BenchmarkRequestCosts(b *testing.B) {
	for _, steps := range costGroups() {
		server := relayCostServer(b)
		for _, step := range steps {
			above, empty := server.measureStep(b, step)
			b.Run(step.name, func(b *testing.B) {
				b.ReportMetric(0, "ns/op") // leaves it out
				b.ReportMetric(above.allocs, "allocs/request")
				b.ReportMetric(above.bytes, "B/request")
				b.ReportMetric(above.goroutines, "goroutines/request")
				b.ReportMetric(above.writes+empty.writes, "writes/request")
				b.ReportMetric(above.deadlines, "deadlines/request")
			})
		}
	}
}
