package main

import (
	"sync"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/testkit"
)

// killedBulk is the size of TestKilledBulk.
type killedBulk struct {
	jobs   int // that are retried
	kills  int // each of which lasts as long as the lease of the operation, 15 s
	rate   int // of the operation, a second; 0 is none
	beside int // claims a second
	claims int // how many there are at most
}

// bulkSize returns a small size whose operation goes on over all kills, or the full one with as
// many jobs as MILLRACE_TEST_BULK_JOBS says.
func bulkSize(t *testing.T) killedBulk {
	n, isFull := testkit.Size(t, "MILLRACE_TEST_BULK_JOBS", 360)
	if !isFull {
		return killedBulk{jobs: n, kills: 3, rate: 60, beside: 20, claims: 1_500}
	}
	return killedBulk{jobs: n, kills: 5, beside: 1000, claims: 400_000}
}

// TestKilledBulk (AD-021): of a bulk retry whose nodes are killed while it goes on, three times,
// and at full size five times, each job is retried once, and each is counted. Claims of other jobs
// go on meanwhile: none of these is lost, and none is claimed twice.
func TestKilledBulk(t *testing.T) {
	onKilledNodes(t, 2, func(w *killedNodes) { w.checkBulk(bulkSize(t)) },
		"--set", "contracts=forgerun,taskflow", "--set", "taskflow.max_concurrent=100000",
		"--set", "taskflow.lease=20s", "--set", "forgerun.workers=4",
		"--set", "forgerun.jobs_per_worker=4", "--set", "forgerun.duration_scale=0.00001",
		"--set", "forgerun.lease=2s", "--set", "forgerun.heartbeat=500ms",
		"--set", "forgerun.backoff_base=0s", "--set", "forgerun.queue_size=1000000",
		"--set", "forgerun.rate_limit_per_minute=1000000000")
}

func (w *killedNodes) checkBulk(size killedBulk) {
	forge := w.forgeClient()
	failed := w.failJobs(forge, size.jobs)
	load := w.newClaimLoad(size.claims)
	var loading sync.WaitGroup
	defer loading.Wait()
	over := make(chan struct{})
	stop := sync.OnceFunc(func() { close(over) })
	defer stop()
	loading.Go(func() { load.run(size.beside, over) })

	id, err := w.admin().StartBulkOperation(w.Context(), client.AdminBulkRequest{
		Action: client.AdminActionRetry, RatePerSecond: size.rate,
		Filter: client.AdminFilter{Contract: client.ContractForgeRun,
			States: []string{string(client.ForgeRunStateFailed)}}})
	if err != nil {
		w.Fatal(err)
	}
	w.killDuringBulk(id, size)
	stop()
	loading.Wait()
	w.checkRetries(forge, failed)
	load.check()
}

// killDuringBulk kills a node several times while an operation goes on, and waits for its end.
func (w *killedNodes) killDuringBulk(id string, size killedBulk) {
	w.Helper()
	progress := func() client.AdminBulkOperation {
		w.Helper()
		b, err := w.admin().BulkOperation(w.Context(), id)
		if err != nil {
			w.Fatal(err)
		}
		return b
	}
	done := int64(0)
	for kill := range size.kills {
		pollUntil(w.Fatalf, "the operation to go on", func() bool {
			return progress().Done > done
		})
		w.kill(kill)
		if done = progress().Done; done == int64(size.jobs) {
			w.Fatalf("the operation was done after %d kills", kill)
		}
	}
	b := progress()
	for b.State != "done" { // at full size all of it takes longer than one wait may
		before := b.Done
		pollUntil(w.Fatalf, "the operation to go on", func() bool {
			b = progress()
			return b.Done > before || b.State == "done"
		})
	}
	if b.Done != int64(size.jobs) || b.Skipped+b.Failed != 0 {
		w.Errorf("AD-021 the operation is %+v", b)
	}
}

// forgeClient makes a client of ForgeRun with a key.
func (w *killedNodes) forgeClient() *client.ForgeRun {
	w.Helper()
	forge := w.client().ForgeRun()
	id, err := forge.CreateClient(w.Context(), "")
	if err != nil {
		w.Fatal(err)
	}
	key, err := forge.CreateFirstAPIKey(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	return forge.WithAPIKey(key.APIKey)
}

// eachAtOnce calls fn for the numbers below n, a few at a time.
func eachAtOnce(n int, fn func(i int)) {
	var all sync.WaitGroup
	defer all.Wait()
	next := make(chan int)
	for range 32 {
		all.Go(func() {
			for i := range next {
				fn(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
}

// failJobs submits jobs whose first run fails, as it does at once, and returns their ids.
func (w *killedNodes) failJobs(forge *client.ForgeRun, n int) []string {
	w.Helper()
	ids := make([]string, n)
	eachAtOnce(n, func(i int) {
		made, err := forge.Submit(w.Context(), client.ForgeRunSpec{Type: client.ForgeRunTypeExecute,
			Kind: client.ForgeRunWorkRetryOnFail})
		if err != nil {
			w.Error(err)
		}
		ids[i] = made.JobID
	})
	eachAtOnce(n, func(i int) {
		job, err := forge.Wait(w.Context(), ids[i])
		if err != nil || job.State != client.ForgeRunStateFailed {
			w.Errorf("%s is %s, %v", ids[i], job.State, err)
		}
	})
	return ids
}

// checkRetries fails unless each job was retried once, and has run once more. What was running on a
// node that was killed has failed again.
func (w *killedNodes) checkRetries(forge *client.ForgeRun, ids []string) {
	w.Helper()
	eachAtOnce(len(ids), func(i int) {
		if _, err := forge.Wait(w.Context(), ids[i]); err != nil {
			w.Error(err)
			return
		}
		report, err := forge.Report(w.Context(), ids[i])
		if err != nil {
			w.Error(err)
			return
		}
		retries, runs := 0, 0
		for _, e := range report.Events {
			if e.Prev == client.ForgeRunStateFailed && e.Next == client.ForgeRunStateQueued {
				retries++
			}
			if e.Next == client.ForgeRunStateRunning {
				runs++
			}
		}
		lost := report.Failure != nil && report.Failure.Code == "runner_lost"
		if retries != 1 || runs != 2 || (report.Outcome != client.ForgeRunOutcomeSuccess && !lost) {
			w.Errorf("AD-021 %s was retried %d times, has run %d times and ended with %s", ids[i],
				retries, runs, report.Outcome)
		}
	})
}
