package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/nodes"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// whyMachine is the machine of jobs that are held back in every way: they wait for dependencies
// and children, are tried again, and are given up.
var whyMachine = job.MustMachine(map[job.State]job.Phase{"pending": job.Waiting,
	"queued": job.Ready, "running": job.Leased, "over": job.Done, "failed": job.Done,
	"blocked": job.Done}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "pending"},
	{From: "pending", On: job.Satisfied, To: "queued"},
	{From: "pending", On: job.Unsatisfiable, To: "blocked"},
	{From: "queued", On: job.Claimed, To: "running"},
	{From: "running", On: job.Succeeded, To: "over"},
	{From: "running", On: job.Failed, To: "queued", CountsFailed: true},
	{From: "running", On: job.FailedForGood, To: "failed", DeadLetter: true},
	{From: "running", On: job.Expired, To: "queued"},
	{From: "running", On: job.Released, To: "queued"},
})

// goneMachine is the machine of jobs that leave nothing but dead letters, like jobs of Relay.
var goneMachine = job.MustMachine(map[job.State]job.Phase{"queued": job.Ready,
	"running": job.Leased}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "queued"},
	{From: "queued", On: job.Claimed, To: "running"},
	{From: "running", On: job.Succeeded, To: job.StateNone},
	{From: "running", On: job.Expired, To: "queued"},
	{From: "running", On: job.FailedForGood, To: job.StateNone, DeadLetter: true},
})

// whyJobTypes are the contracts of TestWhy.
var whyJobTypes = []engine.JobType{
	{Name: "held", Machine: whyMachine, Graph: true},
	{Name: "capped", Machine: whyMachine, Graph: true, MaxRunning: 1},
	{Name: "sent", Machine: whyMachine, Graph: true, History: true, Publish: true,
		ByMessage: true},
	{Name: "gone", Machine: goneMachine},
}

// whyView is an answer as it is sent.
type whyView struct {
	Number   int64
	Queue    string
	Sentence string
	Reasons  []struct {
		Code, Text string
		Facts      map[string]json.RawMessage
	}
	Next *time.Time
}

// codes are the codes of the reasons in their order.
func (v *whyView) codes() string {
	all := make([]string, len(v.Reasons))
	for i, r := range v.Reasons {
		all[i] = r.Code
	}
	return strings.Join(all, " ")
}

// whyWorld is two nodes on one store.
type whyWorld struct {
	*testing.T
	w, other *world
	store    store.Store
	keys     int
}

// submit stores a job of a contract in queue q, changed by with.
func (h *whyWorld) submit(contract, queue string, with ...func(*engine.Submission)) *job.Job {
	h.Helper()
	h.keys++
	s := engine.Submission{Job: job.Job{ID: job.ID{JobType: contract, Key: fmt.Sprint(h.keys)},
		Queue: queue, Lease: time.Hour, MaxAttempts: 5}}
	for _, change := range with {
		change(&s)
	}
	if _, err := h.w.engine.Submit(h.Context(), engine.Unique,
		[]engine.Submission{s}); err != nil {
		h.Fatal(err)
	}
	j, err := h.w.engine.Get(h.Context(), s.Job.ID)
	if err != nil {
		h.Fatal(err)
	}
	return j
}

// claim claims one job of a queue on a node.
func (h *whyWorld) claim(w *world, contract, queue string) *job.Job {
	h.Helper()
	jobs, err := w.engine.Claim(h.Context(), engine.ClaimRequest{JobType: contract,
		Queues: []string{queue}, Max: 1, Worker: "w1"})
	if err != nil || len(jobs) != 1 {
		h.Fatalf("claimed %v, %v", jobs, err)
	}
	return jobs[0]
}

// finish ends the run of a job.
func (h *whyWorld) finish(j *job.Job, o engine.Outcome) {
	h.Helper()
	if _, err := h.w.engine.Finish(h.Context(), engine.Run{ID: j.ID, Run: j.Run}, o); err != nil {
		h.Fatal(err)
	}
}

// polls lets a worker of a node ask for a queue that has nothing for it.
func (h *whyWorld) polls(w *world, contract, queue string) {
	h.Helper()
	done := w.engine.Polling(engine.ClaimRequest{JobType: contract, Queues: []string{queue}})
	done()
}

