package main

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

const (
	// inForce is how long after an answer a change of a queue is in force on all nodes (AD-031).
	inForce = 2 * time.Second
	// changedQueuePollers are the callers that claim, half of them through each node.
	changedQueuePollers = 16
)

// setRate is the rate that checkRate sets, in starts a second, and how long it looks at them.
type setRate struct {
	starts int
	length time.Duration
	isFull bool
}

// rateSize returns a rate that a slow machine uses up, or for as many seconds as
// MILLRACE_TEST_RATE_SECONDS says the one that is to be used up to 98 % (AD-032).
func rateSize(t *testing.T) setRate {
	n, isFull := testkit.Size(t, "MILLRACE_TEST_RATE_SECONDS", 3)
	if !isFull {
		return setRate{starts: 10, length: time.Duration(n) * time.Second}
	}
	return setRate{starts: 100, length: time.Duration(n) * time.Second, isFull: true}
}

// changedQueue is a queue of which workers claim continuously through two nodes, with more jobs
// than they take, while operators change its settings.
type changedQueue struct {
	*killedNodes
	contract string
	rate     setRate
	clock    *sql.DB // of the store
	over     atomic.Bool
	peak     atomic.Int64 // jobs a claim

	mu        sync.Mutex // guards what follows
	submitted int
	claims    []int // by node, with those that brought no job
	starts    []int // by node
	ended     map[string]int
	running   []client.RelayRun // of Relay, which keeps no job that is done: ended at the end
}

// TestQueueChangesOnTwoNodes (AD-031, AD-032): two server processes on one PostgreSQL. What an
// operator changes through one of them is in force on both two seconds later, by the times at
// which jobs were started in the store: nothing starts while a queue is paused, and no more start
// than a rate or a limit allows. No job is lost.
func TestQueueChangesOnTwoNodes(t *testing.T) {
	t.Parallel()
	for _, contract := range []string{client.ContractTaskFlow, "relay"} {
		t.Run(contract, func(t *testing.T) {
			t.Parallel()
			w := startNodes(t, 2, nil, "--set", "contracts="+contract)
			q := &changedQueue{killedNodes: w, contract: contract, rate: rateSize(t),
				clock: pgtest.DB(t, w.store), claims: make([]int, 2), starts: make([]int, 2), ended: map[string]int{}}
			q.check()
			w.stop()
		})
	}
}

func (q *changedQueue) check() {
	q.submit(0, 100)
	var all sync.WaitGroup
	defer all.Wait()
	defer q.over.Store(true)
	q.peak.Store(1)
	for worker := range changedQueuePollers {
		all.Go(func() {
			for !q.over.Load() {
				q.claim(worker%2, time.Second)
			}
		})
	}
	paused := q.checkPause()
	limited := q.checkRate()
	if q.contract == client.ContractTaskFlow {
		q.checkRunLimit()
	}
	q.over.Store(true)
	all.Wait()
	starts := q.stored()
	if n := len(paused.of(starts)); n > 0 {
		q.Errorf("AD-031 %d jobs were started in a paused queue", n)
	}
	if n := peak(starts, time.Second); n <= q.rate.starts {
		q.Errorf("no more than %d jobs were ever started in a second", n)
	}
	within := limited.of(starts)
	if n := peak(within, time.Second); n > q.rate.starts {
		q.Errorf("AD-032 %d jobs were started in one second, want %d", n, q.rate.starts)
	}
	allowed := limited.to.Sub(limited.from).Seconds() * float64(q.rate.starts)
	used := float64(len(within)) / allowed
	q.Logf("%d starts under the rate, %.2f %% of what is allowed", len(within), 100*used)
	if used < 0.5 || (q.rate.isFull && used < 0.98) {
		q.Errorf("AD-032 %.2f %% of what is allowed is used", 100*used)
	}
	q.checkEnds()
}

// window is a part of the time of the store, both ends excluded.
type window struct{ from, to time.Time }

func (w window) of(starts []time.Time) (within []time.Time) {
	for _, at := range starts {
		if at.After(w.from) && at.Before(w.to) {
			within = append(within, at)
		}
	}
	return within
}

// peak returns the most starts in any period, of starts in their order.
func peak(starts []time.Time, period time.Duration) (n int) {
	for i, first := range starts {
		end, _ := slices.BinarySearchFunc(starts, first.Add(period), time.Time.Compare)
		n = max(n, end-i)
	}
	return n
}

