package schedule_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/worker"
)

// node is one process with TaskFlow and schedules, on a clock that only the test advances.
type node struct {
	*schedule.Schedules
	engine *engine.Engine
}

// world is a database with its nodes.
type world struct {
	testing.TB
	clock *testkit.Clock
	*node
	open func(testing.TB) store.Store
}

// onEveryStore runs a test on each database.
func onEveryStore(t *testing.T, test func(w *world)) {
	t.Helper()
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		w := &world{TB: t, clock: p.Clock, open: func(testing.TB) store.Store { return p.Store }}
		if p.Reopen != nil {
			w.open = p.Reopen
		}
		w.node = w.newNode()
		test(w)
	})
}

// newNode makes another process on the database.
func (w *world) newNode() *node {
	w.Helper()
	return w.nodeOn(w.open(w))
}

// nodeOn makes another process on a store of the database.
func (w *world) nodeOn(s store.Store) *node {
	w.Helper()
	e := testkit.NewEngine(w, s, w.clock)
	log := slog.New(slog.DiscardHandler)
	tf, err := taskflow.New(taskflow.Config{Engine: e, Log: log, Registry: prometheus.NewRegistry(),
		Now: w.clock.Now, Random: testkit.RandomBytes, BodyLimit: 1 << 20, GraphBodyLimit: 1 << 20,
		Settings: taskflow.Settings{Lease: time.Minute, MaxConcurrent: 100_000}})
	if err != nil {
		w.Fatal(err)
	}
	offer := tf.Offer()
	made, err := schedule.New(schedule.Config{Engine: e, Log: log,
		Contracts: []*contract.Contract{offer}})
	if err != nil {
		w.Fatal(err)
	}
	testkit.Register(w, e, append(offer.JobTypes, made.JobType())...)
	return &node{made, e}
}

// definition is one that submits a job of TaskFlow.
func definition(change func(*schedule.Definition)) schedule.Definition {
	d := schedule.Definition{Every: time.Minute, Contract: "taskflow",
		Request: json.RawMessage(`{"name":"n","queue":"q"}`), Overlap: schedule.Allow,
		CatchUp: schedule.CatchUpLast}
	if change != nil {
		change(&d)
	}
	return d
}

// create stores a schedule.
func (w *world) create(name string, change func(*schedule.Definition)) *schedule.Schedule {
	w.Helper()
	s, err := w.Create(context.Background(), schedule.Schedule{Name: name,
		Definition: definition(change)}, nil)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// claim claims schedules that are due, as the pool of a node does.
func (n *node) claim(w *world, limit int) []*job.Job {
	w.Helper()
	jobs, err := n.engine.Claim(context.Background(), engine.ClaimRequest{JobType: schedule.Name,
		Max: limit, Worker: "w"})
	if err != nil {
		w.Fatal(err)
	}
	return jobs
}

// finish writes the outcome of a run.
func (n *node) finish(w *world, j *job.Job, o engine.Outcome) {
	w.Helper()
	_, err := n.engine.Finish(context.Background(), engine.Run{ID: j.ID, Run: j.Run}, o)
	if err != nil && !job.IsKind(err, job.RunLost) {
		w.Fatal(err)
	}
}

// run processes all schedules that are due, until none is.
func (n *node) run(w *world) {
	w.Helper()
	for jobs := n.claim(w, 100); len(jobs) > 0; jobs = n.claim(w, 100) {
		for _, j := range jobs {
			n.finish(w, j, n.Handle(context.Background(), &worker.ClaimedJob{Job: j}))
		}
	}
}

// passes lets time pass in steps and runs what is due after each.
func (w *world) passes(d, step time.Duration) {
	w.Helper()
	for end := w.clock.Now().Add(d); w.clock.Now().Before(end); {
		w.clock.Advance(step)
		w.run(w)
	}
}

// wantJobs fails unless TaskFlow has so many jobs, and returns them, the oldest first.
func (w *world) wantJobs(what string, want int) []*job.Job {
	w.Helper()
	jobs, err := w.engine.List(context.Background(), store.Filter{JobType: "taskflow"})
	if err != nil || len(jobs) != want {
		w.Fatalf("%s: %d jobs, want %d: %v", what, len(jobs), want, err)
	}
	return jobs
}

// ticksOf returns the ticks of a schedule as texts: seconds since the start and outcome, the
// earliest first.
func (w *world) ticksOf(name string) (all []string) {
	w.Helper()
	ticks, err := w.Ticks(context.Background(), name)
	if err != nil {
		w.Fatal(err)
	}
	for _, t := range ticks {
		text := fmt.Sprintf("%d %s", int(t.Time.Sub(testkit.StartTime).Seconds()), t.Outcome)
		if t.Passed > 0 {
			text += fmt.Sprintf(" for %d more", t.Passed)
		}
		all = append([]string{text}, all...)
	}
	return all
}

// endJob ends the job that a worker of TaskFlow claims next.
func (w *world) endJob() {
	w.Helper()
	jobs, err := w.engine.Claim(context.Background(), engine.ClaimRequest{JobType: "taskflow",
		Max: 1, Worker: "w"})
	if err != nil || len(jobs) != 1 {
		w.Fatalf("claimed %d jobs: %v", len(jobs), err)
	}
	w.finish(w, jobs[0], engine.Outcome{On: job.Succeeded})
}
