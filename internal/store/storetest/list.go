package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// listFilters proves that List returns the jobs that match all members of a Filter, by Seq, and
// that an empty member selects all. The states are chosen to find a store that compares with LIKE,
// ignores case or splits a list at commas, and one name would end a statement that was put together
// from texts.
func listFilters(w *world) {
	mk := func(key, jobType, queue, owner string, state job.State, phase job.Phase,
		parent int64) *job.Job {
		return newJob(key, in(jobType, queue), func(j *job.Job) {
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
		{store.Filter{JobType: "x"}, []string{"1", "2", "5", "6"}},
		{store.Filter{JobType: "x", Queue: "q1"}, []string{"1", "5", "6"}},
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
		{store.Filter{JobType: "x", Owner: "me", States: []job.State{"AxB"},
			Phases: []job.Phase{job.Ready}}, []string{"2"}},
		{store.Filter{JobType: "' OR 1=1 --"}, []string{}},
	} {
		tt.f.Limit = 10
		got := read(w, func(r store.Reader) ([]*job.Job, error) { return Listed(r, tt.f) })
		equal(w, fmt.Sprintf("%+v", tt.f), keys(got), tt.want)
	}
}

// listPages proves that After and Limit walk all jobs by Seq: the pages together hold each of 25
// jobs once and in order, and the page after the last one is empty.
func listPages(w *world) {
	var want, got []string
	for i := range 25 {
		j := newJob(fmt.Sprint(i))
		w.insert(j)
		want = append(want, j.ID.Key)
	}
	for after := int64(0); ; {
		page := read(w, func(r store.Reader) ([]*job.Job, error) {
			return Listed(r, store.Filter{After: after, Limit: 10})
		})
		if len(page) == 0 {
			break
		}
		got, after = append(got, keys(page)...), page[len(page)-1].Seq
	}
	equal(w, "pages", got, want)
}

// listOwned proves what NewestFirst promises: the jobs of one owner and job type by Seq descending,
// below Before, within Limit and in the given states. Jobs of another owner, of the same owner in
// another job type and without an owner are not among them. WithoutBodies does the same without
// bodies, and in the other direction too. CountUpTo counts these jobs, as many as it is asked for.
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
		return keys(read(w, func(r store.Reader) ([]*job.Job, error) { return Listed(r, f) }))
	}
	equal(w, "all", list(store.Filter{JobType: "relay", Owner: "one"}), []string{"4", "2", "0"})
	equal(w, "two", list(store.Filter{JobType: "relay", Owner: "one", Limit: 2}),
		[]string{"4", "2"})
	equal(w, "before", list(store.Filter{JobType: "relay", Owner: "one", Before: all[4].Seq}),
		[]string{"2", "0"})
	equal(w, "in a state", list(store.Filter{JobType: "relay", Owner: "one",
		States: []job.State{"done", "lost"}}), []string{"2"})
	for _, limit := range []int{2, 3, 10} {
		got := w.groups(store.CountSelector{JobType: "relay", Owners: []string{"two", "one", "One",
			""}}, limit)
		equal(w, fmt.Sprintf("the first %d of each", limit), got, []store.JobGroup{{},
			{Value: "One"}, {Value: "one", Jobs: min(3, limit)}, {Value: "two", Jobs: min(3, limit)}})
	}
	for newest, want := range map[bool][]string{true: {"2", "0"}, false: {"2", "4"}} {
		f := store.Filter{JobType: "relay", Owner: "one", WithoutBodies: true, Limit: 2,
			NewestFirst: newest}
		if newest {
			f.Before = all[4].Seq
		} else {
			f.After = all[0].Seq
		}
		bare := read(w, func(r store.Reader) ([]*job.Job, error) { return Listed(r, f) })
		equal(w, "without bodies", keys(bare), want)
		if bare[0].Payload != nil {
			w.Errorf("it has bodies: %+v", bare[0])
		}
		f.States = []job.State{"lost"}
		equal(w, "without bodies, in no state", keys(read(w,
			func(r store.Reader) ([]*job.Job, error) { return Listed(r, f) })), []string{})
	}
}

