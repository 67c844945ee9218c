package storetest

import (
	"fmt"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// listFilters proves that List returns the jobs that match all members of a Filter, by Seq,
// and that an empty member selects all. The states are chosen to find a store that compares
// with LIKE, ignores case or splits a list at commas, and one name would end a statement
// that was put together from texts.
func listFilters(w *world) {
	mk := func(key, contract, queue, owner string, state job.State, phase job.Phase,
		parent int64) *job.Job {
		return newJob(key, in(contract, queue), func(j *job.Job) {
			j.Owner, j.State, j.Phase, j.Parent = owner, state, phase, parent
		})
	}
	w.insert(
		mk("1", "x", "q1", "me", "A_B", job.Waiting, 0),
		mk("2", "x", "q2", "me", "AxB", job.Ready, 7),
		mk("3", "y", "q1", "you", "a_b", job.Leased, 7),
		mk("4", "y", "q2", "you", "A,B", job.Done, 8),
		mk("5", "x", "q1", "you", "%", job.Done, 0), mk("6", "x", "q1", "", "", job.Ready, 0))
	for _, tt := range []struct {
		f    store.Filter
		want []string
	}{
		{store.Filter{}, []string{"1", "2", "3", "4", "5", "6"}},
		{store.Filter{Contract: "x"}, []string{"1", "2", "5", "6"}},
		{store.Filter{Contract: "x", Queue: "q1"}, []string{"1", "5", "6"}},
		{store.Filter{Owner: "you"}, []string{"3", "4", "5"}},
		{store.Filter{Parent: 7}, []string{"2", "3"}},
		{store.Filter{Parent: 7, States: []job.State{"a_b", "none"}}, []string{"3"}},
		// "_" and "%" are wildcards of LIKE, which would find more than these.
		{store.Filter{States: []job.State{"A_B"}}, []string{"1"}},
		{store.Filter{States: []job.State{"%"}}, []string{"5"}},
		{store.Filter{States: []job.State{"A,B", "a_b"}}, []string{"3", "4"}},
		{store.Filter{States: []job.State{"A"}}, []string{}},
		{store.Filter{Phases: []job.Phase{job.Ready, job.Done}}, []string{"2", "4", "5", "6"}},
		{store.Filter{Phases: []job.Phase{job.Waiting}}, []string{"1"}},
		{store.Filter{Contract: "x", Owner: "me", States: []job.State{"AxB"},
			Phases: []job.Phase{job.Ready}}, []string{"2"}},
		{store.Filter{Contract: "' OR 1=1 --"}, []string{}},
	} {
		tt.f.Limit = 10
		got := read(w, func(r store.Reader) ([]*job.Job, error) { return r.List(tt.f) })
		equal(w, fmt.Sprintf("%+v", tt.f), keys(got), tt.want)
	}
}

// listPages proves that After and Limit walk all jobs by Seq: the pages together hold each
// of 25 jobs once and in order, and the page after the last one is empty.
func listPages(w *world) {
	var want, got []string
	for i := range 25 {
		j := newJob(fmt.Sprint(i))
		w.insert(j)
		want = append(want, j.ID.Key)
	}
	for after := int64(0); ; {
		page := read(w, func(r store.Reader) ([]*job.Job, error) {
			return r.List(store.Filter{After: after, Limit: 10})
		})
		if len(page) == 0 {
			break
		}
		got, after = append(got, keys(page)...), page[len(page)-1].Seq
	}
	equal(w, "pages", got, want)
}

// listOwned proves what NewestFirst promises: the jobs of one owner and contract by Seq
// descending, below Before, within Limit and in the given states. Jobs of another owner, of
// the same owner in another contract and without an owner are not among them, and an empty
// owner selects none. WithoutBodies does the same without bodies, and in the other direction too.
// CountUpTo counts these jobs, as many as it is asked for.
func listOwned(w *world) {
	var all []*job.Job
	for i := range 6 {
		all = append(all, newJob(fmt.Sprint(i), func(j *job.Job) {
			j.Owner, j.Payload = []string{"one", "two"}[i%2], []byte("payload")
			j.State = job.State([]string{"queued", "queued", "done"}[i%3])
		}))
	}
	w.insert(all...)
	w.insert(newJob("other", in("other", "q"), func(j *job.Job) {
		j.Owner = "one"
	}), newJob("nobody's", func(j *job.Job) { j.Owner = "" }))
	list := func(f store.Filter) []string {
		f.NewestFirst = true
		return keys(read(w, func(r store.Reader) ([]*job.Job, error) { return r.List(f) }))
	}
	equal(w, "all", list(store.Filter{Contract: "relay", Owner: "one"}), []string{"4", "2", "0"})
	equal(w, "two", list(store.Filter{Contract: "relay", Owner: "one", Limit: 2}),
		[]string{"4", "2"})
	equal(w, "before", list(store.Filter{Contract: "relay", Owner: "one", Before: all[4].Seq}),
		[]string{"2", "0"})
	equal(w, "in a state", list(store.Filter{Contract: "relay", Owner: "one",
		States: []job.State{"done", "lost"}}), []string{"2"})
	equal(w, "of nobody", list(store.Filter{Contract: "relay"}), []string{})
	for owner, want := range map[string]int{"one": 3, "One": 0, "": 0} {
		for _, most := range []int{2, 3, 10} {
			got := read(w, func(r store.Reader) (int, error) {
				return r.CountUpTo(store.CountSelector{Contract: "relay", Owner: owner}, most)
			})
			equal(w, fmt.Sprintf("the first %d of %q", most, owner), got, min(want, most))
		}
	}
	for newest, want := range map[bool][]string{true: {"2", "0"}, false: {"2", "4"}} {
		f := store.Filter{Contract: "relay", Owner: "one", WithoutBodies: true, Limit: 2,
			NewestFirst: newest, Before: all[4].Seq, After: all[0].Seq}
		bare := read(w, func(r store.Reader) ([]*job.Job, error) { return r.List(f) })
		equal(w, "without bodies", keys(bare), want)
		if bare[0].Payload != nil {
			w.Errorf("it has bodies: %+v", bare[0])
		}
		f.States = []job.State{"lost"}
		equal(w, "without bodies, in no state", keys(read(w,
			func(r store.Reader) ([]*job.Job, error) { return r.List(f) })), []string{})
	}
}
