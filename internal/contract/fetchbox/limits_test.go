package fetchbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/testkit"
)

func TestLimits(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.submit(t, manifest(5))
		w.submit(t, manifest(5), "X-Fetchbox-Job-Type", "default")
		w.fetchbox.Limit(context.Background())
		t.Run("FB-072 FB-074 max_parallel_downloads bounds one job type", func(t *testing.T) {
			running := map[string]int{}
			for _, j := range w.claim(t, 100) {
				running[j.Queue]++
			}
			assertEqual(t, "of gallery", running[gallery], 2)
			assertEqual(t, "of default", running["default"], 5)
			w.finishClaimed(t, storedOutcome)
			assertEqual(t, "more", len(w.claim(t, 100)), 1)
		})
	})
}

func TestStreams(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	ages := map[string]time.Duration{}
	for _, s := range fetchbox.Streams(7*day, 30*day, 90*day) {
		ages[s.Name] = s.MaxAge
		if s.Name == "JOBS_TASKS" && s.Consumer == "" {
			t.Error("tasks that nobody has taken in are not kept (FB-094)")
		}
	}
	for id, c := range map[string]struct {
		stream string
		age    time.Duration
	}{"FB-090": {"JOBS_TASKS", 7 * day}, "G-FB-36": {"JOBS_STATUS", 14 * day},
		"FB-091": {"JOBS_LOGS", 30 * day}, "FB-092": {"JOBS_DLQ", 90 * day}} {
		t.Run(id+" "+c.stream, func(t *testing.T) { assertEqual(t, "age", ages[c.stream], c.age) })
	}
}

// TestTasksArePruned: a node prunes jobs.tasks by itself, every PruneInterval.
func TestTasksArePruned(t *testing.T) {
	t.Parallel()
	c := config()
	c.PruneInterval = 10 * time.Millisecond
	w := inMemory(t, c)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); w.fetchbox.Run(ctx) }()
	defer func() { stop(); <-ended }()
	publish(t, w.producer(t), directTask(foreignTask, "a"))
	testkit.WaitUntil(t, "the task to be taken in", func() bool {
		return len(w.all(t, fetchbox.Tasks)) == 1
	})
	w.ahead.Store(int64(8 * 24 * time.Hour))
	testkit.WaitUntil(t, "the message to be pruned (G-FB-40)", func() bool {
		return len(read[taskMessage](t, w, "JOBS_TASKS", "jobs.tasks")) == 0
	})
}

// TestTasksRetention: jobs.tasks loses what is too old, and nothing that nobody has taken in.
func TestTasksRetention(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	pruned := func() int {
		if err := w.streams.Prune(t.Context()); err != nil { // what the sweeper calls
			t.Fatal(err)
		}
		return len(read[taskMessage](t, w, "JOBS_TASKS", "jobs.tasks"))
	}
	publish(t, w.producer(t), directTask(foreignTask, "a"), directTask(foreignTask, "b"))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	w.ahead.Store(int64(8 * 24 * time.Hour))
	t.Run("FB-094 a task that is not taken in stays", func(t *testing.T) {
		assertEqual(t, "messages", pruned(), 2)
	})
	go func() { defer close(ended); w.fetchbox.RunProducers(ctx) }()
	defer func() { stop(); <-ended }()
	if jobs, err := w.engine.Claim(ctx, engine.ClaimRequest{JobType: fetchbox.Tasks,
		Queues: []string{gallery}, Max: 2, Worker: "a worker", Wait: time.Minute}); err != nil ||
		len(jobs) == 0 {
		t.Fatalf("got %d jobs: %v", len(jobs), err)
	}
	w.ahead.Store(int64(6 * 24 * time.Hour))
	t.Run("FB-090 one that is taken in stays for 7 days", func(t *testing.T) {
		assertEqual(t, "messages", pruned(), 2)
	})
	w.ahead.Store(int64(7*24*time.Hour + time.Hour))
	t.Run("FB-090 and no longer", func(t *testing.T) {
		// That they were taken in is known to the streams a little later.
		testkit.WaitUntil(t, "the tasks to be pruned", func() bool { return pruned() == 0 })
		assertEqual(t, "tasks", len(w.all(t, fetchbox.Tasks)), 2)
	})
}