// wants asks both nodes why a job does not run. Each has written its record.
func (h *whyWorld) wants(j *job.Job, codes string) (v whyView) {
	h.Helper()
	for _, w := range []*world{h.w, h.other} {
		if err := w.api.Node.Write(h.Context()); err != nil {
			h.Fatal(err)
		}
	}
	for name, w := range map[string]*world{"one": h.w, "the other": h.other} {
		v = get[whyView](h, w, fmt.Sprintf("/admin/v1/jobs/%d/why", j.Seq))
		if v.codes() != codes || v.Sentence == "" {
			h.Errorf("%s node: got %+v, want %s", name, v, codes)
		}
	}
	return v
}

// TestWhy (AD-015): why names the true reason for each code, on every database and from both nodes.
func TestWhy(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		h := &whyWorld{T: t, store: p.Store, w: newWorld(t, p.Store, p.Clock, nil)}
		second := p.Store
		if p.Reopen != nil {
			second = p.Reopen(t)
		}
		h.other = newWorld(t, second, p.Clock, nil)
		testkit.Register(t, h.w.engine, whyJobTypes...)
		testkit.Register(t, h.other.engine, whyJobTypes...)
		for _, tt := range []struct {
			name string
			test func(h *whyWorld)
		}{
			{"AD-015 nobody asks, then somebody does", whyNobodyAsks},
			{"AD-015 AD-030 a claim that waits", whyWaits},
			{"AD-015 a node that has stopped", whyStopped},
			{"AD-015 running", whyRunning}, {"AD-015 not due", whyNotDue},
			{"AD-015 backing off", whyBackingOff},
			{"AD-015 dependencies", whyDependencies}, {"AD-015 children", whyChildren},
			{"AD-015 a chain of dependencies", whyChain},
			{"AD-015 paused and behind", whyPaused}, {"AD-015 limits", whyLimits},
			{"AD-015 rate", whyRate}, {"AD-015 node draining", whyDraining},
			{"AD-015 message pending", whyMessage}, {"AD-015 done and dead", whyOver},
		} {
			t.Run(tt.name, func(t *testing.T) { h.T = t; tt.test(h) })
		}
		t.Run("AD-015 no such job", func(t *testing.T) {
			for _, number := range []string{"999999", "0", "x", "01", "+1"} {
				h.w.do(t, h.w.api.Token(), "GET", "/admin/v1/jobs/"+number+"/why", "").
					WantError(t, 404, "NOT_FOUND")
			}
		})
	})
}

func whyNobodyAsks(h *whyWorld) {
	j := h.submit("held", "asked")
	if v := h.wants(j, "nobody_asks"); string(v.Reasons[0].Facts["since"]) != `"never"` ||
		v.Next != nil {
		h.Errorf("got %+v", v)
	}
	h.polls(h.other, "held", "asked")
	h.wants(j, "")
	asked := h.w.clock.Now()
	h.w.clock.Advance(29 * time.Second)
	h.wants(j, "")
	h.w.clock.Advance(time.Second)
	h.wants(j, "nobody_asks")
	h.w.clock.Advance(time.Hour) // the node has forgotten it, the store has not
	v := h.wants(j, "nobody_asks")
	var since time.Time
	if err := json.Unmarshal(v.Reasons[0].Facts["since"], &since); err != nil ||
		!since.Equal(asked) {
		h.Errorf("asked at %s, want %s", since, asked)
	}
	type queue struct {
		Queue       string
		Workers     int
		LastAskedAt *time.Time `json:"last_asked_at"`
	}
	for _, q := range get[listOf[queue]](h, h.w, "/admin/v1/queues?contract=held").Items {
		if q.LastAskedAt == nil || !q.LastAskedAt.Equal(asked) || q.Workers != 0 {
			h.Errorf("AD-030 got %+v", q)
		}
	}
}

// whyStopped proves that what a node was asked for is known when it has stopped.
func whyStopped(h *whyWorld) {
	e := testkit.NewEngine(h, h.store, h.w.clock, whyJobTypes...)
	node, err := nodes.New(nodes.Config{Engine: e, Elapsed: h.w.clock.Monotonic})
	if err != nil {
		h.Fatal(err)
	}
	if err := node.Write(h.Context()); err != nil {
		h.Fatal(err)
	}
	j := h.submit("held", "left")
	e.Polling(engine.ClaimRequest{JobType: "held", Queues: []string{"left"}})()
	ctx, stop := context.WithCancel(h.Context())
	stop()
	node.Run(ctx)
	h.wants(j, "")
	h.w.clock.Advance(90 * time.Second)
	if v := h.wants(j, "nobody_asks"); !strings.Contains(v.Sentence, "for 90 s") {
		h.Errorf("got %s", v.Sentence)
	}
}

