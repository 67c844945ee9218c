package bulk_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/webhook"
	"github.com/millrace/millrace/internal/worker"
)

// made is the job type of the tests. Jobs of the queue "new" are ready, all others begin failed.
const made = "made"

var machine = job.MustMachine(map[job.State]job.Phase{"failed": job.Done, "queued": job.Ready,
	"running": job.Leased, "done": job.Done}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "failed"},
	{From: "failed", On: job.Retried, To: "queued"},
	{From: "queued", On: job.Claimed, To: "running"},
	{From: "queued", On: job.Removed, To: job.StateNone},
	{From: "failed", On: job.Removed, To: job.StateNone},
	{From: "running", On: job.Succeeded, To: "done"},
	{From: "running", On: job.Expired, To: "queued"},
	{From: "running", On: job.Released, To: "queued"},
	{From: "running", On: job.FailedForGood, To: "failed", DeadLetter: true},
})

// node is an engine with bulk operations, without a server.
type node struct {
	engine *engine.Engine
	ops    *bulk.Bulk
	clock  *testkit.Clock
	ended  int // operations of which the end was recorded
	// onElapsed is called whenever the operations look at the clock; nil does nothing.
	onElapsed func()
	onRerun   func(*job.Job) // is called before a rerun; nil does nothing
	// rerunFails, if not nil, says why a rerun is not possible at the moment.
	rerunFails func(*job.Job) error
	// refusesEnds is why the node does not carry out recorded ends, nil for nothing.
	refusesEnds error
	webhooks    *webhook.Webhooks
}

