package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// AD-050: the groups of open dead letters are counted now, whatever has come or was closed since
// a node has read them last. It remembers those that are a minute old.
func TestDeadLetterGroups(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		deadLetters := map[string]int64{} // the IDs by the keys of their jobs
		fail := func(key, kind string) {
			w.Helper()
			w.submit(sub("graph/" + key))
			w.noError(errOf(w.engine.Finish(w.ctx, w.run("graph/"+key), engine.Outcome{
				On: job.FailedForGood, Failure: fmt.Appendf(nil, `{"type":"%s"}`, kind)})))
			all, err := w.deadLettersOf("graph", 0)
			w.noError(err)
			deadLetters[key] = all[len(all)-1].ID
		}
		discard := func(key string) {
			w.Helper()
			w.noError(w.engine.DiscardDeadLetter(w.ctx, "graph", deadLetters[key],
				func(engine.RecordWriter, *job.DeadLetter) error { return nil }))
		}
		want := func(cached int64, groups ...string) {
			w.Helper()
			of, at, err := w.engine.DeadLetterGroups(w.ctx, []string{"graph", "brief"}, 100)
			w.noError(err)
			if len(of) != 2 || len(of[1].Groups) > 0 || of[0].More || !at.Equal(w.clock.Now()) {
				w.Fatalf("got %+v at %s", of, at)
			}
			var got []string
			for _, g := range of[0].Groups {
				newest, err := w.engine.DeadLettersByID(w.ctx, g.LastID)
				w.noError(err)
				kind, _ := newest[0].Failure()
				got = append(got, fmt.Sprint(kind, " ", g.Count, " ", g.LastAt.Sub(g.FirstAt)))
			}
			slices.Sort(got)
			if !slices.Equal(got, groups) {
				w.Errorf("the groups are %q, want %q", got, groups)
			}
			if n := w.engine.CachedDeadLetters("graph"); n != cached {
				w.Errorf("%d dead letters are remembered, want %d", n, cached)
			}
		}
		fail("1", "a")
		fail("2", "b")
		want(0, "a 1 0s", "b 1 0s")
		w.clock.Advance(2 * time.Minute)
		want(2, "a 1 0s", "b 1 0s")
		fail("3", "a")
		want(2, "a 2 2m0s", "b 1 0s")
		discard("3") // which was not remembered
		want(2, "a 1 0s", "b 1 0s")
		discard("2")
		want(1, "a 1 0s")
		fail("4", "c") // as many are open as before
		discard("1")
		want(0, "c 1 0s")
		w.clock.Advance(2 * time.Minute)
		want(1, "c 1 0s")
		fail("5", "c")
		w.clock.Advance(2 * time.Minute)
		want(1, "c 2 2m0s")
		w.reopen()
		want(2, "c 2 2m0s")
	})
}

// What a limit leaves out is told, and a dead letter that was not read is no reason to read the
// others again.
func TestDeadLetterGroupsOfMany(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		for i := range 5 {
			key := fmt.Sprintf("graph/%d", i)
			w.submit(sub(key))
			w.noError(errOf(w.engine.Finish(w.ctx, w.run(key),
				engine.Outcome{On: job.FailedForGood})))
			w.clock.Advance(2 * time.Minute)
		}
		for range 2 {
			of, _, err := w.engine.DeadLetterGroups(w.ctx, []string{"graph"}, 3)
			if err != nil || len(of[0].Groups) != 1 || of[0].Groups[0].Count != 3 || !of[0].More {
				w.Errorf("got %+v, %v", of, err)
			}
			if n := w.engine.CachedDeadLetters("graph"); n != 5 {
				w.Errorf("%d dead letters are open of those that are remembered, want 5", n)
			}
		}
	})
}