// whyWaits proves that a claim that waits asks, however long ago it came, and on which node.
func whyWaits(h *whyWorld) {
	h.set("wait", `{"paused":true}`)
	j := h.submit("held", "wait")
	h.wants(j, "queue_paused nobody_asks")
	ctx, stop := context.WithCancel(h.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := h.other.engine.ClaimRemote(ctx, engine.ClaimRequest{JobType: "held",
			Queues: []string{"wait"}, Max: 1, Worker: "w", Wait: time.Hour}, "sdk")
		done <- err
	}()
	testkit.WaitUntil(h.T, "the claim to wait", func() bool {
		return slices.ContainsFunc(h.other.engine.PolledQueues(), func(a engine.PolledQueue) bool {
			return a.Queue == "wait"
		})
	})
	h.w.clock.Advance(4 * time.Minute)
	h.wants(j, "queue_paused")
	for _, w := range []*world{h.w, h.other} {
		all := get[listOf[struct {
			Workers     int
			LastAskedAt time.Time `json:"last_asked_at"`
		}]](h, w, "/admin/v1/queues?contract=held&text=wait").Items
		if len(all) != 1 || all[0].Workers != 1 || !all[0].LastAskedAt.Equal(h.w.clock.Now()) {
			h.Errorf("AD-030 got %+v", all)
		}
	}
	stop()
	if err := testkit.Receive(h.T, "the claim that waits", done); err != nil {
		h.Fatal(err)
	}
	h.wants(j, "queue_paused") // the nodes write that the worker has left
	left := get[listOf[struct{ Workers int }]](h, h.w, "/admin/v1/queues?contract=held&text=wait")
	if left.Items[0].Workers != 0 {
		h.Errorf("AD-030 a worker that has left is counted: %+v", left.Items)
	}
	for _, known := range get[listOf[workerItem]](h, h.w, "/admin/v1/workers").Items {
		if known.Name == "w" {
			h.Errorf("AD-040 a worker that has left is listed: %+v", known)
		}
	}
}

func whyRunning(h *whyWorld) {
	j := h.submit("held", "running")
	h.claim(h.other, "held", "running")
	v := h.wants(j, "running")
	if v.Next == nil || !v.Next.Equal(h.w.clock.Now().Add(time.Hour)) ||
		string(v.Reasons[0].Facts["worker"]) != `"w1"` {
		h.Errorf("got %+v", v)
	}
}

func whyNotDue(h *whyWorld) {
	due := h.w.clock.Now().Add(time.Hour)
	h.polls(h.other, "held", "later")
	j := h.submit("held", "later", func(s *engine.Submission) { s.Job.DueAt = due })
	if v := h.wants(j, "not_due"); v.Next == nil || !v.Next.Equal(due) {
		h.Errorf("got %+v", v)
	}
}

func whyBackingOff(h *whyWorld) {
	j := h.submit("held", "again")
	h.finish(h.claim(h.other, "held", "again"),
		engine.Outcome{On: job.Failed, Delay: time.Minute})
	v := h.wants(j, "backing_off")
	if v.Next == nil || !v.Next.Equal(h.w.clock.Now().Add(time.Minute)) {
		h.Errorf("got %+v", v)
	}
}

// whyChain proves that of jobs which depend on each other each says what holds the first one, and
// who has paused its queue.
func whyChain(h *whyWorld) {
	h.set("chain", `{"paused":true}`)
	first := h.submit("held", "chain")
	j, between := first, first
	for _, queue := range []string{"chain b", "chain c"} {
		between = j
		j = h.submit("held", queue, func(s *engine.Submission) { s.DependsOn = []job.ID{between.ID} })
	}
	v := h.wants(j, "waits_for_dependencies nobody_asks")
	var root whyView
	chain := string(v.Reasons[0].Facts["chain"])
	if err := json.Unmarshal(v.Reasons[0].Facts["root"], &root); err != nil ||
		root.codes() != "queue_paused nobody_asks" || root.Number != first.Seq ||
		root.Queue != "chain" || strings.Count(chain, "number") != 2 ||
		!strings.Contains(v.Sentence, "Queue held/chain is paused") {
		h.Errorf("AD-015 got %+v", v)
	}
	at := h.w.clock.Now()
	h.w.clock.Advance(3 * time.Minute)
	v = h.wants(between, "waits_for_dependencies nobody_asks")
	if want := fmt.Sprintf("Job %d: Queue held/chain is paused: no job of it starts until it is "+
		"resumed. It was paused 3 min ago by operator.", first.Seq); !strings.Contains(v.Sentence,
		want) {
		h.Errorf("AD-015 got %s, want %s", v.Sentence, want)
	}
	v = h.wants(first, "queue_paused nobody_asks")
	var paused time.Time
	if err := json.Unmarshal(v.Reasons[0].Facts["paused_at"], &paused); err != nil ||
		!paused.Equal(at) || string(v.Reasons[0].Facts["paused_by"]) != `"operator"` {
		h.Errorf("AD-015 got %+v", v)
	}
}