// checkPause pauses the queue through one node, and resumes it through the other. It returns when
// nothing may have started.
func (q *changedQueue) checkPause() window {
	q.awaitStarts()
	q.change(0, client.AdminQueueChange{Paused: ref(true)})
	w := window{from: q.now().Add(inForce)}
	q.awaitTime(w.from)
	q.submit(0, 1) // it takes everything
	q.submit(1, 1)
	asked := q.counts(q.claims)
	q.awaitTime(w.from.Add(time.Second))
	pollUntil(q.Fatalf, "both nodes to be asked for jobs", func() bool {
		now := q.counts(q.claims)
		return now[0] > asked[0]+1 && now[1] > asked[1]+1
	})
	w.to = q.now()
	q.change(1, client.AdminQueueChange{Paused: ref(false)})
	q.awaitStarts()
	return w
}

// checkRate gives the queue a rate through one node, and takes it away through the other. It
// returns when the rate holds.
func (q *changedQueue) checkRate() window {
	q.change(1, client.AdminQueueChange{RateLimit: &q.rate.starts, RatePeriod: ref("1s")})
	w := window{from: q.now().Add(inForce)}
	q.awaitTime(w.from.Add(q.rate.length))
	w.to = q.now()
	q.reset(0)
	q.awaitStarts()
	return w
}

// checkRunLimit gives the queue a limit of running jobs through one node while workers claim
// several jobs at a time, and looks at them through the other.
func (q *changedQueue) checkRunLimit() {
	const limit = 2
	q.peak.Store(4)
	pollUntil(q.Fatalf, "more jobs to run than the limit", func() bool {
		return q.leased(1) > limit
	})
	q.change(0, client.AdminQueueChange{MaxRunning: ref(limit)})
	from := q.now().Add(inForce)
	q.awaitTime(from)
	pollUntil(q.Fatalf, "the jobs that went on to end", func() bool { return q.leased(1) <= limit })
	started := q.counts(q.starts)
	for q.now().Before(from.Add(2 * time.Second)) {
		if n := q.leased(1); n > limit {
			q.Errorf("AD-031 %d jobs run under a limit of %d", n, limit)
		}
	}
	if now := q.counts(q.starts); slices.Equal(now, started) {
		q.Error("no job was started under the limit")
	}
	q.reset(1)
	pollUntil(q.Fatalf, "more jobs to run than the limit was", func() bool {
		return q.leased(0) > limit
	})
}

func ref[T any](v T) *T { return &v }

// change changes the queue through a node.
func (q *changedQueue) change(node int, c client.AdminQueueChange) {
	q.Helper()
	if _, err := q.clients[node].Admin().SetQueue(q.Context(), q.contract, "q", c); err != nil {
		q.Fatal(err)
	}
}

// reset takes back through a node what was set.
func (q *changedQueue) reset(node int) {
	q.Helper()
	if _, err := q.clients[node].Admin().ResetQueue(q.Context(), q.contract, "q"); err != nil {
		q.Fatal(err)
	}
}

// now is the time of the store.
func (q *changedQueue) now() (at time.Time) {
	q.Helper()
	if err := q.clock.QueryRow("SELECT clock_timestamp()").Scan(&at); err != nil {
		q.Fatal(err)
	}
	return at
}

func (q *changedQueue) awaitTime(at time.Time) {
	q.Helper()
	pollUntil(q.Fatalf, "the clock of the store", func() bool { return q.now().After(at) })
}

// counts copies what is counted by node.
func (q *changedQueue) counts(of []int) []int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(of)
}

// awaitStarts waits until both nodes have started some jobs.
func (q *changedQueue) awaitStarts() {
	q.Helper()
	before := q.counts(q.starts)
	pollUntil(q.Fatalf, "both nodes to start jobs", func() bool {
		now := q.counts(q.starts)
		return now[0] > before[0]+20 && now[1] > before[1]+20
	})
}

// leased returns how many jobs of the queue run, as a node sees it.
func (q *changedQueue) leased(node int) int64 {
	q.Helper()
	for queue, err := range q.clients[node].Admin().Queues(q.Context(), client.AdminQueueFilter{
		Contract: q.contract, NameContains: "q"}) {
		if err != nil {
			q.Fatal(err)
		}
		return queue.Leased
	}
	q.Fatal("the queue is not listed")
	return 0
}