// listMembers proves that the further members of a Filter combine with and, in both directions and
// with and without bodies, that lower bounds of times are inclusive and upper ones exclusive, and
// that what cannot be stored is Invalid.
func listMembers(w *world) {
	minute := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
	var all []*job.Job
	for i := range 6 {
		all = append(all, newJob(fmt.Sprint(i), func(j *job.Job) {
			j.Kind, j.Worker = []string{"a", "b"}[i%2], []string{"w", "v", ""}[i%3]
			j.Attempts, j.CreatedAt, j.Payload = i, minute(i), []byte("payload")
			j.State, j.Phase, j.Queue = "s", job.Phase(i%4), fmt.Sprint("q", i%2)
			if j.Phase == job.Done {
				j.FinishedAt = minute(10 * i)
			}
		}))
	}
	all[5].Phase, all[5].FinishedAt = job.Done, minute(50)
	w.insert(all...)
	for _, tt := range []struct {
		f    store.Filter
		want []string
	}{
		{store.Filter{Kind: "a"}, []string{"0", "2", "4"}},
		{store.Filter{Kind: "a", Worker: "w"}, []string{"0"}},
		{store.Filter{Worker: "v", MinAttempts: 2}, []string{"4"}},
		{store.Filter{MinAttempts: 4}, []string{"4", "5"}},
		{store.Filter{CreatedFrom: minute(2), CreatedBefore: minute(4)}, []string{"2", "3"}},
		{store.Filter{CreatedFrom: minute(2).Add(1), CreatedBefore: minute(4).Add(1)},
			[]string{"3", "4"}},
		{store.Filter{FinishedFrom: minute(30)}, []string{"3", "5"}},
		{store.Filter{FinishedFrom: minute(30), FinishedBefore: minute(50)}, []string{"3"}},
		{store.Filter{FinishedBefore: minute(50), Kind: "a"}, []string{}},
		{store.Filter{Phases: []job.Phase{job.Done}, Queue: "q1", Kind: "b"}, []string{"3", "5"}},
		{store.Filter{After: all[1].Seq, Before: all[4].Seq}, []string{"2", "3"}},
		{store.Filter{Kind: "%"}, []string{}}, {store.Filter{Worker: "_"}, []string{}},
	} {
		for i := range 4 {
			f, want := tt.f, slices.Clone(tt.want)
			if f.NewestFirst, f.WithoutBodies = i%2 == 1, i/2 == 1; f.NewestFirst {
				slices.Reverse(want)
			}
			got := read(w, func(r store.Reader) ([]*job.Job, error) { return Listed(r, f) })
			equal(w, fmt.Sprintf("%+v", f), keys(got), want)
			if len(got) > 0 && (got[0].Payload == nil) != f.WithoutBodies {
				w.Errorf("%+v: the payload is %q", f, got[0].Payload)
			}
		}
	}
	for _, f := range []store.Filter{{Queue: "a\x00"}, {Kind: "\xff"}, {Worker: "\x00"},
		{Owner: "\xff", JobType: "c", NewestFirst: true}, {JobType: "\xff"}} {
		w.view(func(r store.Reader) error {
			if _, err := r.List(f); !job.IsKind(err, job.Invalid) {
				w.Errorf("%+v: %v", f, err)
			}
			return nil
		})
	}
}

// listScans proves that a List with a Scan looks at no more jobs of each phase, that Next continues
// it in both directions until all were seen once, and that it says so where a page is full too.
func listScans(w *world) {
	var all []*job.Job
	for i := range 40 {
		all = append(all, newJob(fmt.Sprint(i), func(j *job.Job) {
			j.Phase, j.Parent = job.Phase(i%3), 7
			if j.Kind = "rare"; i%10 != 5 {
				j.Kind = "often"
			}
		}))
	}
	w.insert(all...)
	for _, tt := range []struct {
		f           store.Filter
		pages, jobs int
	}{
		{store.Filter{Kind: "rare", Scan: 4, Limit: 10}, 5, 4},
		{store.Filter{Kind: "rare", Scan: 100, Limit: 3}, 2, 4},
		{store.Filter{Kind: "none", Scan: 15, Limit: 3}, 1, 0},
		{store.Filter{Kind: "none", Scan: 5, Limit: 3, Phases: []job.Phase{job.Ready}}, 3, 0},
		{store.Filter{Scan: 100, Limit: 16}, 3, 40},
		{store.Filter{Parent: 7, Scan: 1, Limit: 16}, 3, 40},
	} {
		for _, newest := range []bool{false, true} {
			f, pages := tt.f, 0
			f.NewestFirst = newest
			var got, want []string
			for {
				page := read(w, func(r store.Reader) (store.Page, error) { return r.List(f) })
				got, pages = append(got, keys(page.Jobs)...), pages+1
				if page.Next == 0 {
					break
				}
				if f.After = page.Next; newest {
					f.After, f.Before = 0, page.Next
				}
			}
			for _, j := range all {
				if tt.f.Kind == "" || j.Kind == tt.f.Kind {
					want = append(want, j.ID.Key)
				}
			}
			if newest {
				slices.Reverse(want)
			}
			equal(w, fmt.Sprintf("%+v", tt.f), len(want), tt.jobs)
			if tt.jobs > 0 {
				equal(w, fmt.Sprintf("%+v", f), got, want)
			}
			equal(w, fmt.Sprintf("pages of %+v", f), pages, tt.pages)
		}
	}
}

