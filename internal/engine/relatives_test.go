package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// states reads the states of jobs, by key.
func (w *world) states(jobType string) string {
	w.Helper()
	jobs, err := w.engine.List(w.ctx, store.Filter{JobType: jobType})
	w.noError(err)
	all := make([]string, len(jobs))
	for i, j := range jobs {
		all[i] = j.ID.Key + "=" + string(j.State)
	}
	return strings.Join(sorted(all), " ")
}

func (w *world) wantStates(jobType, want string) {
	w.Helper()
	if got := w.states(jobType); got != want {
		w.Fatalf("the jobs are\n%s\nwant\n%s", got, want)
	}
	w.checkInvariants()
}

// end claims everything of a job type that is ready and ends it; keys say how those end that do not
// succeed.
func (w *world) end(jobType string, bad ...string) {
	w.Helper()
	var requests []engine.FinishRequest
	for _, j := range w.claim(jobType, 10_000) {
		on := job.Succeeded
		if slices.Contains(bad, j.ID.Key) {
			on = job.FailedForGood
		}
		requests = append(requests, engine.FinishRequest{Run: engine.Run{Run: j.Run},
			Outcome: engine.Outcome{On: on}})
	}
	for _, e := range w.engine.FinishAll(w.ctx, requests) {
		w.noError(e.Err)
	}
}

// TF-046, TF-047, G-TF-10: whole graphs, from their submission on.
func TestDependencies(t *testing.T) {
	diamond := func() []engine.Submission {
		return subs(sub("graph/d", after("graph/b", "graph/c", "graph/b")), sub("graph/a"),
			sub("graph/b", after("graph/a")), sub("graph/c", after("graph/a")),
			sub("graph/e", after("graph/d")))
	}
	for what, c := range map[string]struct {
		batches [][]engine.Submission
		bad     []string
		states  []string // after each round of ending all that is ready; first as submitted
	}{
		"diamond": {[][]engine.Submission{diamond()}, nil, []string{
			"a=ready b=pending c=pending d=pending e=pending",
			"a=completed b=ready c=ready d=pending e=pending",
			"a=completed b=completed c=completed d=ready e=pending",
			"a=completed b=completed c=completed d=completed e=ready"}},
		"diamond whose root fails": {[][]engine.Submission{diamond()}, []string{"a"}, []string{
			"a=ready b=pending c=pending d=pending e=pending",
			"a=failed b=blocked c=blocked d=blocked e=blocked"}},
		"diamond with one good and one bad side": {[][]engine.Submission{diamond()}, []string{"c"},
			[]string{
				"a=ready b=pending c=pending d=pending e=pending",
				"a=completed b=ready c=ready d=pending e=pending",
				"a=completed b=completed c=failed d=blocked e=blocked"}},
		"bad and still open": {[][]engine.Submission{subs(sub("graph/a"),
			sub("graph/slow", due(time.Hour)), sub("graph/b", after("graph/a", "graph/slow")))},
			[]string{"a"}, []string{"a=ready b=pending slow=ready",
				"a=failed b=blocked slow=ready"}},
		"one after the other": {[][]engine.Submission{subs(sub("graph/a")),
			subs(sub("graph/b", after("graph/a"))),
			subs(sub("graph/c", after("graph/b", "graph/a")))},
			nil, []string{"a=ready b=pending c=pending", "a=completed b=ready c=pending",
				"a=completed b=completed c=ready"}},
	} {
		t.Run(what, func(t *testing.T) {
			onEveryStore(t, testJobTypes(), func(w *world) {
				for _, b := range c.batches {
					w.submit(b...)
				}
				w.wantStates("graph", c.states[0])
				for _, want := range c.states[1:] {
					w.end("graph", c.bad...)
					w.wantStates("graph", want)
				}
			})
		})
	}
}

