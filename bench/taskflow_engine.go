package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/sqlite"
)

// flowInProcess puts the graph of the other cases through the engine in this process: what is left
// of them without HTTP.
type flowInProcess struct {
	dir  string
	pg   *Postgres // nil: SQLite
	runs int
}

func setupFlowEngine(onPostgres bool) func(context.Context, *Env) (Runner, error) {
	return func(ctx context.Context, env *Env) (Runner, error) {
		f := &flowInProcess{}
		var err error
		if onPostgres {
			f.pg, err = env.Postgres(ctx, "taskflow_engine")
		} else {
			f.dir, err = env.Folder("taskflow-engine")
		}
		return f, err
	}
}

func (f *flowInProcess) Durability() string {
	if f.pg != nil {
		return f.pg.Durability()
	}
	return "SQLite WAL synchronous=FULL: an fsync before every answer"
}

func (f *flowInProcess) Close() error { return nil }

func (f *flowInProcess) open(ctx context.Context) (store.Store, error) {
	f.runs++
	if f.pg == nil {
		return sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(f.dir,
			strconv.Itoa(f.runs)+".db"), Now: time.Now})
	}
	if err := f.pg.Recreate(ctx); err != nil {
		return nil, err
	}
	return postgres.Open(ctx, postgres.Config{URL: f.pg.DSN()})
}

func (f *flowInProcess) Run(ctx context.Context, n int) ([]Phase, error) {
	s, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	e, err := newEngine(s)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	jobType, err := flowJobType(e)
	if err != nil {
		return nil, err
	}
	if err := e.Register(jobType); err != nil {
		return nil, err
	}
	insert, err := f.insert(ctx, e, n)
	if err != nil {
		return nil, err
	}
	work, err := f.work(ctx, e, n)
	return []Phase{insert, work, totalPhase(n, insert, work)}, err
}

// flowJobType is TaskFlow as an engine sees it.
func flowJobType(e *engine.Engine) (engine.JobType, error) {
	t, err := taskflow.New(taskflow.Config{Engine: e, Log: slog.New(slog.DiscardHandler),
		Registry: prometheus.NewRegistry(), Now: time.Now, Random: randomBytes,
		Settings:  taskflow.Settings{Lease: time.Minute, MaxConcurrent: flowConcurrent},
		BodyLimit: 1, GraphBodyLimit: 1})
	if err != nil {
		return engine.JobType{}, err
	}
	return t.JobType(), nil
}

// flowRetry is longer than a run of the benchmark.
var flowRetry = job.RetryPolicy{Strategy: job.Fixed, Base: time.Minute, Max: time.Hour}

func flowID(i int) job.ID { return job.ID{JobType: taskflow.Name, Key: strconv.Itoa(i)} }

func (f *flowInProcess) insert(ctx context.Context, e *engine.Engine, n int) (Phase, error) {
	started := time.Now()
	var latency []time.Duration
	for _, cut := range batches(n, flowGraphJobs) {
		var batch []engine.Submission
		for i := cut[0]; i < cut[1]; i++ {
			s := engine.Submission{Job: job.Job{ID: flowID(i), Retry: flowRetry,
				Queue: "bench", Priority: 5, MaxAttempts: 3, Lease: time.Minute,
				Definition: []byte(`{"name":"job","dependencies":[]}`),
				Payload:    appendPayload(nil, i)}}
			for _, d := range flowDependencies(i, n) {
				s.DependsOn = append(s.DependsOn, flowID(d))
			}
			batch = append(batch, s)
		}
		sent := time.Now()
		if _, err := e.Submit(ctx, engine.Unique, batch); err != nil {
			return Phase{}, err
		}
		latency = append(latency, time.Since(sent))
	}
	return Phase{Name: phaseInsert, Jobs: n, Took: time.Since(started), Latency: latency}, nil
}

// work runs all jobs: workers claim a batch and finish it in one call.
func (f *flowInProcess) work(ctx context.Context, e *engine.Engine, n int) (Phase, error) {
	checklist := newChecklist(n)
	started := time.Now()
	var took atomic.Int64
	_, err := runParallel(ctx, flowWorkers, flowWorkers, func(ctx context.Context, _, _ int) error {
		for checklist.remaining.Load() > 0 {
			jobs, err := e.Claim(ctx, engine.ClaimRequest{JobType: taskflow.Name,
				Queues: []string{"bench"}, Max: flowClaim, Worker: "bench", Wait: time.Second})
			if err != nil {
				return err
			}
			finishes := make([]engine.FinishRequest, len(jobs))
			for i, j := range jobs {
				finishes[i] = engine.FinishRequest{Run: engine.Run{Run: j.Run},
					Outcome: engine.Outcome{On: job.Succeeded, Result: []byte("{}")}}
			}
			for i, ended := range e.FinishAll(ctx, finishes) {
				if ended.Err != nil {
					return ended.Err
				}
				num, err := strconv.Atoi(jobs[i].ID.Key)
				if err != nil {
					return err
				}
				checklist.MarkWorked(num)
			}
			if checklist.remaining.Load() == 0 {
				took.CompareAndSwap(0, int64(time.Since(started)))
			}
		}
		return nil
	})
	phase := Phase{Name: phaseWork, Jobs: n, Took: time.Duration(took.Load())}
	if err != nil {
		return phase, err
	}
	return phase, checklist.Check()
}
