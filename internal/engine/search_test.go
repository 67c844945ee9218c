package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// TF-087 ff.: the jobs of a job type that lists them are found as they are now.
func TestSearch(t *testing.T) {
	onEveryStore(t, testJobTypesWith("graph", func(c *engine.JobType) {
		c.Searchable = true
	}), func(w *world) {
		for i := range 4 { // one after the other, as they are created
			w.submit(sub(fmt.Sprint("graph/", i), priority(5+i), in([]string{"q", "r"}[i%2])))
			w.clock.Advance(time.Second)
		}
		w.submit(sub("graph/n", in("r"))) // without a priority
		w.clock.Advance(time.Second)
		w.submit(sub("graph/b", priority(1), after("graph/0")),
			sub("graph/a", priority(1), after("graph/0")), sub("part/x"))
		w.finish(engine.Run{Run: w.claim("graph", 1, "r")[0].Run}, job.Succeeded)
		for _, c := range []struct {
			s    store.Search
			want []string
		}{
			{store.Search{}, []string{"a", "b", "n", "3", "2", "1", "0"}},
			{store.Search{State: "completed"}, []string{"3"}},
			{store.Search{State: "ready", PriorityMax: 6}, []string{"1", "0"}},
			{store.Search{State: "ready"}, []string{"n", "2", "1", "0"}},
			{store.Search{Queue: "q", State: "pending"}, []string{"a", "b"}},
			{store.Search{Queue: "q", Limit: 2, AfterTime: w.clock.Now(), AfterKey: "a"},
				[]string{"b", "2"}},
			{store.Search{State: "nonsense"}, nil},
		} {
			c.s.JobType, c.s.Limit = "graph", max(c.s.Limit, 1)
			if c.s.Limit == 1 {
				c.s.Limit = 100
			}
			jobs, err := w.engine.Search(w.ctx, c.s)
			w.noError(err)
			var got []string
			for _, j := range jobs {
				got = append(got, j.ID.Key)
				if string(j.Payload) != name(j.ID) {
					w.Errorf("the payload of %s is %q", name(j.ID), j.Payload)
				}
			}
			if !slices.Equal(got, c.want) {
				w.Errorf("%+v: got %v, want %v", c.s, got, c.want)
			}
		}
		w.wantKind(errOf(w.engine.Search(w.ctx, store.Search{JobType: "part", Limit: 1})),
			job.Invalid)
		w.wantKind(errOf(w.engine.Search(w.ctx, store.Search{JobType: "none", Limit: 1})),
			job.NotFound)
	})
}

// What a search could not find is not stored.
func TestListedPriorities(t *testing.T) {
	onEveryStore(t, testJobTypesWith("graph", func(c *engine.JobType) {
		c.Searchable = true
	}), func(w *world) {
		for _, p := range []int{-1, 11} {
			w.wantKind(errOf(w.engine.Submit(w.ctx, engine.Unique,
				subs(sub("graph/a", priority(p))))), job.Invalid)
		}
		w.submit(sub("graph/n", priority(job.NoPriority)))
		w.submit(sub("graph/a", priority(10)), sub("part/a", priority(99)))
		edit := func(j *job.Job, _ time.Time) error { j.Priority = 11; return nil }
		w.wantKind(errOf(w.engine.Change(w.ctx, id("graph/a"), job.Replaced, edit)), job.Invalid)
		w.wantKind(errOf(w.engine.SetDependencies(w.ctx, id("graph/a"), nil, edit)), job.Invalid)
	})
}
