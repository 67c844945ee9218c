package engine_test

import (
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
)

func ids(texts ...string) (all []job.ID) {
	for _, t := range texts {
		all = append(all, id(t))
	}
	return all
}

func (w *world) setDependencies(text string, deps ...string) error {
	return errOf(w.engine.SetDependencies(w.ctx, id(text), ids(deps...), nil))
}

// linked checks that every edge has both its ends, and that every job that waits waits for exactly
// those of its dependencies that are open.
func (w *world) linked() {
	w.Helper()
	w.waiting()
	w.checkInvariants()
}

func (w *world) waiting() {
	w.Helper()
	w.noError(w.store.View(w.ctx, func(r store.Reader) error {
		page, err := r.List(store.Filter{JobType: "graph"})
		if err != nil {
			return err
		}
		jobs := page.Jobs
		by, seqs := map[int64]*job.Job{}, []int64{}
		for _, j := range jobs {
			by[j.Seq] = j
			seqs = append(seqs, j.Seq)
		}
		edges, err := r.Edges(store.EdgeSelector{From: seqs})
		if err != nil {
			return err
		}
		open := map[int64]int{}
		for _, e := range edges {
			d := by[e.Dependency]
			if d == nil {
				return fmt.Errorf("%s depends on what is gone", name(by[e.Dependent].ID))
			}
			if d.Phase != job.Done {
				open[e.Dependent]++
			}
			if from := by[e.Dependent]; from.State == "pending" && d.Phase == job.Done &&
				d.State != "completed" {
				return fmt.Errorf("%s waits although %s is %s", name(from.ID), name(d.ID), d.State)
			}
		}
		for _, j := range jobs {
			if j.State == "pending" && (j.OpenDeps != open[j.Seq] || j.OpenDeps == 0) {
				return fmt.Errorf("%s waits for %d, of its dependencies %d are open", name(j.ID),
					j.OpenDeps, open[j.Seq])
			}
		}
		return nil
	}))
}

// dependsOn checks what a job lists.
func (w *world) dependsOn(text string, want ...string) {
	w.Helper()
	all, err := w.engine.Dependencies(w.ctx, ids(text))
	w.noError(err)
	if got := all[id(text)]; !slices.Equal(got, ids(want...)) {
		w.Fatalf("%s depends on %v, want %v", text, got, want)
	}
}

// TF-080, G-TF-09: a job that waits gets the state that follows from its new dependencies.
func TestRelinkEvaluates(t *testing.T) {
	for what, c := range map[string]struct {
		id     string
		deps   []string
		states string // of what changes; the rest stays
		err    job.Kind
	}{
		"to none":            {"p", nil, "p=ready pp=pending", 0},
		"to what ended well": {"p", []string{"good"}, "p=ready pp=pending", 0},
		"to what ended ill":  {"p", []string{"bad"}, "p=blocked pp=blocked", 0},
		"to what is blocked, and open": {"p", []string{"blocked", "slow", "good"},
			"p=blocked pp=blocked", 0},
		"to something else that waits": {"p", []string{"slow", "good", "slow"},
			"p=pending pp=pending", 0},
		"ready, to none":            {"ready", nil, "p=pending pp=pending", 0},
		"ready, to what ended well": {"ready", []string{"good"}, "p=pending pp=pending", 0},
		"ready, to what is open": {"ready", []string{"good", "slow"}, "p=pending pp=pending",
			job.Conflict},
		"ready, to what ended ill": {"ready", []string{"bad"}, "p=pending pp=pending",
			job.Conflict},
		"running, to what ended well": {"run", []string{"good"}, "p=pending pp=pending", 0},
		"running, to what is open": {"run", []string{"slow"}, "p=pending pp=pending",
			job.Conflict},
		"over":      {"good", nil, "p=pending pp=pending", job.Conflict},
		"to itself": {"p", []string{"p"}, "p=pending pp=pending", job.Cycle},
		"to what waits for it": {"p", []string{"good", "pp"}, "p=pending pp=pending",
			job.Cycle},
		"to what is not there": {"p", []string{"good", "none"}, "p=pending pp=pending",
			job.NotFound},
		"of what is not there":          {"none", nil, "p=pending pp=pending", job.NotFound},
		"running, to what waits for it": {"run", []string{"p"}, "p=pending pp=pending", job.Cycle},
	} {
		t.Run("TF-080 "+what, func(t *testing.T) {
			onEveryStore(t, testJobTypes(), func(w *world) {
				w.submit(sub("graph/good"), sub("graph/bad"))
				w.end("graph", "bad")
				w.submit(sub("graph/run"), sub("graph/ready", due(time.Hour)),
					sub("graph/slow", due(time.Hour)), sub("graph/blocked", after("graph/bad")),
					sub("graph/p", after("graph/run", "graph/good")),
					sub("graph/pp", after("graph/p")))
				run := w.run("graph/run")
				before, _ := w.engine.Get(w.ctx, id("graph/"+c.id))
				was := w.snapshot()
				var deps []string
				for _, d := range c.deps {
					deps = append(deps, "graph/"+d)
				}
				w.clock.Advance(time.Second)
				if err := w.setDependencies("graph/"+c.id, deps...); c.err != 0 {
					w.wantKind(err, c.err)
					w.clock.Advance(-time.Second)
					w.wantSnapshot(was)
				} else {
					w.noError(err)
					w.dependsOn("graph/"+c.id, sorted(unique(deps))...)
					// TF-079
					if at := w.get("graph/" + c.id).UpdatedAt; at.Before(w.clock.Now()) ||
						before.CreatedAt != w.get("graph/"+c.id).CreatedAt {
						w.Errorf("updated at %v", at)
					}
				}
				w.wantStates("graph", "bad=failed blocked=blocked good=completed "+c.states+
					" ready=ready run=running slow=ready")
				w.linked()
				w.noError(errOf(w.engine.Finish(w.ctx, run, engine.Outcome{On: job.Succeeded})))
				w.linked()
			})
		})
	}
}

