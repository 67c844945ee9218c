package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

func TestSubmitModes(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("brief/a:1"), sub("brief/b:1")) // G-X-08, RL-001: the same key in two scopes
		for _, c := range []struct {
			mode  engine.Mode
			batch []engine.Submission
			want  string // receipt or the kind of error
		}{
			{engine.Unique, nil, "stored 0 taken []"},
			{engine.Unique, subs(sub("brief/a:2"), sub("brief/a:1")), "conflict"},
			{engine.Unique, subs(sub("brief/a:3"), sub("brief/a:3")), "conflict"},
			{engine.Ignore, subs(sub("brief/a:1", priority(9)), sub("brief/a:4"),
				sub("brief/a:4", priority(1)), sub("brief/b:1")), "stored 1 taken [0 2 3]"},
			{engine.Ignore, subs(sub("brief/a:4")), "stored 0 taken [0]"},
			{engine.Replace, subs(sub("brief/a:1", priority(1)), sub("brief/a:5", priority(7)),
				sub("brief/a:5"), sub("brief/a:1", priority(2))), "stored 4 taken []"},
			{engine.Unique, subs(sub("unknown/a")), "not found"},
			{engine.Unique, subs(sub("brief/a:6", in(""))), "invalid"},
			{engine.Unique, subs(sub("brief/a:6"), sub("brief/nul\x00")), "invalid"},
			{engine.Unique, subs(sub("brief/a:6", after("brief/a:1"))), "invalid"},
			{engine.Unique, subs(sub("graph/a", after("brief/a:1"))), "invalid"},
			{engine.Ignore, subs(sub("graph/a"), sub("graph/b", after("graph/a"))), "invalid"},
			{engine.Replace, subs(sub("part/a", childOf("family/p"))), "invalid"},
			{engine.Unique, subs(sub("graph/b", after("graph/a"))), "not found"},
			{engine.Unique, subs(sub("part/a", childOf("family/p"))), "not found"},
		} {
			if got := receipt(w.engine.Submit(w.ctx, c.mode, c.batch)); got != c.want {
				w.Errorf("mode %d of %d: got %s, want %s", c.mode, len(c.batch), got, c.want)
			}
		}
		w.wantSnapshot(`brief/a:1: queued ready priority=2
			brief/a:4: queued ready
			brief/a:5: queued ready
			brief/b:1: queued ready
			brief q: 0 waiting 4 ready 0 leased`)
	})
}

func receipt(r engine.SubmitResult, err error) string {
	if err != nil {
		return job.KindOf(err).String()
	}
	return fmt.Sprint("stored ", r.Stored, " taken ", r.Existing)
}

// A new job begins without attempts and outcomes, whatever its submitter leaves in the fields of
// the engine, as one does that submits the job of a dead letter again.
func TestSubmittedJobStartsFresh(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		s := sub("phased/a", with(func(j *job.Job) {
			j.Seq, j.State, j.Phase, j.Run, j.Attempts, j.FailedAttempts = 99, "failed", job.Done,
				job.RunID{1}, 5, 4
			j.OpenDeps, j.FailedDeps, j.Parent, j.Worker, j.OutOfLine = 3, 2, 1, "w", 31
			j.LeaseUntil, j.FinishedAt, j.StartedAt = long, long, long
			j.Result, j.Failure, j.Progress, j.Definition = []byte("r"), []byte("f"), []byte("p"),
				[]byte("d")
			j.Owner, j.Trace, j.Priority, j.MaxAttempts, j.Kind, j.Alias = "owner", "trace", 3, 4,
				"kind", job.IdentityHash{1}
		}))
		w.submit(s)
		got := w.get("phased/a")
		want := job.Job{Seq: got.Seq, ID: id("phased/a"), Alias: job.IdentityHash{1}, Kind: "kind",
			Queue: "q", Owner: "owner", Trace: "trace", State: "queued", Phase: job.Ready,
			Priority: 3, MaxAttempts: 4, Lease: 30 * time.Second, Definition: []byte("d"),
			Payload: []byte("phased/a"), Progress: []byte("p"),
			OrderTime: w.clock.Now(), DueAt: w.clock.Now(), CreatedAt: w.clock.Now(),
			UpdatedAt: w.clock.Now().Add(time.Microsecond)}
		if fmt.Sprintf("%+v", *got) != fmt.Sprintf("%+v", want) {
			w.Errorf("got  %+v\nwant %+v", *got, want)
		}
	})
}

var long = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)