// listRuns proves that Runs lists the leased jobs of all job types in both directions and in pages,
// with what it promises and nothing else.
func listRuns(w *world) {
	var all []*job.Job
	for i := range 8 {
		all = append(all, newJob(fmt.Sprint(i), in([]string{"relay", "other"}[i/4], "q"),
			func(j *job.Job) {
				j.Phase, j.Worker, j.Payload = job.Phase(i%4), fmt.Sprint("w", i), []byte("payload")
			}))
	}
	w.insert(all...)
	want := []*job.Job{{Seq: all[2].Seq, ID: job.ID{JobType: "relay"}, Phase: job.Leased,
		Worker: "w2"}, {Seq: all[6].Seq, ID: job.ID{JobType: "other"}, Phase: job.Leased,
		Worker: "w6"}}
	for _, newest := range []bool{false, true} {
		f := store.Filter{Runs: true, NewestFirst: newest, Limit: 10}
		list := func() store.Page {
			return read(w, func(r store.Reader) (store.Page, error) { return r.List(f) })
		}
		equal(w, "runs", list(), store.Page{Jobs: want})
		f.Limit = 1
		equal(w, "the first run", list(), store.Page{Jobs: want[:1], Next: want[0].Seq})
		if f.After = want[0].Seq; newest {
			f.After, f.Before = 0, want[0].Seq
		}
		f.Limit = 2
		equal(w, "the next run", list(), store.Page{Jobs: want[1:]})
		slices.Reverse(want)
	}
}

// listDead proves that Dead lists the jobs with an open dead letter by Seq, whatever the order of
// their dead letters, and passes over those that are not stored.
func listDead(w *world) {
	var all []*job.Job
	for i := range 6 {
		all = append(all, newJob(fmt.Sprint(i), func(j *job.Job) {
			j.Phase, j.FinishedAt = job.Done, start
		}))
	}
	w.insert(all...)
	var deadLetters []job.DeadLetter
	for _, i := range []int{4, 1, 3, 5} {
		deadLetters = append(deadLetters,
			job.DeadLetter{Job: *all[i], Cause: "failed", CreatedAt: start})
	}
	w.update(func(tx store.Tx) error {
		return tx.Apply(store.Changes{DeadLetters: deadLetters, Delete: []*job.Job{all[5]}})
	})
	stored := read(w, func(r store.Reader) ([]job.DeadLetter, error) {
		return r.DeadLetters(store.DeadLetterSelector{Jobs: seqs(all[3])})
	})
	stored[0].ReplayedAt, stored[0].ReplayedAs = start, all[3].Seq
	w.update(func(tx store.Tx) error {
		return tx.Apply(store.Changes{UpdateDeadLetters: stored})
	})
	for newest, want := range map[bool][]string{false: {"1", "4"}, true: {"4", "1"}} {
		f := store.Filter{Dead: true, NewestFirst: newest}
		equal(w, "dead", keys(read(w,
			func(r store.Reader) ([]*job.Job, error) { return Listed(r, f) })), want)
		f.Limit = 1
		var got []string
		for next := int64(-1); next != 0; {
			page := read(w, func(r store.Reader) (store.Page, error) { return r.List(f) })
			got, next = append(got, keys(page.Jobs)...), page.Next
			if f.After = next; newest {
				f.After, f.Before = 0, next
			}
		}
		equal(w, "dead, one by one", got, want)
	}
}