func whyDependencies(h *whyWorld) {
	first := h.submit("held", "deps")
	second := h.submit("held", "deps")
	j := h.submit("held", "deps", func(s *engine.Submission) {
		s.DependsOn = []job.ID{first.ID, second.ID}
	})
	h.finish(h.claim(h.other, "held", "deps"), engine.Outcome{On: job.Succeeded})
	v := h.wants(j, "waits_for_dependencies")
	want := fmt.Sprintf(`[{"number":%d,"id":"%s","state":"queued"}]`, second.Seq, second.ID.Key)
	if got := string(v.Reasons[0].Facts["dependencies"]); got != want {
		h.Errorf("got %s, want %s", got, want)
	}
	h.finish(h.claim(h.w, "held", "deps"), engine.Outcome{On: job.FailedForGood})
	v = h.wants(j, "dependency_failed done")
	if !strings.Contains(v.Sentence, fmt.Sprint(second.Seq)) {
		h.Errorf("got %s", v.Sentence)
	}
	many := func(s *engine.Submission) {
		for range 12 {
			s.DependsOn = append(s.DependsOn, h.submit("held", "many").ID)
		}
	}
	h.polls(h.w, "held", "many")
	v = h.wants(h.submit("held", "many", many), "waits_for_dependencies")
	var shown []json.RawMessage
	if err := json.Unmarshal(v.Reasons[0].Facts["dependencies"], &shown); err != nil ||
		len(shown) != 10 || string(v.Reasons[0].Facts["open"]) != "12" {
		h.Errorf("got %+v", v)
	}
}

func whyChildren(h *whyWorld) {
	parent := engine.Submission{Job: job.Job{ID: job.ID{JobType: "held", Key: "parent"},
		Queue: "parents", Lease: time.Hour}}
	batch := []engine.Submission{parent}
	for _, key := range []string{"c1", "c2"} {
		batch = append(batch, engine.Submission{Parent: parent.Job.ID, Job: job.Job{
			ID: job.ID{JobType: "held", Key: key}, Queue: "parts", Lease: time.Hour}})
	}
	if _, err := h.w.engine.Submit(h.Context(), engine.Unique, batch); err != nil {
		h.Fatal(err)
	}
	h.finish(h.claim(h.other, "held", "parts"), engine.Outcome{On: job.Succeeded})
	h.polls(h.other, "held", "parents")
	j, err := h.w.engine.Get(h.Context(), parent.Job.ID)
	if err != nil {
		h.Fatal(err)
	}
	v := h.wants(j, "waits_for_children")
	if string(v.Reasons[0].Facts["open"]) != "1" ||
		string(v.Reasons[0].Facts["children"]) != "2" {
		h.Errorf("got %+v", v)
	}
}

func whyPaused(h *whyWorld) {
	h.polls(h.other, "held", "still")
	var j *job.Job
	for range 4 {
		j = h.submit("held", "still")
	}
	h.submit("held", "still") // behind it
	if v := h.wants(j, "behind"); string(v.Reasons[0].Facts["ahead"]) != "3" {
		h.Errorf("got %+v", v)
	}
	h.submit("held", "still", func(s *engine.Submission) { s.Job.Priority = 5 })
	if v := h.wants(j, "behind"); string(v.Reasons[0].Facts["ahead"]) != "4" {
		h.Errorf("got %+v", v)
	}
	h.set("still", `{"paused":true}`)
	h.wants(j, "queue_paused behind")
}