func TestSubmitSchedules(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("phased/now"), sub("phased/later", due(time.Minute)),
			sub("brief/later", due(time.Minute)), sub("graph/later", due(time.Minute)))
		w.wantSnapshot(`brief/later: queued waiting due=1m0s
			graph/later: ready waiting due=1m0s [submitted>pending satisfied>ready]
			phased/later: created waiting due=1m0s [submitted>created]
			phased/now: queued ready [submitted>created due>queued]
			brief q: 1 waiting 0 ready 0 leased
			graph q: 1 waiting 0 ready 0 leased
			phased q: 1 waiting 1 ready 0 leased`)
		if n, err := w.engine.Promote(w.ctx); n != 0 || err != nil {
			w.Fatal(n, err)
		}
		w.clock.Advance(time.Minute)
		if n, err := w.engine.Promote(w.ctx); n != 3 || err != nil {
			w.Fatal(n, err)
		}
		w.wantSnapshot(`brief/later: queued ready
			graph/later: ready ready [submitted>pending satisfied>ready]
			phased/later: queued ready [submitted>created due>queued]
			phased/now: queued ready [submitted>created due>queued]
			brief q: 0 waiting 1 ready 0 leased
			graph q: 0 waiting 1 ready 0 leased
			phased q: 0 waiting 2 ready 0 leased`)
	})
}

// RL: enqueue mode replace ends the run of a job, which is lost; attempts and failures count from
// 0; its progress is gone.
func TestReplaceWhileRunning(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("brief/a", limit(2)))
		r := w.run("brief/a")
		w.noError(errOf(w.engine.Heartbeat(w.ctx, r, []byte("half"))))
		created := w.get("brief/a").CreatedAt
		w.clock.Advance(time.Second)
		big := bytes.Repeat([]byte("x"), 9<<10)
		if got := receipt(w.engine.Submit(w.ctx, engine.Replace,
			subs(sub("brief/a", due(3*time.Second), in("r"), with(func(j *job.Job) {
				j.Payload = big
			}))))); got != "stored 1 taken []" {
			w.Fatal(got)
		}
		w.wantSnapshot(`brief/a: queued waiting due=2s
			brief r: 1 waiting 0 ready 0 leased`)
		if j := w.get("brief/a"); !bytes.Equal(j.Payload, big) || !j.CreatedAt.Equal(created) ||
			j.MaxAttempts != 0 {
			w.Errorf("got %+v", j)
		}
		for _, err := range w.writes(r) {
			w.wantKind(err, job.RunLost)
		}
		w.clock.Advance(2 * time.Second)
		w.run("brief/a")
		// Where the machine does not know it, replacing is a conflict.
		w.submit(sub("phased/a"))
		w.wantKind(errOf(w.engine.Submit(w.ctx, engine.Replace, subs(sub("phased/a")))),
			job.Conflict)
	})
}

func errOf[A any](_ A, err error) error { return err }

// writes tries every write of a worker under a run.
func (w *world) writes(r engine.Run) []error {
	var all []error
	for _, on := range []job.Cause{job.Started, job.Succeeded, job.Failed, job.FailedForGood,
		job.Released} {
		_, err := w.engine.Finish(w.ctx, r, engine.Outcome{On: on, Result: []byte("stale"),
			Failure: []byte("stale")})
		all = append(all, err)
	}
	return append(all, errOf(w.engine.Heartbeat(w.ctx, r, []byte("stale"))),
		w.engine.Requeue(w.ctx, r, engine.Ignore, subs(sub("brief/spawned"))))
}

func TestQueueSize(t *testing.T) {
	onEveryStore(t, testJobTypesWith("phased", func(c *engine.JobType) {
		c.MaxQueueSize = 3
	}), func(w *world) {
		w.submit(sub("phased/a"), sub("phased/b", in("other")))
		w.submit(sub("brief/x"), sub("brief/y"), sub("brief/z")) // another job type's do not count
		w.wantKind(errOf(w.engine.Submit(w.ctx, engine.Unique,
			subs(sub("phased/c"), sub("phased/d")))), job.Full)
		// scheduled ones do not count
		w.submit(sub("phased/c"), sub("phased/late", due(time.Hour)),
			sub("phased/later", due(2*time.Hour)))
		w.wantKind(errOf(w.engine.Submit(w.ctx, engine.Unique, subs(sub("phased/d")))), job.Full)
		// What is stored already is no new load: a repeated submission gets its outcome.
		w.wantKind(errOf(w.engine.Submit(w.ctx, engine.Unique, subs(sub("phased/a")))),
			job.Conflict)
		if got := receipt(w.engine.Submit(w.ctx, engine.Ignore,
			subs(sub("phased/a")))); got != "stored 0 taken [0]" {
			w.Error(got)
		}
		w.wantKind(errOf(w.engine.Submit(w.ctx, engine.Ignore,
			subs(sub("phased/a"), sub("phased/d")))), job.Full)
		w.claim("phased", 1) // running jobs do not count
		w.submit(sub("phased/d"))
		w.wantKind(errOf(w.engine.Submit(w.ctx, engine.Unique, subs(sub("phased/e")))), job.Full)
		w.wantSnapshot(`brief/x: queued ready
			brief/y: queued ready
			brief/z: queued ready
			phased/a: assigned leased runs=1 until=30s [submitted>created due>queued claimed>assigned]
			phased/b: queued ready [submitted>created due>queued]
			phased/c: queued ready [submitted>created due>queued]
			phased/d: queued ready [submitted>created due>queued]
			phased/late: created waiting due=1h0m0s [submitted>created]
			phased/later: created waiting due=2h0m0s [submitted>created]
			brief q: 0 waiting 3 ready 0 leased
			phased other: 0 waiting 1 ready 0 leased
			phased q: 2 waiting 2 ready 1 leased`)
		// What comes due while it is full waits until the queue is below its limit, and does not
		// delay other jobs.
		w.submit(sub("graph/due", due(3*time.Hour)))
		w.clock.Advance(3 * time.Hour)
		promoted := func(want int) {
			w.Helper()
			if n, err := w.engine.Promote(w.ctx); n != want || err != nil {
				w.Errorf("promoted %d, want %d: %v", n, want, err)
			}
		}
		promoted(1)
		w.wantStates("phased", "a=assigned b=queued c=queued d=queued late=created later=created")
		w.claim("phased", 1)
		promoted(1)
		promoted(0)
		w.wantStates("phased", "a=assigned b=assigned c=queued d=queued late=queued later=created")
	})
}