// submit submits jobs through a node.
func (q *changedQueue) submit(node, n int) {
	q.Helper()
	c := q.clients[node]
	q.mu.Lock()
	from := q.submitted
	q.submitted += n
	q.mu.Unlock()
	var g client.TaskFlowGraphBuilder
	var specs []client.RelaySpec
	for i := from; i < from+n; i++ {
		g.Add(fmt.Sprint(i), client.TaskFlowSpec{Name: fmt.Sprint(i), Queue: "q"})
		specs = append(specs, client.RelaySpec{Queue: "q", ID: fmt.Sprint(i), Timeout: time.Hour})
	}
	var err error
	if q.contract == client.ContractTaskFlow {
		_, err = c.TaskFlow().SubmitGraph(q.Context(), &g)
	} else {
		err = c.Relay().Enqueue(q.Context(), specs, client.RelayUnique)
	}
	if err != nil {
		q.Error(err)
	}
}

// claim claims jobs through a node and submits as many, until it is over. It ends those of
// TaskFlow.
func (q *changedQueue) claim(node int, wait time.Duration) {
	var started int
	var err error
	if q.contract == client.ContractTaskFlow {
		started, err = q.claimFlow(q.clients[node].WorkerAPI(), node, wait)
	} else {
		started, err = q.claimRelay(q.clients[node].Relay(), wait)
	}
	if err != nil {
		q.Error(err)
	}
	if started > 0 && !q.over.Load() {
		q.submit(node, started)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.claims[node]++
	q.starts[node] += started
}

func (q *changedQueue) claimFlow(api *client.WorkerAPI, node int, wait time.Duration) (int, error) {
	jobs, err := api.Claim(q.Context(), client.ClaimQuery{Contract: q.contract,
		Queues: []string{"q"}, Max: int(q.peak.Load()), Worker: fmt.Sprint("node", node)}, wait)
	if err != nil {
		return 0, err
	}
	outcomes := make([]client.RunOutcome, len(jobs))
	for i, j := range jobs {
		outcomes[i].RunID = j.RunID
	}
	results, err := api.Finish(q.Context(), outcomes)
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, r := range results {
		if q.ended[jobs[i].ID]++; r.Err != nil {
			err = r.Err
		}
	}
	return len(jobs), err
}

func (q *changedQueue) claimRelay(relay *client.Relay, wait time.Duration) (int, error) {
	jobs, err := relay.Claim(q.Context(), "q", int(q.peak.Load()), wait)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range jobs {
		q.running = append(q.running, j.Run())
	}
	return len(jobs), err
}

// stored returns when jobs were started by the store, in order.
func (q *changedQueue) stored() (starts []time.Time) {
	q.Helper()
	for j, err := range q.admin().Jobs(q.Context(), client.AdminJobQuery{PageSize: 500,
		Filter: client.AdminFilter{Contract: q.contract, Queue: "q"}}) {
		switch {
		case err != nil:
			q.Fatal(err)
		case j.Attempts > 1:
			q.Errorf("job %s was started %d times", j.ID, j.Attempts)
		case j.StartedAt != nil:
			starts = append(starts, *j.StartedAt)
		}
	}
	slices.SortFunc(starts, time.Time.Compare)
	if counted := q.starts[0] + q.starts[1]; len(starts) != counted {
		q.Errorf("%d jobs were started, and workers got %d", len(starts), counted)
	}
	return starts
}

// checkEnds ends all jobs that are left, and fails unless each job has ended once.
func (q *changedQueue) checkEnds() {
	q.Helper()
	q.peak.Store(1000)
	pollUntil(q.Fatalf, "all jobs to be started", func() bool {
		q.claim(0, 0)
		return q.starts[0]+q.starts[1] >= q.submitted
	})
	known, err := q.client().Relay().CompleteAll(q.Context(), q.running)
	if err != nil {
		q.Fatal(err)
	}
	for i, is := range known {
		if q.ended[q.running[i].ID]++; !is {
			q.Errorf("the run of %s was lost", q.running[i].ID)
		}
	}
	for id, n := range q.ended {
		if n != 1 {
			q.Errorf("AD-031 job %s has ended %d times", id, n)
		}
	}
	if len(q.ended) != q.submitted {
		q.Errorf("AD-031 %d of %d jobs have ended", len(q.ended), q.submitted)
	}
	for j, err := range q.admin().Jobs(q.Context(), client.AdminJobQuery{PageSize: 500,
		Filter: client.AdminFilter{Contract: q.contract, Queue: "q"}}) {
		if err != nil || !strings.EqualFold(j.State, "completed") {
			q.Errorf("job %s is %s, %v", j.ID, j.State, err)
		}
	}
}
