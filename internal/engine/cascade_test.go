package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// TestRemoveWithDependents: RT-001: a job goes with all that depend on it, or nothing goes.
func TestRemoveWithDependents(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("graph/a"), sub("graph/other", due(time.Hour)), sub("graph/b", after("graph/a")),
			sub("graph/c", after("graph/a", "graph/b")),
			sub("graph/d", after("graph/c", "graph/other")))
		w.claim("graph", 1)
		w.wantKind(errOf(w.engine.RemoveWithDependents(w.ctx, id("graph/a"), 100)), job.Conflict)
		w.submit(sub("graph/x", due(time.Hour)), sub("graph/y", after("graph/x")),
			sub("graph/z", after("graph/y")))
		w.wantKind(errOf(w.engine.RemoveWithDependents(w.ctx, id("graph/x"), 2)), job.Conflict)
		w.noError(errOf(w.engine.RemoveWithDependents(w.ctx, id("graph/x"), 3)))
		w.wantKind(errOf(w.engine.RemoveWithDependents(w.ctx, id("graph/x"), 3)), job.NotFound)
		w.noError(errOf(w.engine.RemoveWithDependents(w.ctx, id("graph/other"), 2)))
		for text, stored := range map[string]bool{"graph/a": true, "graph/b": true, "graph/c": true,
			"graph/d": false, "graph/other": false, "graph/y": false, "graph/z": false} {
			if _, err := w.engine.Get(w.ctx, id(text)); (err == nil) != stored {
				w.Errorf("%s: %v", text, err)
			}
		}
		w.linked()
	})
}

// TestRemoveBesideSubmissions: RT-001: a submission that depends on a job which another node
// removes with its dependents is refused, or its jobs are removed too.
func TestRemoveBesideSubmissions(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		other := w.node(testJobTypes())
		for i := range rounds(100) {
			a, b, c := fmt.Sprint("graph/a", i), fmt.Sprint("graph/b", i), fmt.Sprint("graph/c", i)
			w.submit(sub(a, due(time.Hour)), sub(b, after(a)))
			removed, submitted := inParallel(
				func() error { return errOf(w.engine.RemoveWithDependents(w.ctx, id(a), 100)) },
				func() error {
					return errOf(other.Submit(w.ctx, engine.Unique, subs(sub(c, after(b)))))
				})
			w.noError(removed)
			if submitted != nil {
				w.wantKind(submitted, job.NotFound)
			}
			for _, text := range []string{a, b, c} {
				w.wantKind(errOf(w.engine.Get(w.ctx, id(text))), job.NotFound)
			}
		}
		w.linked()
	})
}