// Jobs that wait for a retry count for the bound of their queue already: a queue that is full of
// them goes on.
func TestFullQueueGoesOn(t *testing.T) {
	onEveryStore(t, testJobTypesWith("graph", func(c *engine.JobType) {
		c.MaxQueueSize = 2
	}), func(w *world) {
		w.submit(sub("graph/a"), sub("graph/b"))
		for _, j := range w.claim("graph", 2) {
			w.finish(engine.Run{Run: j.Run}, job.Failed)
		}
		w.wantKind(errOf(w.engine.Submit(w.ctx, engine.Unique, subs(sub("graph/c")))), job.Full)
		w.clock.Advance(time.Hour)
		if n, err := w.engine.Promote(w.ctx); n != 2 || err != nil {
			w.Errorf("promoted %d: %v", n, err)
		}
		if got := w.claim("graph", 5); len(got) != 2 {
			w.Errorf("claimed %d", len(got))
		}
	})
}

// Callers that are served by one transaction have outcomes of their own, whatever the others
// submit.
func TestSubmitTogetherKeepsOutcomesApart(t *testing.T) {
	for what, kinds := range map[string][]int{"with conflicts": {0, 2, 3, 4}, "without": {3, 4},
		"with poison": {0, 1, 2, 3, 4}} {
		t.Run(what, func(t *testing.T) {
			onEveryStore(t, testJobTypes(), func(w *world) { submitTogether(w, kinds) })
		})
	}
}

func submitTogether(w *world, kinds []int) {
	gate := &gatedStore{Store: w.store, open: make(chan struct{})}
	w.engine = testkit.NewEngine(w, gate, w.clock, testJobTypes()...)
	const each = 8
	var wg sync.WaitGroup
	for i := range engine.MaxGroups(w.engine) { // keep the combiner busy while the others gather
		wg.Go(func() {
			w.noError(errOf(w.engine.Submit(w.ctx, engine.Unique,
				subs(sub(fmt.Sprint("locked/", i))))))
		})
		engine.AwaitSubmits(w.engine, i+1, 0)
	}
	got := make([]string, each*len(kinds))
	for i := range got {
		wg.Go(func() {
			batch, mode := subs(sub(fmt.Sprintf("brief/own-%d", i))), engine.Unique
			switch kinds[i%len(kinds)] {
			case 0: // and one that all of these want
				batch = append(batch, sub("brief/wanted"))
			case 1: // poison
				batch = append(batch, sub("brief/\xff"))
			case 2: // twice in one batch
				batch = append(batch, batch[0])
			case 3:
				mode, batch = engine.Ignore, append(batch, sub("brief/shared"))
			}
			got[i] = fmt.Sprint(kinds[i%len(kinds)], " ", receipt(w.engine.Submit(w.ctx, mode,
				batch)))
		})
	}
	engine.AwaitSubmits(w.engine, engine.MaxGroups(w.engine), len(got))
	close(gate.open)
	wg.Wait()
	want, stored := map[string]int{}, 0
	for _, k := range kinds {
		switch k {
		case 0:
			want["0 stored 2 taken []"], want["0 conflict"], stored = 1, each-1, stored+2
		case 1:
			want["1 invalid"] = each
		case 2:
			want["2 conflict"] = each
		case 3:
			want["3 stored 2 taken []"], want["3 stored 1 taken [1]"], stored = 1, each-1,
				stored+each+1
		case 4:
			want["4 stored 1 taken []"], stored = each, stored+each
		}
	}
	counts := map[string]int{}
	for _, g := range got {
		counts[g]++
	}
	if fmt.Sprint(counts) != fmt.Sprint(want) {
		w.Errorf("got %v\nwant %v", counts, want)
	}
	if c, err := w.engine.Queues(w.ctx, "brief"); err != nil || len(c) != 1 ||
		c[0].Ready != int64(stored) {
		w.Errorf("counts %v, %v, want %d", c, err, stored)
	}
	w.checkInvariants()
}