// newNode makes a node on a store.
func newNode(t *testing.T, s store.Store, clock *testkit.Clock) *node {
	t.Helper()
	n := &node{clock: clock}
	n.engine = testkit.NewEngine(t, s, clock, engine.JobType{Name: made, Machine: machine,
		History: true, RecordedEnds: &engine.RecordedEnds{
			Complete: func(_ *job.Job, result []byte) engine.Outcome {
				return engine.Outcome{On: job.Succeeded, Result: result}
			},
			Fail: func(*job.Job, string, string, bool) engine.Outcome {
				return engine.Outcome{On: job.FailedForGood}
			},
			Check: func() error { return n.refusesEnds }}})
	o := contract.Operator{JobType: made, Answer: httpapi.ErrorTable{}.Answer,
		Actions: []contract.Action{
			contract.Change(n.engine, contract.ActionRetry, job.Retried, nil, "failed"),
			contract.Change(n.engine, contract.ActionDelete, job.Removed, nil, "failed", "queued"),
			contract.Release(n.engine, "running"),
			{Name: contract.ActionRerun, States: []job.State{"failed"}, Do: n.rerun}},
		Replay: func(ctx context.Context, dead *job.Job) (*job.Job, error) {
			return n.engine.Change(ctx, dead.ID, job.Retried, nil)
		}}
	n.newWebhooks(t)
	var err error
	n.ops, err = bulk.New(bulk.Config{Engine: n.engine, Log: slog.New(slog.DiscardHandler),
		Random: testkit.RandomBytes, Elapsed: n.elapsed,
		Contracts: []*contract.Contract{{Name: made,
			Operators: []contract.Operator{o, contract.DeliveryOperator(n.webhooks)},
			JobTypes:  []engine.JobType{{Name: made, Machine: machine}, n.webhooks.JobType()},
			Webhooks:  n.webhooks}},
		Ended: func(engine.RecordWriter, *bulk.Operation) error { n.ended++; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// elapsed is the clock of the operations.
func (n *node) elapsed() time.Duration {
	if n.onElapsed != nil {
		n.onElapsed()
	}
	return n.clock.Monotonic()
}

// rerun makes a new job, whose owner is the old one, and changes nothing of that: nothing but the
// operation keeps it from being made twice. It fails for jobs of the queue broken, and for each
// tenth of the queue mixed.
func (n *node) rerun(ctx context.Context, j *job.Job) (*job.Job, error) {
	if n.onRerun != nil {
		n.onRerun(j)
	}
	if n.rerunFails != nil {
		if err := n.rerunFails(j); err != nil {
			return nil, err
		}
	}
	if j.Queue == "broken" || (j.Queue == "mixed" && strings.HasSuffix(j.ID.Key, "3")) {
		return nil, &job.Error{Kind: job.Invalid, Op: "rerun", Msg: "it is broken"}
	}
	r, err := n.engine.Submit(ctx, engine.Unique, []engine.Submission{{Job: job.Job{
		ID: job.ID{JobType: made, Key: fmt.Sprintf("%x", testkit.RandomBytes())}, Queue: "made",
		Owner: j.ID.Key}}})
	if err != nil {
		return nil, err
	}
	return r.Jobs[0], nil
}

// submit stores n failed jobs of a queue.
func (n *node) submit(t *testing.T, queue string, count int) {
	t.Helper()
	for at := 0; at < count; at += 500 {
		batch := make([]engine.Submission, min(500, count-at))
		for i := range batch {
			batch[i] = engine.Submission{Job: job.Job{Queue: queue, Lease: time.Minute,
				ID: job.ID{JobType: made, Key: fmt.Sprintf("%s-%06d", queue, at+i)}}}
		}
		if _, err := n.engine.Submit(t.Context(), engine.Unique, batch); err != nil {
			t.Fatal(err)
		}
	}
}

// start starts an operation on the jobs of a queue.
func (n *node) start(t *testing.T, r bulk.Request, queue string) string {
	t.Helper()
	if r.DeadLetters == nil {
		r.Jobs = &bulk.JobFilter{JobTypes: []string{made}, Queue: queue}
	}
	o, err := n.ops.Start(t.Context(), n.clock.Now(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o.ID
}

// runOnce claims an operation and carries it out, until it is done or has to wait. It reports
// whether there was one that may be claimed.
func (n *node) runOnce(t *testing.T) (engine.Outcome, bool) {
	t.Helper()
	o, run, claimed := n.runUnfinished(t)
	if !claimed {
		return o, false
	}
	if o.On == "" { // its job has moved on
		return o, true
	}
	if _, err := n.engine.Finish(t.Context(), run, o); err != nil {
		t.Fatal(err)
	}
	return o, true
}

// runUnfinished is runOnce without the end of the run.
func (n *node) runUnfinished(t *testing.T) (o engine.Outcome, run engine.Run, claimed bool) {
	t.Helper()
	jobs, err := n.engine.Claim(t.Context(), engine.ClaimRequest{JobType: bulk.Name, Max: 1,
		Worker: "w"})
	if err != nil || len(jobs) == 0 {
		return o, run, false
	}
	run = engine.Run{ID: jobs[0].ID, Run: jobs[0].Run}
	return n.ops.Handle(t.Context(), &worker.ClaimedJob{Job: jobs[0], Worker: "w"}), run, true
}

// wait lets an operation that waits go on.
func (n *node) wait(t *testing.T, d time.Duration) {
	t.Helper()
	n.clock.Advance(d)
	testkit.RunMaintenance(t, n.engine)
}

// want checks how far an operation has come.
func (n *node) want(t *testing.T, id, state string, done, skipped, failed int64) *bulk.Operation {
	t.Helper()
	o, err := n.ops.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if o.State != state || o.Done != done || o.Skipped != skipped || o.Failed != failed {
		t.Fatalf("the operation is %+v, want %s with %d done, %d skipped and %d failed", o, state,
			done, skipped, failed)
	}
	return o
}

// change changes an operation.
func (n *node) change(t *testing.T, id string, what bulk.Change) error {
	_, err := n.ops.Change(t.Context(), id, what, nil)
	return err
}

// list returns the jobs of a queue.
func (n *node) list(t *testing.T, queue string, states ...job.State) []*job.Job {
	t.Helper()
	all, err := n.engine.List(t.Context(), store.Filter{JobType: made, Queue: queue,
		States: states})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// mortal is the store of a node that is killed after a number of transactions. Of every other one
// that it ends with, the changes are kept although nobody gets the answer.
type mortal struct {
	store.Store
	left    atomic.Int64
	commits bool
}

var errKilled = &job.Error{Kind: job.Unavailable, Op: "test", Msg: "the node was killed"}

func (m *mortal) Update(ctx context.Context, fn func(store.Tx) error) error {
	switch left := m.left.Add(-1); {
	case left < 0 && (left < -1 || !m.commits):
		return errKilled
	case left < 0:
		_ = m.Store.Update(ctx, fn)
		return errKilled
	}
	return m.Store.Update(ctx, fn)
}
