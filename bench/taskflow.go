package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/client"
)

// flowRunner is one load on the real binary, serving TaskFlow and the worker API. Each run has a
// server process and an empty database of its own.
type flowRunner struct {
	binary     string
	dir        string
	pg         *Postgres // nil: SQLite
	clients    int
	load       flowLoad
	prefilled  bool // with the jobs before the server starts
	durability string
}

// flowLoad takes n jobs through on so many connections.
type flowLoad func(ctx context.Context, s *flowServer, conns, n int) ([]Phase, error)

// flowServer is a server of the binary, asked without a token.
type flowServer struct {
	*forgeServer
	filledAt time.Time // when the jobs were stored there
	note     string    // what a load has to say beside its phases
}

func setupFlowSearch(onPostgres bool) func(context.Context, *Env) (Runner, error) {
	return func(ctx context.Context, env *Env) (Runner, error) {
		r, err := setupFlow(flowSearch, onPostgres)(ctx, env)
		if err != nil {
			return r, err
		}
		r.(*flowRunner).prefilled = true
		return r, nil
	}
}

func setupFlow(load flowLoad, onPostgres bool) func(context.Context, *Env) (Runner, error) {
	return func(ctx context.Context, env *Env) (Runner, error) {
		f := &flowRunner{clients: env.Clients, load: load}
		var err error
		if onPostgres {
			if f.pg, err = env.Postgres(ctx, "taskflow"); err != nil {
				return nil, err
			}
		}
		if f.dir, err = os.MkdirTemp(env.Dir, "taskflow-"); err != nil {
			return f, err
		}
		f.binary, err = millrace.build(ctx)
		return f, err
	}
}

func (f *flowRunner) Durability() string {
	if f.pg != nil {
		return f.pg.Durability() + "; " + f.durability
	}
	return "SQLite WAL synchronous=FULL: an fsync before every answer; " + f.durability
}

func (f *flowRunner) Close() error { return nil }

func (f *flowRunner) Run(ctx context.Context, n int) ([]Phase, error) {
	s, err := f.serve(ctx, n)
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	phases, err := f.load(ctx, s, f.clients, n)
	if err != nil {
		return nil, err
	}
	if err := s.Stop(); err != nil {
		return nil, err
	}
	spent := s.cmd.ProcessState.UserTime() + s.cmd.ProcessState.SystemTime()
	f.durability = fmt.Sprintf("the server used %v of processor time (%v a job)%s",
		spent.Round(10*time.Millisecond), formatDuration(spent/time.Duration(n)), s.note)
	return phases, nil
}