// gatedStore lets no update begin before it is open.
type gatedStore struct {
	store.Store
	open chan struct{}
}

func (s *gatedStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	<-s.open
	return s.Store.Update(ctx, fn)
}

// A panic in a function of a contract concerns its caller alone.
func TestPanicConcernsItsCallerAlone(t *testing.T) {
	t.Parallel()
	poison := testJobTypesWith("phased", func(c *engine.JobType) {
		c.MessageBody = func(j *job.Job, _ job.Event) []byte {
			if strings.HasPrefix(j.ID.Key, "bad") {
				panic("a defect")
			}
			return nil
		}
	})
	w := newWorld(t, "memory", poison)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed []string
	for i := range 20 {
		key := fmt.Sprintf("good-%d", i)
		if i%10 == 0 {
			key = fmt.Sprintf("bad-%d", i)
		}
		wg.Go(func() {
			if _, err := w.engine.Submit(w.ctx, engine.Unique,
				subs(sub("phased/"+key))); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, key+" "+job.KindOf(err).String())
			}
		})
	}
	wg.Wait()
	if got := sorted(failed); !slices.Equal(got, []string{"bad-0 internal", "bad-10 internal"}) {
		t.Errorf("failed: %v", got)
	}
	w.checkInvariants()
}

func TestEngineIsRefused(t *testing.T) {
	t.Parallel()
	s := newWorld(t, "memory", nil).store
	good := engine.Config{Store: s, Node: "n", Random: func() (r [16]byte) {
		return r
	}, Monotonic: func() time.Duration { return 0 }}
	for what, invalidate := range map[string]func(*engine.Config){
		"no store":     func(c *engine.Config) { c.Store = nil },
		"no node":      func(c *engine.Config) { c.Node = "" },
		"no random":    func(c *engine.Config) { c.Random = nil },
		"no monotonic": func(c *engine.Config) { c.Monotonic = nil },
	} {
		c := good
		invalidate(&c)
		if _, err := engine.New(c); err == nil {
			t.Errorf("%s: want an error", what)
		}
	}
	for what, jobTypes := range map[string][]engine.JobType{
		"no name":    {{Machine: brief}},
		"no machine": {{Name: "a"}},
		"twice":      {{Name: "a", Machine: brief}, {Name: "a", Machine: brief}},
		"no waiting": {{Name: "a", Machine: brief, Graph: true}},
	} {
		e, err := engine.New(good)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Register(jobTypes...); err == nil {
			t.Errorf("%s: want an error", what)
		}
	}
}

func TestVerbsOfUnknownJobTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "memory", testJobTypes())
	unknown := id("unknown/a")
	for what, err := range map[string]error{
		"submit": errOf(w.engine.Submit(w.ctx, engine.Unique, subs(sub("unknown/a")))),
		"claim": errOf(w.engine.Claim(w.ctx, engine.ClaimRequest{JobType: "unknown",
			Max: 1})),
		"claimJob":     errOf(w.engine.ClaimJob(w.ctx, unknown, "w")),
		"cancel":       errOf(w.engine.Cancel(w.ctx, unknown)),
		"retry":        errOf(w.engine.Retry(w.ctx, unknown, 0)),
		"remove":       w.engine.Remove(w.ctx, unknown),
		"heartbeatJob": w.engine.HeartbeatJob(w.ctx, unknown, nil),
		"requeue":      w.engine.RequeueJob(w.ctx, unknown, engine.Unique, nil),
		"setQueue": w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "unknown",
			Queue: "q"}),
		"get":     errOf(w.engine.Get(w.ctx, unknown)),
		"history": errOf(w.engine.History(w.ctx, unknown)),
	} {
		if !job.IsKind(err, job.NotFound) {
			t.Errorf("%s: got %v, want not found", what, err)
		}
	}
	if is, err := w.engine.Exists(w.ctx, unknown); is || err != nil {
		t.Error(is, err)
	}
	results, cancel := context.WithCancel(w.ctx)
	cancel()
	if jobs, err := w.engine.Claim(results, engine.ClaimRequest{JobType: "brief", Max: 1,
		Wait: time.Hour}); len(jobs) > 0 || (err != nil && !errors.Is(err, context.Canceled)) {
		t.Error(jobs, err)
	}
}
