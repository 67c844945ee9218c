package main

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// polledNodes are the nodes of a store. What happens to jobs goes through the first of them.
type polledNodes struct {
	*killedNodes
	first *client.Client
}

// TestWhyFromOtherNode (AD-015): two server processes on one PostgreSQL say for each code why a job
// does not run, the one that knows of it as well as the other. On SQLite it is one node.
func TestWhyFromOtherNode(t *testing.T) {
	onKilledNodes(t, 2, func(w *killedNodes) {
		a := &polledNodes{w, w.clients[0]}
		a.checkTaskFlow()
		a.checkQueues()
		a.checkRelay()
		a.checkDrain()
		a.checkForgeRun()
	}, "--set", "contracts=taskflow,relay,forgerun", "--set", "taskflow.max_concurrent=100",
		"--set", "taskflow.queues.pool.handler=simulate", "--set", "forgerun.max_active_jobs=1",
		"--set", "forgerun.duration_scale=0.1")
}

// TestWhyOfPartsAndMessages is TestWhyFromOtherNode for the codes of FetchBox and Images, whose
// nodes have streams and objects in common.
func TestWhyOfPartsAndMessages(t *testing.T) {
	t.Parallel()
	for name, nodes := range map[string]int{"sqlite": 1, "postgres": 2} {
		t.Run(name, func(t *testing.T) {
			nats, s3 := outside.NewNATS(t, ""), outside.NewS3(t, "millrace")
			w := startNodes(t, nodes, nil, "--set", "contracts=fetchbox,images", "--set",
				"stream.url="+nats.URL, "--set", "objects.url="+s3.Setting())
			a := &polledNodes{w, w.clients[0]}
			a.checkFetchBox()
			nats.Kill()
			a.checkImages()
		})
	}
}

// wants fails unless all nodes come to say that these are the reasons of a job. When a queue was
// asked for is known to other nodes within five seconds.
func (a *polledNodes) wants(contract, id string, codes ...client.AdminReasonCode) {
	a.Helper()
	number := int64(0)
	for j, err := range a.first.Admin().Jobs(a.Context(), client.AdminJobQuery{
		Filter: client.AdminFilter{Contract: contract, ID: id}}) {
		if err != nil {
			a.Fatal(err)
		}
		number = j.Number
	}
	want := ""
	for _, code := range codes {
		want += string(code) + " "
	}
	for i, c := range a.clients {
		got := ""
		pollUntil(func(format string, args ...any) {
			a.Helper()
			a.Fatalf("AD-015 node %d says that %s of %s is %sinstead of %s", i, id, contract, got, want)
		}, "the reasons", func() bool {
			why, err := c.Admin().Why(a.Context(), number)
			if err != nil {
				a.Fatal(err)
			}
			got = ""
			for _, r := range why.Reasons {
				got += string(r.Code) + " "
			}
			return got == want && why.Summary == why.Reasons[0].Text
		})
	}
}

// create creates a job of TaskFlow and returns its id.
func (a *polledNodes) create(queue string, dependencies ...string) string {
	a.Helper()
	made, err := a.first.TaskFlow().Submit(a.Context(), client.TaskFlowSpec{Name: "n", Queue: queue,
		Dependencies: dependencies, Retry: client.TaskFlowRetryPolicy{BaseDelay: 5 * time.Minute,
			MaxDelay: time.Hour}})
	if err != nil {
		a.Fatal(err)
	}
	return made.ID
}

// claim claims a job of TaskFlow.
func (a *polledNodes) claim(queue string) client.ClaimedJob {
	a.Helper()
	jobs, err := a.first.WorkerAPI().Claim(a.Context(), client.ClaimQuery{
		Contract: client.ContractTaskFlow, Queues: []string{queue}, Worker: "w"}, time.Second)
	if err != nil || len(jobs) != 1 {
		a.Fatalf("claimed %v of %s, %v", jobs, queue, err)
	}
	return jobs[0]
}

// end fails the run of a job, or completes it where there is no failure.
func (a *polledNodes) end(j client.ClaimedJob, failure *client.JobFailure) {
	a.Helper()
	results, err := a.first.WorkerAPI().Finish(a.Context(), []client.RunOutcome{{RunID: j.RunID,
		Failure: failure}})
	if err != nil || results[0].Err != nil {
		a.Fatal(results, err)
	}
}