// G-TF-10, G-TF-11: a dependency that is done already is not waited for.
func TestDependenciesThatAreDone(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("graph/good"), sub("graph/bad"), sub("graph/open", due(time.Hour)))
		w.end("graph", "bad")
		w.submit(sub("graph/a", after("graph/good")))
		w.submit(sub("graph/b", after("graph/good", "graph/bad", "graph/open")),
			sub("graph/c", after("graph/b")))
		w.submit(sub("graph/d", after("graph/open")),
			sub("graph/e", after("graph/good", "graph/open"), due(2*time.Hour)))
		w.wantSnapshot(`graph/a: ready ready [submitted>pending satisfied>ready]
			graph/b: blocked done [submitted>pending unsatisfiable>blocked]
			graph/bad: failed done runs=1 [submitted>pending satisfied>ready claimed>running failed_for_good>failed]
			graph/c: blocked done [submitted>pending unsatisfiable>blocked]
			graph/d: pending waiting open=1 [submitted>pending]
			graph/e: pending waiting open=1 due=2h0m0s [submitted>pending]
			graph/good: completed done runs=1 [submitted>pending satisfied>ready claimed>running succeeded>completed]
			graph/open: ready waiting due=1h0m0s [submitted>pending satisfied>ready]
			graph q: 3 waiting 1 ready 0 leased
			dead graph/bad failed_for_good payload= failure=
			dead graph/b unsatisfiable payload= failure=
			dead graph/c unsatisfiable payload= failure=`)
		w.clock.Advance(time.Hour)
		w.end("graph")
		w.wantStates("graph",
			"a=completed b=blocked bad=failed c=blocked d=ready e=ready good=completed open=completed")
		// e is satisfied but not due
		if got := names(w.claim("graph", 9)); !slices.Equal(got, []string{"graph/d"}) {
			w.Errorf("claimed %v", got)
		}
	})
}

// TF-033 ff.: a cycle inside a batch is refused with its path, nothing is stored.
func TestCircles(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("graph/there"), sub("family/p"))
		before := w.snapshot()
		for _, c := range []struct {
			batch []engine.Submission
			path  string
		}{
			{subs(sub("graph/a", after("graph/a"))), "[a]"},
			{subs(sub("graph/x"), sub("graph/a", after("graph/b", "graph/there")),
				sub("graph/b", after("graph/c")), sub("graph/c", after("graph/a"))), "[a b c]"},
			{subs(sub("family/a", childOf("family/b")), sub("family/b", childOf("family/a"))),
				"[a b]"},
			{subs(sub("family/a", childOf("family/a"))), "[a]"},
			{subs(sub("graph/a", childOf("graph/b"), after("graph/b")), sub("graph/b")), "[a b]"},
			{subs(sub("graph/a", childOf("graph/there"), after("graph/there"))), "[a there]"},
		} {
			_, err := w.engine.Submit(w.ctx, engine.Unique, c.batch)
			w.wantKind(err, job.Cycle)
			if got := fmt.Sprint(err.(*job.Error).Path); got != c.path {
				w.Errorf("got the path %s, want %s", got, c.path)
			}
		}
		w.wantSnapshot(before)
	})
}

func TestWideFanOut(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		batch, wide := subs(sub("graph/root"), sub("graph/bad")), 1000
		if slow {
			wide = 200
		}
		for i := range wide {
			batch = append(batch, sub(fmt.Sprintf("graph/d%d", i), after("graph/root")),
				sub(fmt.Sprintf("graph/e%d", i), after("graph/bad", "graph/root")))
		}
		w.submit(batch...)
		w.end("graph", "bad")
		c, err := w.engine.Queues(w.ctx, "graph")
		if err != nil || c[0].Ready != int64(wide) || c[0].Waiting != 0 {
			w.Errorf("%+v, %v", c, err)
		}
		w.checkInvariants()
	})
}

