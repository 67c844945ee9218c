package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/client"
)

// besideQueue has the jobs of a claimLoad.
const besideQueue = "beside"

// claimLoad claims and completes jobs of TaskFlow at a steady rate through all nodes of a store,
// while these are killed.
type claimLoad struct {
	*killedNodes
	jobs int

	mu        sync.Mutex // guards what follows
	claimed   map[string]int
	completed map[string]int
}

// newClaimLoad submits the jobs of a load.
func (w *killedNodes) newClaimLoad(jobs int) *claimLoad {
	w.Helper()
	const batch = 1000
	for from := 0; from < jobs; from += batch {
		var g client.TaskFlowGraphBuilder
		for i := from; i < min(from+batch, jobs); i++ {
			g.Add(fmt.Sprint(i), client.TaskFlowSpec{Name: fmt.Sprint(i), Queue: besideQueue})
		}
		if _, err := w.client().TaskFlow().SubmitGraph(w.Context(), &g); err != nil {
			w.Fatal(err)
		}
	}
	return &claimLoad{killedNodes: w, jobs: jobs, claimed: map[string]int{},
		completed: map[string]int{}}
}

// run makes so many claims a second, of one job each, until it is over. While all callers wait for
// answers, claims are left out. Where an operation takes so long that all jobs are claimed, the
// rest of it has claims that find none.
func (l *claimLoad) run(rate int, over <-chan struct{}) {
	due := time.NewTicker(time.Second / time.Duration(rate))
	defer due.Stop()
	var all sync.WaitGroup
	defer all.Wait()
	for caller := range 64 {
		all.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-due.C:
					l.claim(caller%len(l.clients), 1, 0)
				}
			}
		})
	}
}

// claim claims jobs through a node and completes them. A job whose claim is not answered, as the
// node was killed, comes again when its lease has ended.
func (l *claimLoad) claim(node, maxRuns int, wait time.Duration) {
	api := l.clients[node].WorkerAPI()
	jobs, err := api.Claim(l.Context(), client.ClaimQuery{Contract: client.ContractTaskFlow,
		Queues: []string{besideQueue}, Max: maxRuns, Worker: fmt.Sprint("node", node)}, wait)
	if err != nil {
		l.Errorf("AD-021 a claim beside the operation: %v", err)
		return
	}
	outcomes := make([]client.RunOutcome, len(jobs))
	for i, j := range jobs {
		outcomes[i].RunID = j.RunID
	}
	results, err := api.Finish(l.Context(), outcomes)
	if err != nil {
		l.Errorf("AD-021 the end of a run beside the operation: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, j := range jobs {
		l.claimed[j.ID]++
		if err == nil && results[i].Err == nil {
			l.completed[j.ID]++
		}
	}
}

// check claims what is left and fails unless each job was claimed once by somebody who got it,
// and is completed.
func (l *claimLoad) check() {
	l.Helper()
	during := len(l.claimed)
	l.Logf("%d claims beside the operation", during)
	if during == 0 {
		l.Error("AD-021 no job was claimed beside the operation")
	}
	for len(l.claimed) < l.jobs {
		before := len(l.claimed)
		pollUntil(l.Fatalf, "a job to be claimed", func() bool {
			l.claim(0, 1000, time.Second)
			return len(l.claimed) > before
		})
	}
	for id, n := range l.claimed {
		if n != 1 || l.completed[id] > 1 {
			l.Errorf("AD-021 job %s was claimed %d times and completed %d times", id, n,
				l.completed[id])
		}
	}
	completed := 0
	for j, err := range l.client().TaskFlow().Search(l.Context(), client.TaskFlowFilter{
		Queue: besideQueue, Status: client.TaskFlowStatusCompleted, PageSize: 100}) {
		if err != nil {
			l.Fatal(err)
		}
		if l.claimed[j.ID] == 0 {
			l.Errorf("AD-021 job %s is completed, and was not claimed", j.ID)
		}
		completed++
	}
	if completed != l.jobs {
		l.Errorf("AD-021 %d of %d jobs are completed", completed, l.jobs)
	}
}
