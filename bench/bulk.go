package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// bulkRunner measures what a bulk operation of operators does to claims (AD-021): jobs are
// submitted, claimed and finished at a steady rate, first alone and then while n jobs that have
// failed are retried. Claims are timed from when they were due.
type bulkRunner struct{ *millraceRunner }

const (
	bulkRate  = 1000             // claims a second
	bulkAlone = 10 * time.Second // how long claims are measured alone
	// bulkSlowest is how many jobs a second a bulk operation does at least. It bounds a run.
	bulkSlowest = 250
)

// failedJobs is the job type of the jobs that are retried. Nobody claims them then.
const failedJobs = "failed"

var machineFailed = job.MustMachine(map[job.State]job.Phase{"failed": job.Done,
	"queued": job.Ready, "running": job.Leased}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "failed"},
	{From: "failed", On: job.Retried, To: "queued"},
	{From: "queued", On: job.Claimed, To: "running"},
	{From: "running", On: job.Expired, To: "queued"},
	{From: "running", On: job.Succeeded, To: job.StateNone},
})

func setupBulk(setup func(context.Context, *Env) (Runner, error)) func(context.Context,
	*Env) (Runner, error) {
	return func(ctx context.Context, env *Env) (Runner, error) {
		r, err := setup(ctx, env)
		if err != nil {
			return nil, err
		}
		return &bulkRunner{r.(*millraceRunner)}, nil
	}
}

func (b *bulkRunner) Run(ctx context.Context, n int) ([]Phase, error) {
	b.runs++
	s, clearStore, err := b.open(ctx, b.runs)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := clearStore(ctx); err != nil {
		return nil, err
	}
	e, err := newEngine(s)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	if err := errors.Join(
		e.Register(engine.JobType{Name: "bench", Machine: machineDeleting}),
		e.Register(engine.JobType{Name: failedJobs, Machine: machineFailed})); err != nil {
		return nil, err
	}
	ops, err := newBulk(e)
	if err != nil {
		return nil, err
	}
	if err := submitFailed(ctx, e, n); err != nil {
		return nil, err
	}
	load := func(total time.Duration, during func(context.Context) error) (*ageingLoad, error) {
		l := &ageingLoad{rate: bulkRate, batch: 1, clients: 64, backlog: bulkRate, total: total,
			engine: e, store: s}
		if err := l.fill(ctx); err != nil {
			return nil, err
		}
		if err := l.runBeside(ctx, during); err != nil {
			return nil, err
		}
		// A claim that finds nothing is a quick one.
		due, _ := l.claimsBetween(0, l.total)
		if n := l.empty.Load(); n*100 > int64(len(due)) {
			return nil, fmt.Errorf("%d of %d claims found no job", n, len(due))
		}
		return l, nil
	}
	alone, err := load(bulkAlone, nil)
	if err != nil {
		return nil, err
	}
	var took time.Duration
	beside, err := load(time.Duration(n)*time.Second/bulkSlowest+bulkAlone,
		func(ctx context.Context) (err error) {
			took, err = retryFailed(ctx, ops, n)
			return err
		})
	if err != nil {
		return nil, err
	}
	return []Phase{claimsOf("claims alone", alone, alone.total),
		claimsOf("claims beside the bulk retry", beside, took),
		{Name: "bulk retry", Jobs: n, Took: took}}, nil
}

// newBulk makes the bulk operations of an engine, with the action retry.
func newBulk(e *engine.Engine) (*bulk.Bulk, error) {
	start := time.Now()
	return bulk.New(bulk.Config{Engine: e, Log: slog.New(slog.DiscardHandler),
		Random: randomBytes, Elapsed: func() time.Duration { return time.Since(start) },
		Contracts: []*contract.Contract{{Name: failedJobs,
			JobTypes: []engine.JobType{{Name: failedJobs, Machine: machineFailed}},
			Operators: []contract.Operator{{JobType: failedJobs,
				Answer: httpapi.ErrorTable{}.Answer,
				Actions: []contract.Action{contract.Change(e, contract.ActionRetry, job.Retried,
					nil, "failed")}}}}}})
}

// submitFailed submits jobs that have failed.
func submitFailed(ctx context.Context, e *engine.Engine, n int) error {
	for _, cut := range batches(n, 1000) {
		var batch []engine.Submission
		for i := cut[0]; i < cut[1]; i++ {
			batch = append(batch, engine.Submission{Job: job.Job{Queue: "failed",
				ID: job.ID{JobType: failedJobs, Key: strconv.Itoa(i)}, Lease: time.Minute,
				Payload: appendPayload(nil, i)}})
		}
		if _, err := e.Submit(ctx, engine.Unique, batch); err != nil {
			return fmt.Errorf("submit failed jobs: %w", err)
		}
	}
	return nil
}

// retryFailed retries all jobs that have failed, and returns how long that took.
func retryFailed(ctx context.Context, ops *bulk.Bulk, n int) (time.Duration, error) {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	started := time.Now()
	o, err := ops.Start(ctx, started, bulk.Request{Action: contract.ActionRetry,
		Jobs: &bulk.JobFilter{JobTypes: []string{failedJobs}, States: []job.State{"failed"}}}, nil)
	if err != nil {
		return 0, err
	}
	running.Go(func() { ops.Run(ctx) })
	for o.State != bulk.Done {
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
		if o, err = ops.Get(ctx, o.ID); err != nil {
			return 0, err
		}
	}
	if o.Done != int64(n) {
		return 0, fmt.Errorf("of %d jobs %d were retried: %+v", n, o.Done, o)
	}
	return time.Since(started), nil
}

// claimsOf is the phase of the claims of a load that were due before an end.
func claimsOf(name string, l *ageingLoad, end time.Duration) Phase {
	due, _ := l.claimsBetween(0, end)
	return Phase{Name: name, Jobs: len(due), Took: end, Latency: due}
}

// runBeside runs the load beside something, and ends with it; with nil for its whole time.
func (l *ageingLoad) runBeside(ctx context.Context, during func(context.Context) error) error {
	started := time.Now()
	if during == nil {
		return l.run(ctx, started)
	}
	ended := make(chan error, 1)
	go func() {
		err := during(ctx)
		l.endedAt.Store(int64(time.Since(started)))
		ended <- err
	}()
	err := l.run(ctx, started)
	if l.endedAt.Load() == 0 {
		err = errors.Join(err, errors.New("the bulk operation took longer than the load"))
	}
	return errors.Join(err, <-ended)
}