// TF-050: the two dependencies of many jobs end at the same time, on two nodes; each dependent is
// released, or blocked, exactly once.
func TestDependenciesThatSettleTogether(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		other := w.node(testJobTypes())
		var batch []engine.Submission
		for i := range 20 {
			a, b, c := fmt.Sprint("graph/a", i), fmt.Sprint("graph/b", i), fmt.Sprint("graph/c", i)
			batch = append(batch, sub(a), sub(b), sub(c, after(a, b)), sub(c+"-next", after(c)))
		}
		w.submit(batch...)
		var wg sync.WaitGroup
		for i, j := range w.claim("graph", 100) {
			e := []*engine.Engine{w.engine, other}[i%2]
			wg.Go(func() {
				on := job.Succeeded
				if j.ID.Key == "b7" || j.ID.Key == "a8" || j.ID.Key == "b8" {
					on = job.FailedForGood
				}
				if _, err := e.Finish(w.ctx, engine.Run{Run: j.Run},
					engine.Outcome{On: on}); err != nil {
					w.Error(err)
				}
			})
		}
		wg.Wait()
		c, err := w.engine.Queues(w.ctx, "graph")
		if err != nil || c[0].Ready != 18 || c[0].Waiting != 18 {
			w.Errorf("%+v, %v", c, err)
		}
		w.checkInvariants()
	})
}

// TF-083: a job that another one depends on is not removed.
func TestRemove(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("graph/a"), sub("graph/b", after("graph/a")), sub("brief/a"))
		r := w.run("brief/a")
		w.wantKind(w.engine.Remove(w.ctx, id("graph/a")), job.Conflict)
		w.wantKind(w.engine.Remove(w.ctx, id("graph/c")), job.NotFound)
		w.noError(w.engine.Remove(w.ctx, id("graph/b")))
		w.noError(w.engine.Remove(w.ctx, id("graph/a")))
		w.noError(w.engine.Remove(w.ctx, id("brief/a"))) // in flight
		w.wantKind(w.engine.Remove(w.ctx, id("brief/a")), job.NotFound)
		w.wantKind(errOf(w.engine.Heartbeat(w.ctx, r, nil)), job.RunLost)
		w.wantSnapshot("")
		w.wantKind(errOf(w.engine.History(w.ctx, id("graph/a"))), job.NotFound)
		w.submit(sub("graph/a")) // its history begins anew
		w.wantSnapshot("graph/a: ready ready [submitted>pending satisfied>ready]\ngraph q: 0 waiting 1 " +
			"ready 0 leased")
		w.submit(sub("phased/a"))
		w.wantKind(w.engine.Remove(w.ctx, id("phased/a")), job.Conflict) // no such transition
	})
}

// FB-054 ff.: a parent counts its children, is finished by a run of its own when the last is done,
// and opens again when one is replayed (G-FB-37).
func TestParentAndChildren(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("family/p"), sub("part/a", childOf("family/p"), limit(1)),
			sub("part/b", childOf("family/p"), limit(2)))
		w.wantSnapshot(`family/p: queued waiting open=2 children=2 [submitted>queued]
			part/a: todo ready [submitted>todo]
			part/b: todo ready [submitted>todo]
			family q: 1 waiting 0 ready 0 leased
			part q: 0 waiting 2 ready 0 leased`)
		ids, err := w.engine.List(w.ctx, store.Filter{Parent: w.get("family/p").Seq})
		if err != nil || !slices.Equal(names(ids), []string{"part/a", "part/b"}) {
			w.Errorf("children: %v, %v", names(ids), err)
		}
		w.end("part", "a")
		w.wantSnapshot(`family/p: finalizing ready bad=1 children=2 [submitted>queued started>in_progress satisfied>finalizing]
			part/a: dead done runs=1 [submitted>todo claimed>fetching failed_for_good>dead]
			part/b: done done runs=1 [submitted>todo claimed>fetching succeeded>done]
			family q: 0 waiting 1 ready 0 leased
			dead part/a failed_for_good payload= failure=`)
		w.end("family", "p")
		w.wantStates("family", "p=failed")
		w.noError(errOf(w.engine.Change(w.ctx, id("part/a"), job.Retried,
			func(j *job.Job, now time.Time) error {
				j.MaxAttempts = j.FailedAttempts + 3
				return nil
			})))
		w.wantSnapshot(`family/p: reopened waiting runs=1 open=1 children=2 [submitted>queued started>in_progress satisfied>finalizing claimed>finishing failed_for_good>failed retried>reopened]
			part/a: todo ready runs=1 [submitted>todo claimed>fetching failed_for_good>dead retried>todo]
			part/b: done done runs=1 [submitted>todo claimed>fetching succeeded>done]
			family q: 1 waiting 0 ready 0 leased
			part q: 0 waiting 1 ready 0 leased
			dead part/a failed_for_good payload= failure= replayed`)
		w.end("part")
		w.wantStates("family", "p=closing")
		w.end("family")
		w.wantSnapshot(`family/p: completed done runs=2 children=2 [submitted>queued started>in_progress satisfied>finalizing claimed>finishing failed_for_good>failed retried>reopened satisfied>closing claimed>closed_by succeeded>completed]
			part/a: done done runs=2 [submitted>todo claimed>fetching failed_for_good>dead retried>todo claimed>fetching succeeded>done]
			part/b: done done runs=1 [submitted>todo claimed>fetching succeeded>done]
			dead part/a failed_for_good payload= failure= replayed`)
	})
}

