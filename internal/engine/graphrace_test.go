package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// TF-040: of two changes on two nodes that close a cycle together one is accepted.
func TestRelinksThatCloseACircle(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		other := w.node(testJobTypes())
		for i := range rounds(100) {
			r, s, a, b, c, d := fmt.Sprint("graph/r", i), fmt.Sprint("graph/s", i),
				fmt.Sprint("graph/a", i), fmt.Sprint("graph/b", i), fmt.Sprint("graph/c", i),
				fmt.Sprint("graph/d", i)
			w.submit(sub(r, due(time.Hour)), sub(s, due(time.Hour)), sub(a, after(r)),
				sub(c, after(s)), sub(b, after(c)), sub(d, after(a)))
			// Each of the two looks at jobs the other does not touch.
			errA, errB := inParallel(
				func() error { return w.setDependencies(a, r, b) },
				func() error { return errOf(other.SetDependencies(w.ctx, id(c), ids(d), nil)) })
			if (errA == nil) == (errB == nil) {
				w.Fatalf("round %d: %v and %v", i, errA, errB)
			}
			for _, err := range []error{errA, errB} {
				if err != nil {
					w.wantKind(err, job.Cycle)
				}
			}
		}
		w.linked()
	})
}

// A change of dependencies while the old and the new ones finish, with success or without, never
// leaves a job waiting for one that is done.
func TestRelinkWhileDependenciesSettle(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		other := w.node(testJobTypes())
		for i := range rounds(100) {
			old, next, slow, b, c := fmt.Sprint("graph/o", i), fmt.Sprint("graph/n", i),
				fmt.Sprint("graph/s", i), fmt.Sprint("graph/b", i), fmt.Sprint("graph/c", i)
			w.submit(sub(old), sub(next), sub(slow, due(time.Hour)), sub(b, after(old)),
				sub(c, after(b)))
			deps := [][]string{{next}, {next, slow}, {}, {old, next}}[i%4]
			on := job.Succeeded
			if i%3 == 0 {
				on = job.FailedForGood
			}
			var requests []engine.FinishRequest
			for _, j := range w.claim("graph", 2) {
				requests = append(requests,
					engine.FinishRequest{Run: engine.Run{Run: j.Run},
						Outcome: engine.Outcome{On: on}})
			}
			errLink, errEnd := inParallel(
				func() error { return w.setDependencies(b, deps...) },
				func() error {
					for _, e := range requests {
						if _, err := other.Finish(w.ctx, e.Run, e.Outcome); err != nil {
							return err
						}
					}
					return nil
				})
			if w.noError(errEnd); errLink != nil {
				w.wantKind(errLink, job.Conflict) // it came after the end
			}
			w.waiting()
			for { // whatever became ready is out of the way of the next round
				jobs := w.claim("graph", 10)
				if len(jobs) == 0 {
					break
				}
				for _, j := range jobs {
					w.finish(engine.Run{Run: j.Run}, job.Succeeded)
				}
			}
		}
		w.linked()
	})
}

// TF-083: a job is removed, or another depends on it, never both.
func TestRemoveWhileOthersBeginToDepend(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		other := w.node(testJobTypes())
		for i := range rounds(100) {
			a, b, c := fmt.Sprint("graph/a", i), fmt.Sprint("graph/b", i), fmt.Sprint("graph/c", i)
			w.submit(sub(a, due(time.Hour)), sub(c+"root", due(time.Hour)), sub(c, after(c+"root")))
			begin := func() error {
				return errOf(other.Submit(w.ctx, engine.Unique, subs(sub(b, after(a)))))
			}
			if i%2 == 0 {
				begin = func() error {
					return errOf(other.SetDependencies(w.ctx, id(c), ids(a), nil))
				}
			}
			errRemove, errBegin := inParallel(func() error { return w.engine.Remove(w.ctx, id(a)) },
				begin)
			if (errRemove == nil) == (errBegin == nil) {
				w.Fatalf("round %d: %v and %v", i, errRemove, errBegin)
			}
			if errRemove != nil {
				w.wantKind(errRemove, job.Conflict)
			} else {
				w.wantKind(errBegin, job.NotFound)
			}
		}
		w.linked()
	})
}

// TF-050: both sides of a diamond finish at the same time, a hundred times; its end is released
// once each time.
func TestDiamondIsReleasedOnce(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		other := w.node(testJobTypes())
		for i := range rounds(100) {
			root, l, r, end := fmt.Sprint("graph/a", i), fmt.Sprint("graph/l", i),
				fmt.Sprint("graph/r", i), fmt.Sprint("graph/z", i)
			w.submit(sub(root), sub(l, after(root)), sub(r, after(root)), sub(end, after(l, r)))
			w.finish(w.run(root), job.Succeeded)
			sides := w.claim("graph", 2)
			errL, errR := inParallel(
				func() error {
					return errOf(w.engine.Finish(w.ctx, engine.Run{Run: sides[0].Run},
						engine.Outcome{On: job.Succeeded}))
				},
				func() error {
					return errOf(other.Finish(w.ctx, engine.Run{Run: sides[1].Run},
						engine.Outcome{On: job.Succeeded}))
				})
			w.noError(errL)
			w.noError(errR)
			w.finish(w.run(end), job.Succeeded)
			events, err := w.engine.History(w.ctx, id(end))
			if w.noError(err); history(
				events) != " [submitted>pending satisfied>ready claimed>running "+
				"succeeded>completed]" {
				w.Fatalf("round %d: %s", i, history(events))
			}
		}
		w.linked()
	})
}

// G-TF-11: a dependent that is created while its dependency ends, two hundred times, gets the state
// that follows from that end.
func TestDependentCreatedWhileItsDependencyEnds(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		other := w.node(testJobTypes())
		for i := range rounds(200) {
			a, b := fmt.Sprint("graph/a", i), fmt.Sprint("graph/b", i)
			w.submit(sub(a))
			run, on, want := w.run(a), job.Succeeded, "ready"
			if i%2 == 1 {
				on, want = job.FailedForGood, "blocked"
			}
			errEnd, errCreate := inParallel(
				func() error { return errOf(w.engine.Finish(w.ctx, run, engine.Outcome{On: on})) },
				func() error {
					return errOf(other.Submit(w.ctx, engine.Unique, subs(sub(b, after(a)))))
				})
			w.noError(errEnd)
			w.noError(errCreate)
			if got := w.get(b); string(got.State) != want {
				w.Fatalf("round %d: %s is %s after %s", i, b, got.State, on)
			}
			if want == "ready" {
				w.finish(w.run(b), job.Succeeded)
			}
		}
		w.linked()
	})
}
