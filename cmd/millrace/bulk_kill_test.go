package main

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/millrace/millrace/client"
)

// killedBulkJobs is how many jobs TestKilledBulk reruns; MILLRACE_TEST_BULK_JOBS is for the full
// size.
func killedBulkJobs(t *testing.T) int {
	text := os.Getenv("MILLRACE_TEST_BULK_JOBS")
	if text == "" {
		return 2000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestKilledBulk (AD-021): of a bulk rerun whose nodes are killed five times while it goes on, each
// job is rerun once, and each is counted.
func TestKilledBulk(t *testing.T) {
	onKilledNodes(t, 2, (*killedNodes).checkBulk)
}

func (w *killedNodes) checkBulk() {
	total := killedBulkJobs(w.T)
	w.failJobs(total)
	id, err := w.admin().StartBulk(w.Context(), client.AdminBulkRequest{Action: client.AdminRerun,
		Filter: client.AdminBulkFilter{Contract: "taskflow", Queue: "bulk", States: []string{"FAILED"}}})
	if err != nil {
		w.Fatal(err)
	}
	progress := func() client.AdminBulk {
		w.Helper()
		b, err := w.admin().Bulk(w.Context(), id)
		if err != nil {
			w.Fatal(err)
		}
		return b
	}
	done := int64(0)
	for kill := range 5 {
		pollUntil(w.Fatalf, "the operation to go on", func() bool {
			return progress().Done > done
		})
		w.kill(kill)
		if done = progress().Done; done == int64(total) {
			w.Fatalf("the operation was over after %d kills", kill)
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
	if b.Done != int64(total) || b.Skipped+b.Failed != 0 {
		w.Errorf("AD-021 the operation is %+v", b)
	}
	reruns := map[string]int{}
	for j, err := range w.client().TaskFlow().Search(w.Context(),
		client.TaskFlowFilter{Queue: "bulk", Status: client.TaskReady, PageSize: 100}) {
		if err != nil {
			w.Fatal(err)
		}
		reruns[j.Name]++
	}
	for i := range total {
		if n := reruns[fmt.Sprint(i)]; n != 1 {
			w.Errorf("AD-021 job %d was rerun %d times", i, n)
		}
	}
}

// failJobs makes jobs that have failed for good, each with its number as its name.
func (w *killedNodes) failJobs(total int) {
	w.Helper()
	c, batch := w.client(), 1000
	for from := 0; from < total; from += batch {
		var g client.TaskFlowBuilder
		for i := from; i < min(from+batch, total); i++ {
			g.Add(fmt.Sprint(i), client.TaskFlowSpec{Name: fmt.Sprint(i), Queue: "bulk"})
		}
		if _, err := c.TaskFlow().Submit(w.Context(), &g); err != nil {
			w.Fatal(err)
		}
		jobs, err := c.WorkerAPI().Claim(w.Context(), client.ClaimQuery{
			Contract: client.ContractTaskFlow, Queues: []string{"bulk"}, Max: batch}, 0)
		if err != nil {
			w.Fatal(err)
		}
		outcomes := make([]client.RunOutcome, len(jobs))
		for i, j := range jobs {
			outcomes[i] = client.RunOutcome{RunID: j.RunID,
				Failure: &client.JobFailure{Error: "x"}}
		}
		if _, err := c.WorkerAPI().Finish(w.Context(), outcomes); err != nil {
			w.Fatal(err)
		}
	}
}