// A child that comes when its parent is done opens it again, where the machine holds that
// (G-FB-23).
func TestChildrenThatComeLate(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("family/p"), sub("locked/over"))
		w.end("family")
		w.end("locked")
		w.submit(sub("part/late", childOf("family/p")), sub("part/later", childOf("family/p")))
		w.wantStates("family", "p=reopened")
		w.wantKind(errOf(w.engine.Submit(w.ctx, engine.Unique,
			subs(sub("part/z", childOf("locked/over"))))), job.Conflict)
		w.end("part")
		w.wantStates("family", "p=closing")
		w.submit(sub("part/last", childOf("family/p")))
		w.wantStates("family", "p=reopened")
		w.end("part")
		w.end("family")
		if p := w.get("family/p"); p.Children != 3 || p.OpenDeps != 0 || p.State != "completed" {
			w.Errorf("the parent is %+v", p)
		}
	})
}

// FB-055: the first run of a child starts its parent, in the same transaction and once; runs that
// come later find it started.
func TestClaimedChildrenStartTheirParents(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("family/p"), sub("part/a", childOf("family/p")),
			sub("part/b", childOf("family/p")))
		w.submit(sub("family/q"), sub("part/c", childOf("family/q")))
		r := w.run("part/a")
		w.wantStates("family", "p=in_progress q=queued")
		w.noError(errOf(w.engine.Release(w.ctx, r)))
		w.claim("part", 3)
		w.wantStates("family", "p=in_progress q=in_progress")
		w.wantSnapshot(`family/p: in_progress waiting open=2 children=2 [submitted>queued started>in_progress]
			family/q: in_progress waiting open=1 children=1 [submitted>queued started>in_progress]
			part/a: fetching leased runs=2 until=30s [submitted>todo claimed>fetching released>todo claimed>fetching]
			part/b: fetching leased runs=1 until=30s [submitted>todo claimed>fetching]
			part/c: fetching leased runs=1 until=30s [submitted>todo claimed>fetching]
			family q: 2 waiting 0 ready 0 leased
			part q: 0 waiting 0 ready 3 leased`)
	})
}