func unique(texts []string) []string { return slices.Compact(sorted(slices.Clone(texts))) }

// TF-033, TF-037, G-TF-33: the path of the dependency cycle that is refused.
func TestRelinkCircles(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("graph/root"), sub("graph/a", after("graph/root")),
			sub("graph/b", after("graph/a")), sub("graph/c", after("graph/b", "graph/root")),
			sub("graph/d", after("graph/b", "graph/c")))
		was := w.snapshot()
		for _, c := range []struct {
			id, dep string
			path    string
		}{{"a", "a", "a"}, {"a", "b", "a b"}, {"a", "c", "a c b"}, {"root", "c", "root c"},
			{"b", "d", "b d"}} {
			err := w.setDependencies("graph/"+c.id, "graph/root", "graph/"+c.dep)
			if c.id == "root" {
				err = w.setDependencies("graph/root", "graph/"+c.dep)
			}
			var e *job.Error
			if !errors.As(err, &e) || e.Kind != job.Cycle || len(e.Path) < 1 || e.Path[0] != c.id ||
				(c.id != "root" && strings.Join(e.Path, " ") != c.path) {
				w.Errorf("%s on %s: %v %+v, want the path %s", c.id, c.dep, err, e, c.path)
			}
		}
		var unknown *job.Error
		if err := w.setDependencies("graph/b", "graph/a", "graph/nobody"); !errors.As(err, &unknown) ||
			unknown.ID != id("graph/nobody") {
			w.Errorf("unknown: %v", err)
		}
		w.wantKind(w.setDependencies("graph/b", "family/x"), job.Invalid)
		w.wantKind(w.setDependencies("part/b"), job.Invalid)
		w.wantSnapshot(was)
		w.noError(w.setDependencies("graph/d", "graph/a", "graph/root")) // two ways to root are no cycle: TF-038
		w.noError(w.setDependencies("graph/c", "graph/d"))               // the other way round now
		w.dependsOn("graph/c", "graph/d")
		w.linked()
	})
}