// set changes the settings of a queue of the contract held by the other node.
func (h *whyWorld) set(queue, body string) {
	h.Helper()
	h.other.do(h, h.other.api.Token(), "PATCH", "/admin/v1/queues/held/"+queue, body,
		"Content-Type", "application/json").WantStatus(h, 200)
}

func whyLimits(h *whyWorld) {
	h.set("narrow", `{"run_limit":1}`)
	if err := h.w.engine.Refresh(h.Context()); err != nil {
		h.Fatal(err)
	}
	h.submit("held", "narrow")
	j := h.submit("held", "narrow")
	h.claim(h.other, "held", "narrow")
	if v := h.wants(j, "queue_limit"); string(v.Reasons[0].Facts["limit"]) != "1" {
		h.Errorf("got %+v", v)
	}
	h.submit("capped", "one")
	j = h.submit("capped", "two")
	h.claim(h.other, "capped", "one")
	h.polls(h.w, "capped", "two")
	h.wants(j, "contract_limit")
}

func whyRate(h *whyWorld) {
	h.set("slow", `{"rate":1,"rate_period":"10s"}`)
	if err := h.w.engine.Refresh(h.Context()); err != nil {
		h.Fatal(err)
	}
	h.submit("held", "slow")
	j := h.submit("held", "slow")
	h.finish(h.claim(h.other, "held", "slow"), engine.Outcome{On: job.Succeeded})
	v := h.wants(j, "rate_limited")
	if v.Next == nil || !v.Next.Equal(h.w.clock.Now().Add(10*time.Second)) ||
		string(v.Reasons[0].Facts["rate_period"]) != `"10s"` {
		h.Errorf("AD-032 got %+v", v)
	}
	h.w.clock.Advance(10 * time.Second)
	h.wants(j, "")
}

func whyDraining(h *whyWorld) {
	defer h.other.engine.AddLocalWorker("held", "n/1", []string{"local"}, 1)()
	h.polls(h.other, "held", "local")
	j := h.submit("held", "local")
	h.wants(j, "")
	drain := func(draining bool) {
		h.Helper()
		if err := h.w.engine.SetDrain(h.Context(), engine.DrainNode, h.other.engine.Node(),
			draining, func(engine.RecordWriter, bool) error { return nil }); err != nil {
			h.Fatal(err)
		}
		if err := h.other.engine.Refresh(h.Context()); err != nil {
			h.Fatal(err)
		}
	}
	drain(true)
	if v := h.wants(j, "node_draining nobody_asks"); !strings.Contains(v.Sentence,
		h.other.engine.Node()) {
		h.Errorf("got %s", v.Sentence)
	}
	all := engine.ClaimRequest{JobType: "held", Max: 1, Worker: "remote",
		Skip: func(queue string) bool { return queue == "local" }}
	if _, _, err := h.other.engine.ClaimRemote(h.Context(), all, "sdk"); err != nil {
		h.Fatal(err)
	}
	h.wants(j, "node_draining nobody_asks") // the claim left the queue out
	h.polls(h.w, "held", "local")           // G-AD-08: another node takes the queue
	h.wants(j, "")
	drain(false)
}

func whyMessage(h *whyWorld) {
	h.polls(h.other, "sent", "q")
	before := h.submit("sent", "q")
	j := h.submit("sent", "q")
	h.finish(h.claim(h.other, "sent", "q"), engine.Outcome{On: job.Succeeded})
	v := h.wants(j, "message_pending")
	if string(v.Reasons[0].Facts["messages_ahead"]) == "" || before.Seq >= j.Seq {
		h.Errorf("got %+v", v)
	}
	if _, err := h.w.engine.Publish(h.Context(), func(context.Context, []job.Message) error {
		return nil
	}); err != nil {
		h.Fatal(err)
	}
	h.wants(j, "")
}

func whyOver(h *whyWorld) {
	j := h.submit("held", "over")
	h.finish(h.claim(h.other, "held", "over"), engine.Outcome{On: job.Succeeded})
	h.wants(j, "done")
	for _, contract := range []string{"held", "gone"} {
		j = h.submit(contract, "bad")
		h.finish(h.claim(h.other, contract, "bad"), engine.Outcome{On: job.FailedForGood})
		if v := h.wants(j, "dead"); string(v.Reasons[0].Facts["dead_letter"]) == "" ||
			string(v.Reasons[0].Facts["attempts"]) != "1" {
			h.Errorf("%s: got %+v", contract, v)
		}
	}
}