// FB-057: a parent has the failure of the child that failed last.
func TestFailuresOfChildren(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("family/p"), sub("part/a", childOf("family/p")),
			sub("part/b", childOf("family/p")), sub("part/c", childOf("family/p")))
		said := func(want string) {
			w.Helper()
			if got := string(w.get("family/p").Failure); got != want {
				w.Errorf("the parent says %q, not %q", got, want)
			}
		}
		finish := func(key string, on job.Cause, failure string) {
			w.Helper()
			w.noError(errOf(w.engine.Finish(w.ctx, w.run(key),
				engine.Outcome{On: on, Failure: []byte(failure)})))
		}
		finish("part/a", job.Failed, "to be tried again")
		said("to be tried again")
		finish("part/b", job.FailedForGood, "the first")
		said("the first")
		w.noError(errOf(w.engine.Finish(w.ctx, w.run("part/c"),
			engine.Outcome{On: job.FailedForGood})))
		said("the first")
		w.clock.Advance(time.Minute)
		finish("part/a", job.FailedForGood, strings.Repeat("long ", 4000))
		said(strings.Repeat("long ", 4000))
	})
}

// FB-089: the oldest that are done go when all together are too large, with their children; what
// children account for counts with the parent.
func TestPrunedBySize(t *testing.T) {
	var pruned, worlds atomic.Int64
	jobTypes := testJobTypesWith("family", func(c *engine.JobType) {
		c.MaxBytes, c.OnPruned = 1000, func(n int) { pruned.Add(int64(n)) }
	})
	t.Cleanup(func() {
		if n := worlds.Load(); pruned.Load() != 2*n {
			t.Errorf("OnPruned was called for %d jobs in %d worlds", pruned.Load(), n)
		}
	})
	onEveryStore(t, jobTypes, func(w *world) {
		worlds.Add(1)
		size := func(n int64) func(*engine.Submission) {
			return func(s *engine.Submission) { s.Job.Size = n }
		}
		for _, key := range []string{"1", "2", "3", "4"} {
			p := "family/" + key
			w.submit(sub(p, size(100)), sub("part/a"+key, childOf(p), size(100)),
				sub("part/b"+key, childOf(p), size(100)))
			w.submit(sub("part/c"+key, childOf(p), size(50)))
			if got := w.get(p).Size; got != 350 {
				w.Errorf("the size of %s is %d", p, got)
			}
			w.end("part")
			w.end("family")
			w.clock.Advance(time.Second)
		}
		for {
			n, err := w.engine.Prune(w.ctx)
			w.noError(err)
			if n == 0 {
				break
			}
		}
		left := ""
		for _, jobType := range []string{"family", "part"} {
			all, err := w.engine.List(w.ctx, store.Filter{JobType: jobType})
			w.noError(err)
			left += fmt.Sprint(names(all))
		}
		if want := "[family/3 family/4][part/a3 part/b3 part/c3 part/a4 part/b4 part/c4]"; left != want {
			w.Errorf("left %s, not %s", left, want)
		}
	})
}

// A child that is replayed while its parent is being finished takes that run away; children that
// come later, three generations in one batch, none at all.
func TestFamilies(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("family/p"), sub("part/a", childOf("family/p")))
		w.submit(sub("part/b", childOf("family/p")))
		w.end("part", "a")
		r := w.run("family/p")
		w.noError(errOf(w.engine.Retry(w.ctx, id("part/a"), 0)))
		w.wantKind(errOf(w.engine.Finish(w.ctx, r, engine.Outcome{On: job.Succeeded})), job.RunLost)
		w.wantStates("family", "p=in_progress")
		w.end("part")
		w.end("family")
		w.wantStates("family", "p=completed")

		w.submit(sub("family/childless"), sub("part/z", childOf("family/c")),
			sub("family/c", childOf("family/b")), sub("family/b", childOf("family/a")),
			sub("part/y", childOf("family/b")), sub("family/a"))
		w.wantStates("family", "a=queued b=queued c=queued childless=finalizing p=completed")
		w.end("part", "z")
		w.end("family", "c")
		w.wantStates("family", "a=queued b=finalizing c=failed childless=completed p=completed")
		w.end("family")
		w.wantStates("family", "a=finalizing b=completed c=failed childless=completed p=completed")
		if a, b := w.get("family/a"), w.get("family/b"); a.FailedDeps != 0 || b.FailedDeps != 1 ||
			b.Parent != a.Seq {
			w.Errorf("a %+v, b %+v", a, b)
		}
	})
}