// TF-041: a chain of thousands of jobs is searched for cycles in one call.
func TestRelinkDeepChain(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		const n = 5000
		batch := subs(sub("graph/0"))
		for i := 1; i < n; i++ {
			batch = append(batch, sub(fmt.Sprint("graph/", i), after(fmt.Sprint("graph/", i-1))))
		}
		w.submit(batch...)
		err := w.setDependencies("graph/0", fmt.Sprint("graph/", n-1))
		w.wantKind(err, job.Cycle)
		if path := err.(*job.Error).Path; len(path) != n || path[0] != "0" ||
			path[1] != fmt.Sprint(n-1) || path[n-1] != "1" {
			w.Errorf("a path of %d from %s over %s", len(path), path[0], path[1])
		}
		w.noError(w.setDependencies(fmt.Sprint("graph/", n-1), fmt.Sprint("graph/", n-3)))
	})
}

// The edit comes first, with the rules of Change, and may refuse.
func TestRelinkEdits(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("graph/a"), sub("graph/b", after("graph/a")))
		refuse := errors.New("no")
		_, err := w.engine.SetDependencies(w.ctx, id("graph/b"), ids("graph/none"),
			func(*job.Job, time.Time) error {
				return refuse
			})
		if !errors.Is(err, refuse) {
			w.Errorf("got %v", err)
		}
		j, err := w.engine.SetDependencies(w.ctx, id("graph/b"), nil,
			func(j *job.Job, now time.Time) error {
				if string(j.Payload) != "graph/b" || j.State != "pending" {
					w.Errorf("the edit sees %+v", j)
				}
				j.Priority, j.Queue, j.Definition, j.OpenDeps = 7, "r", []byte("new"), 99
				return nil
			})
		w.noError(err)
		if got := w.get("graph/b"); j.State != "ready" || got.Queue != "r" || got.Priority != 7 ||
			string(got.Definition) != "new" || got.OpenDeps != 0 {
			w.Errorf("changed to %+v", got)
		}
		if jobs := w.claim("graph", 9, "r"); len(jobs) != 1 {
			w.Errorf("claimed %v", names(jobs))
		}
		w.wantSnapshot(`graph/a: ready ready [submitted>pending satisfied>ready]
			graph/b: running leased priority=7 runs=1 until=30s [submitted>pending satisfied>ready claimed>running]
			graph q: 0 waiting 1 ready 0 leased
			graph r: 0 waiting 0 ready 1 leased`)
	})
}

// TestGraph reads the jobs that are connected by dependencies.
func TestGraph(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("graph/a"), sub("graph/b", after("graph/a")), sub("graph/c", after("graph/a")),
			sub("graph/d", after("graph/b", "graph/c")),
			sub("graph/other"), sub("graph/side", after("graph/other")))
		picture := func(from string, limit int) string {
			jobs, edges, truncated, err := w.engine.Graph(w.ctx, id("graph/"+from), limit)
			w.noError(err)
			key := map[int64]string{}
			text := ""
			for _, j := range jobs {
				key[j.Seq] = j.ID.Key
				text += j.ID.Key
			}
			for _, e := range edges {
				text += " " + key[e.Dependent] + ">" + key[e.Dependency]
			}
			return fmt.Sprint(text, " ", truncated)
		}
		for _, c := range []struct {
			from  string
			limit int
			want  string
		}{
			{"a", 100, "abcd b>a c>a d>b d>c false"}, {"d", 4, "dbca d>b d>c b>a c>a false"},
			{"b", 3, "bad b>a d>b true"},
			{"a", 1, "a true"}, {"side", 2, "sideother side>other false"},
		} {
			if got := picture(c.from, c.limit); got != c.want {
				w.Errorf("around %s up to %d: %s, want %s", c.from, c.limit, got, c.want)
			}
		}
		_, _, _, err := w.engine.Graph(w.ctx, id("graph/none"), 9)
		w.wantKind(err, job.NotFound)
		all, err := w.engine.Dependencies(w.ctx, ids("graph/a", "graph/d", "graph/none", "graph/c"))
		w.noError(err)
		if len(all) != 2 || !slices.Equal(all[id("graph/d")], ids("graph/b", "graph/c")) {
			w.Errorf("dependencies: %v", all)
		}
	})
}

// inParallel runs two calls at the same time.
func inParallel(a, b func() error) (errA, errB error) {
	var wg sync.WaitGroup
	wg.Go(func() { errA = a() })
	wg.Go(func() { errB = b() })
	wg.Wait()
	return errA, errB
}

// rounds is how often a race is run: fewer where everything is slow.
func rounds(n int) int {
	if slow {
		return n / 10
	}
	return n
}