// polls has a worker wait at the first node for jobs of queues that have none for it, while fn
// runs.
func (a *polledNodes) polls(fn func(), wait func(context.Context) (jobs int, err error)) {
	a.Helper()
	ctx, stop := context.WithCancel(a.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer stop()
	waiting.Go(func() {
		for ctx.Err() == nil {
			if n, err := wait(ctx); n > 0 || (err != nil && ctx.Err() == nil) {
				a.Errorf("%d jobs were claimed that are held back, %v", n, err)
				return
			}
		}
	})
	fn()
}

// pollsFlow is polls for queues of TaskFlow.
func (a *polledNodes) pollsFlow(fn func(), queues ...string) {
	a.Helper()
	a.polls(fn, func(ctx context.Context) (int, error) {
		jobs, err := a.first.WorkerAPI().Claim(ctx, client.ClaimQuery{
			Contract: client.ContractTaskFlow, Queues: queues, Worker: "w"}, 30*time.Second)
		return len(jobs), err
	})
}

// checkTaskFlow is about jobs that run, are done, or wait for others and for their time.
func (a *polledNodes) checkTaskFlow() {
	const flow = client.ContractTaskFlow
	a.wants(flow, a.create("alone"), client.AdminReasonNoWorkers)

	runs := a.create("work")
	waits, fails := a.create("held", runs), a.create("fails")
	blocked := a.create("held", fails)
	a.claim("work")
	a.wants(flow, runs, client.AdminReasonRunning)
	a.end(a.claim("fails"), &client.JobFailure{Error: "x"})
	a.wants(flow, fails, client.AdminReasonDead)
	a.wants(flow, blocked, client.AdminReasonDependencyFailed, client.AdminReasonDone)
	done := a.create("work")
	a.end(a.claim("work"), nil)
	a.wants(flow, done, client.AdminReasonDone)
	again := a.create("held")
	a.end(a.claim("held"), &client.JobFailure{Error: "x", Retryable: true})
	a.pollsFlow(func() {
		a.wants(flow, waits, client.AdminReasonWaitsForDependencies)
		a.wants(flow, again, client.AdminReasonBackingOff)
	}, "held")
}

// checkQueues is about what operators have set for queues.
func (a *polledNodes) checkQueues() {
	const flow = client.ContractTaskFlow
	jobs := map[string][]string{}
	for queue, change := range map[string]client.AdminQueueChange{
		"paused": {Paused: ref(true)},
		"narrow": {MaxRunning: ref(1)},
		"slow":   {RateLimit: ref(1), RatePeriod: ref("1h")},
	} {
		if _, err := a.first.Admin().SetQueue(a.Context(), flow, queue, change); err != nil {
			a.Fatal(err)
		}
		jobs[queue] = []string{a.create(queue), a.create(queue)}
	}
	a.claim("narrow")
	a.end(a.claim("slow"), nil)
	a.pollsFlow(func() {
		a.wants(flow, jobs["paused"][0], client.AdminReasonQueuePaused)
		a.wants(flow, jobs["paused"][1], client.AdminReasonQueuePaused, client.AdminReasonBehindOtherJobs)
		a.wants(flow, jobs["narrow"][1], client.AdminReasonQueueLimit)
		a.wants(flow, jobs["slow"][1], client.AdminReasonRateLimited)
	}, "paused", "narrow", "slow")
}

func (a *polledNodes) checkRelay() {
	relay := a.first.Relay()
	if err := relay.Enqueue(a.Context(), []client.RelaySpec{{Queue: "later", ID: "1",
		Timeout: time.Minute, RunAt: time.Now().Add(time.Hour)}}, client.RelayUnique); err != nil {
		a.Fatal(err)
	}
	a.polls(func() { a.wants("relay", "1", client.AdminReasonNotDue) },
		func(ctx context.Context) (int, error) {
			jobs, err := relay.Claim(ctx, "later", 1, 30*time.Second)
			return len(jobs), err
		})
}

func (a *polledNodes) checkForgeRun() {
	forge := a.forgeClient()
	var ids []string
	for range 2 {
		made, err := forge.Submit(a.Context(), client.ForgeRunSpec{Type: client.ForgeRunTypeExecute,
			Kind: client.ForgeRunWorkRunsLong})
		if err != nil {
			a.Fatal(err)
		}
		ids = append(ids, made.JobID)
	}
	a.wants(client.ContractForgeRun, ids[0], client.AdminReasonRunning)
	a.wants(client.ContractForgeRun, ids[1], client.AdminReasonContractLimit)
}

// checkFetchBox is about a manifest whose resources are still being fetched.
func (a *polledNodes) checkFetchBox() {
	over := make(chan struct{})
	site := newOrigin(a.T, func(http.ResponseWriter, *http.Request) { <-over })
	defer close(over)
	id := mustPost(a.T, a.nodes[0].url, "", site.resources("m", 2))
	a.wants(client.ContractFetchBox, id, client.AdminReasonWaitsForChildren)
}

// checkDrain is about the queue that has a handler in each node.
func (a *polledNodes) checkDrain() {
	var names []string
	for node, err := range a.first.Admin().Nodes(a.Context()) {
		if err != nil {
			a.Fatal(err)
		}
		names = append(names, node.Name)
	}
	for _, name := range names {
		if err := a.first.Admin().DrainNode(a.Context(), name); err != nil {
			a.Fatal(err)
		}
	}
	for _, n := range a.nodes {
		pollUntil(a.Fatalf, "the drain to be in force", func() bool {
			resp, err := fetchClient.Get(n.url + "/health/ready")
			if err != nil {
				a.Fatal(err)
			}
			resp.Body.Close()
			return resp.StatusCode == http.StatusServiceUnavailable
		})
	}
	a.wants(client.ContractTaskFlow, a.create("pool"), client.AdminReasonNodeDraining,
		client.AdminReasonNoWorkers)
	for _, name := range names {
		if err := a.first.Admin().ResumeNode(a.Context(), name); err != nil {
			a.Fatal(err)
		}
	}
}

// checkImages is about a job whose message waits for the stream to come back.
func (a *polledNodes) checkImages() {
	var made imageJob
	imageCall(a.T, a.nodes[0].url, "POST", "/images/v1/files", largeJPEG(), 202, &made)
	a.wants(client.ContractImages, made.JobID, client.AdminReasonMessagePending)
}