// C-08: a thousand children end on two nodes at the same time; the parent is finished once.
func TestManyChildrenSettleTogether(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		const n = 200
		other := w.node(testJobTypes())
		batch := subs(sub("family/p"))
		for i := range n {
			batch = append(batch, sub(fmt.Sprint("part/", i), childOf("family/p")))
		}
		w.submit(batch...)
		var wg sync.WaitGroup
		for i, j := range w.claim("part", n) {
			e := []*engine.Engine{w.engine, other}[i%2]
			on := job.Succeeded
			if i%3 == 0 {
				on = job.FailedForGood
			}
			wg.Go(func() {
				if _, err := e.Finish(w.ctx, engine.Run{Run: j.Run},
					engine.Outcome{On: on}); err != nil {
					w.Error(err)
				}
			})
		}
		wg.Wait()
		if p := w.get("family/p"); p.State != "finalizing" || p.OpenDeps != 0 ||
			p.FailedDeps != (n+2)/3 {
			w.Errorf("the parent is %+v", p)
		}
		w.checkInvariants()
	})
}

func TestChange(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		refuse := &job.Error{Kind: job.Invalid, Msg: "no"}
		w.submit(sub("graph/a"), sub("graph/b", after("graph/a")), sub("phased/a"),
			sub("phased/b", due(time.Hour)))
		w.wantKind(errOf(w.engine.Change(w.ctx, id("graph/none"), job.Replaced, nil)), job.NotFound)
		if _, err := w.engine.Change(w.ctx, id("graph/a"), job.Replaced,
			func(*job.Job, time.Time) error {
				return refuse
			}); err != refuse {
			w.Errorf("got %v", err)
		}
		// What an edit may change is kept, what it may not is not (G-TF-08).
		r := w.run("graph/a")
		for _, key := range []string{"graph/a", "graph/b"} {
			j, err := w.engine.Change(w.ctx, id(key), job.Replaced,
				func(j *job.Job, now time.Time) error {
					if string(j.Payload) != key || !now.Equal(w.clock.Now()) {
						w.Errorf("the edit sees %+v at %v", j, now)
					}
					j.Priority, j.MaxAttempts, j.Queue, j.Definition, j.Trace = 7, 9, "r",
						[]byte("new"), "t"
					j.ID.Key, j.Seq, j.State, j.Phase, j.Attempts, j.OpenDeps, j.Run = "x", 1,
						"blocked", job.Done, 99, 99, job.RunID{}
					return nil
				})
			w.noError(err)
			if got := w.get(key); got.Priority != 7 || got.MaxAttempts != 9 || got.Queue != "r" ||
				string(got.Definition) != "new" || got.Trace != "t" || name(j.ID) != key {
				w.Errorf("changed to %+v", got)
			}
		}
		w.noError(errOf(w.engine.Heartbeat(w.ctx, r, nil)))
		for _, key := range []string{"phased/a", "phased/b"} {
			w.noError(errOf(w.engine.Cancel(w.ctx, id(key))))
			w.wantKind(errOf(w.engine.Cancel(w.ctx, id(key))), job.Conflict)
		}
		w.wantSnapshot(`graph/a: running leased priority=7 runs=1 until=30s [submitted>pending satisfied>ready claimed>running]
			graph/b: pending waiting priority=7 open=1 [submitted>pending]
			phased/a: canceled done [submitted>created due>queued canceled>canceled]
			phased/b: canceled done due=1h0m0s [submitted>created canceled>canceled]
			graph r: 1 waiting 0 ready 1 leased`)
		w.submit(sub("phased/c"))
		r = w.run("phased/c") // C-15: the worker learns of it
		w.noError(errOf(w.engine.Cancel(w.ctx, id("phased/c"))))
		w.wantKind(errOf(w.engine.Heartbeat(w.ctx, r, nil)), job.RunLost)
	})
}