// serve starts a server on a database that is empty or filled.
func (f *flowRunner) serve(ctx context.Context, n int) (*flowServer, error) {
	data := filepath.Join(f.dir, "data")
	if err := os.RemoveAll(data); err != nil {
		return nil, err
	}
	flags := []string{"--set", "taskflow.max_concurrent=" + strconv.Itoa(flowConcurrent), "--set",
		"taskflow.lease=10m"}
	if f.pg != nil {
		if err := f.pg.Recreate(ctx); err != nil {
			return nil, err
		}
		flags = append(flags, "--set", "store="+f.pg.URL())
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	if f.prefilled {
		if err := f.fillFlow(ctx, n, now); err != nil {
			return nil, fmt.Errorf("fill: %w", err)
		}
	}
	log, err := os.Create(filepath.Join(f.dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	s, err := serveMillrace(ctx, f.binary, data, log, flags...)
	return &flowServer{forgeServer: &forgeServer{millraceServer: s}, filledAt: now}, err
}

// flowConcurrent is the largest number of jobs that may run at a time.
const flowConcurrent = 1_000_000

// A graph has flowLayers layers; each job of one waits for flowFan jobs of the layer above.
const (
	flowLayers = 20
	flowFan    = 3
)

// flowGraphJobs is how many jobs one request brings.
const flowGraphJobs = 10_000

// flowGraph submits one graph of n jobs, in as few requests as there may be, and lets workers run
// it: each claims a batch and finishes it in one request.
func flowGraph(ctx context.Context, s *flowServer, _, n int) ([]Phase, error) {
	return s.runGraph(ctx, n, flowWorkers, (*graphWork).batches)
}

// flowGraphSDK is flowGraph with workers of the Go client, on as many handlers as flowGraph has
// jobs under way.
func flowGraphSDK(ctx context.Context, s *flowServer, _, n int) ([]Phase, error) {
	return s.runGraph(ctx, n, flowWorkers, (*graphWork).runSDKWorker)
}

// flowGraphSingle is flowGraph with a request for each job that ends.
func flowGraphSingle(ctx context.Context, s *flowServer, conns, n int) ([]Phase, error) {
	return s.runGraph(ctx, n, flowWorkers*(1+conns), (*graphWork).singles)
}

// runGraph submits a graph and has it worked on so many connections.
func (s *flowServer) runGraph(ctx context.Context, n, conns int,
	work func(*graphWork, context.Context, int) error) ([]Phase, error) {
	one, closeOne, err := dialMany(ctx, s.addr, 1)
	if err != nil {
		return nil, err
	}
	defer closeOne()
	ids := make([]string, n)
	started := time.Now()
	var latency []time.Duration
	for _, cut := range batches(n, flowGraphJobs) {
		sent := time.Now()
		if err := s.submitGraph(one[0], ids, cut[0], cut[1]); err != nil {
			return nil, err
		}
		latency = append(latency, time.Since(sent))
	}
	insert := Phase{Name: phaseInsert, Jobs: n, Took: time.Since(started), Latency: latency}
	// only now: the server closes a connection that says nothing for long
	open, closeAll, err := dialMany(ctx, s.addr, conns)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	worked, err := s.workGraph(ctx, open, ids, work)
	return []Phase{insert, worked, totalPhase(n, insert, worked)}, err
}

// flowSubmit submits graphs of 10,000 jobs, one after another: the latency is that of such a
// request.
func flowSubmit(ctx context.Context, s *flowServer, _, n int) ([]Phase, error) {
	open, closeAll, err := dialMany(ctx, s.addr, 1)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	started := time.Now()
	var latency []time.Duration
	for _, cut := range batches(n, flowGraphJobs) {
		size := cut[1] - cut[0]
		sent := time.Now()
		if err := s.submitGraph(open[0], make([]string, size), 0, size); err != nil {
			return nil, err
		}
		latency = append(latency, time.Since(sent))
	}
	return []Phase{{Name: phaseInsert, Jobs: n, Took: time.Since(started), Latency: latency}}, nil
}

// submitGraph submits the jobs from..to of a graph as large as ids, where it puts their ids. Jobs
// of earlier requests are named by theirs.
func (s *flowServer) submitGraph(c *rawConn, ids []string, from, to int) error {
	text := []byte(`{"jobs":[`)
	for i := from; i < to; i++ {
		if i > from {
			text = append(text, ',')
		}
		text = fmt.Appendf(text, `{"ref":"%d","name":"job %d","queue":"bench","payload":`, i, i)
		text = append(appendPayload(text, i), `,"depends_on":[`...)
		for k, d := range flowDependencies(i, len(ids)) {
			if k > 0 {
				text = append(text, ',')
			}
			if ref := ids[d]; d < from {
				text = fmt.Appendf(text, `"%s"`, ref)
			} else {
				text = fmt.Appendf(text, `"%d"`, d)
			}
		}
		text = append(text, "]}"...)
	}
	body, err := c.Expect(s.request("/api/v1/graphs", append(text, "]}"...)), http.StatusCreated)
	if err != nil {
		return err
	}
	var answer struct{ Jobs map[string]string }
	if err := json.Unmarshal(body, &answer); err != nil {
		return err
	}
	for i := from; i < to; i++ {
		ids[i] = answer.Jobs[strconv.Itoa(i)]
	}
	return nil
}

// flowDependencies are the numbers of the jobs that job i of n waits for.
func flowDependencies(i, n int) (on []int) {
	width := max(flowFan, (n+flowLayers-1)/flowLayers)
	layer := i / width
	if layer == 0 {
		return nil
	}
	for k := range flowFan {
		on = append(on, (layer-1)*width+(i+k*k*37)%width)
	}
	return on
}

// flowWorkers workers claim flowClaim jobs at a time, each on a connection.
const (
	flowWorkers = 8
	flowClaim   = 250
)

// flowRun is a job that was claimed.
type flowRun struct {
	Run string `json:"run_id"`
	ID  string `json:"job_id"`
}

// graphWork is a graph that is being worked, a goroutine for each connection.
type graphWork struct {
	*flowServer
	conns     []*rawConn
	number    map[string]int // of a job, by its id
	checklist *Checklist
	started   time.Time
	took      atomic.Int64

	claimed  chan flowRun // for those that finish jobs one by one
	claiming sync.WaitGroup
}

// workGraph runs the jobs, which are all there is.
func (s *flowServer) workGraph(ctx context.Context, conns []*rawConn, ids []string,
	work func(*graphWork, context.Context, int) error) (Phase, error) {
	w := &graphWork{flowServer: s, conns: conns, number: make(map[string]int, len(ids)),
		checklist: newChecklist(len(ids)), claimed: make(chan flowRun, flowClaim)}
	for i, id := range ids {
		w.number[id] = i
	}
	w.claiming.Add(flowWorkers)
	w.started = time.Now()
	_, err := runParallel(ctx, len(conns), len(conns), func(ctx context.Context, _, g int) error {
		return work(w, ctx, g)
	})
	phase := Phase{Name: phaseWork, Jobs: len(ids), Took: time.Duration(w.took.Load())}
	if err != nil {
		return phase, err
	}
	return phase, errors.Join(w.checklist.Wait(ctx), w.checklist.Check())
}

// batches claims and finishes jobs in batches, on one connection.
func (w *graphWork) batches(_ context.Context, g int) error {
	return w.claim(w.conns[g], func(runs []flowRun) error {
		if len(runs) == 0 {
			return nil
		}
		text := []byte(`{"outcomes":[`)
		for i, run := range runs {
			if i > 0 {
				text = append(text, ',')
			}
			text = fmt.Appendf(text, `{"run_id":"%s","complete":{}}`, run.Run)
		}
		body, err := w.conns[g].Expect(w.request("/worker/v1/outcomes", append(text, "]}"...)),
			http.StatusOK)
		if err != nil {
			return err
		}
		if bytes.Contains(body, []byte(`"code":`)) {
			return fmt.Errorf("a run could not be completed: %.200s", body)
		}
		for _, run := range runs {
			w.done(run)
		}
		return nil
	})
}

// singles claims on the first connections and completes one by one on the others.
func (w *graphWork) singles(ctx context.Context, g int) error {
	if g < flowWorkers {
		defer w.claiming.Done()
		return w.claim(w.conns[g], func(runs []flowRun) error {
			for _, run := range runs {
				select {
				case w.claimed <- run:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			return nil
		})
	}
	if g == flowWorkers {
		go func() { w.claiming.Wait(); close(w.claimed) }()
	}
	for run := range w.claimed {
		if _, err := w.conns[g].Expect(w.request("/worker/v1/runs/"+run.Run+"/complete",
			[]byte("{}")), http.StatusOK); err != nil {
			return err
		}
		w.done(run)
	}
	return nil
}

// runSDKWorker runs one worker until all jobs are done.
func (w *graphWork) runSDKWorker(ctx context.Context, _ int) error {
	c, err := client.New(client.Config{BaseURL: "http://" + w.addr})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	go func() {
		_ = w.checklist.Wait(ctx)
		stop()
	}()
	worker := client.JobWorker{
		API: c.WorkerAPI(), Contract: client.ContractTaskFlow, Concurrency: flowClaim,
		PollWait: time.Second, PollInterval: time.Millisecond,
		Handlers: map[string]client.JobHandler{"bench": func(context.Context,
			*client.JobRun) (json.RawMessage, error) {
			return nil, nil
		}},
		AfterRun: func(j client.ClaimedJob, _ error) { w.done(flowRun{Run: j.RunID, ID: j.ID}) },
	}
	return worker.Run(ctx)
}

// claim claims jobs until all are done.
func (w *graphWork) claim(c *rawConn, handle func([]flowRun) error) error {
	request := w.request("/worker/v1/claims",
		fmt.Appendf(nil, `{"contract":"taskflow","queues":["bench"],"max":%d,"wait_seconds":1}`,
			flowClaim))
	for w.checklist.remaining.Load() > 0 {
		body, err := c.Expect(request, http.StatusOK)
		if err != nil {
			return err
		}
		var answer struct{ Jobs []flowRun }
		if err := json.Unmarshal(body, &answer); err != nil {
			return err
		}
		if err := handle(answer.Jobs); err != nil {
			return err
		}
	}
	return nil
}

// done marks a job whose completion was acknowledged.
func (w *graphWork) done(run flowRun) {
	if i, valid := w.number[run.ID]; valid {
		w.checklist.MarkWorked(i)
	}
	if w.checklist.remaining.Load() == 0 {
		w.took.CompareAndSwap(0, int64(time.Since(w.started)))
	}
}
