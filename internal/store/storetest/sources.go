package storetest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// mixed stores jobs of two job types and two queues in all phases, every other one searchable.
func (w *world) mixed(n int) (all []*job.Job) {
	for i := range n {
		all = append(all, newJob(fmt.Sprint(i), func(j *job.Job) {
			j.ID.JobType, j.Queue = []string{"x", "y"}[i%2], []string{"a", "b", "a"}[i%3]
			j.Phase, j.Searchable = job.Phase(i%4), i%5 > 1
			j.State = job.State([]string{"s", "t", "u"}[i/2%3])
			j.Kind, j.Worker = fmt.Sprint("k", i%2), []string{"", "w", "v"}[i%3]
			j.Owner = []string{"", "o1", "o2", "o3"}[i%7%4]
			if j.Payload = []byte("payload"); j.Phase == job.Done {
				j.FinishedAt, j.FailedDeps = start, i%7/6
			}
		}))
	}
	w.insert(all...)
	return all
}

// listIndexes proves that Indexes list the jobs of the indexes that they name and no others, merged
// with those of Phases, each once and in either order; and that pages of any size, bounded or not,
// follow each other without a gap.
func listIndexes(w *world) {
	all := w.mixed(90)
	done := func(jobType string, state job.State) store.Index {
		return store.Index{JobType: jobType, State: state}
	}
	for _, tt := range []struct {
		f    store.Filter
		want func(*job.Job) bool
	}{
		{store.Filter{Indexes: []store.Index{done("x", "s")}}, func(j *job.Job) bool {
			return j.Phase == job.Done && j.ID.JobType == "x" && j.State == "s"
		}},
		{store.Filter{Indexes: []store.Index{done("x", "s"), done("y", "s"), done("y", "u"),
			done("z", "s")}}, func(j *job.Job) bool {
			return j.Phase == job.Done && (j.State == "s" || (j.State == "u" &&
				j.ID.JobType == "y"))
		}},
		{store.Filter{Indexes: []store.Index{{JobType: "x", Queue: "a"}}},
			func(j *job.Job) bool {
				return j.Searchable && j.ID.JobType == "x" && j.Queue == "a"
			}},
		{store.Filter{Indexes: []store.Index{{JobType: "x", Queue: "a", State: "t"}}},
			func(j *job.Job) bool {
				return j.Searchable && j.ID.JobType == "x" && j.Queue == "a" && j.State == "t"
			}},
		{store.Filter{Indexes: []store.Index{{JobType: "y", State: "t", Searchable: true},
			{JobType: "x", Kind: "k0"}}},
			func(j *job.Job) bool {
				return (j.Searchable && j.ID.JobType == "y" && j.State == "t") ||
					(j.ID.JobType == "x" && j.Kind == "k0")
			}},
		{store.Filter{JobType: "x", Owners: []string{"o1", "o2", "none"}}, func(j *job.Job) bool {
			return j.ID.JobType == "x" && (j.Owner == "o1" || j.Owner == "o2")
		}},
		{store.Filter{Indexes: []store.Index{{JobType: "y", Queue: "a", Ready: true}}},
			func(j *job.Job) bool {
				return j.Phase == job.Ready && j.ID.JobType == "y" && j.Queue == "a"
			}},
		{store.Filter{JobType: "y", Indexes: []store.Index{done("y", "u"),
			{JobType: "y", Queue: "b", Ready: true}}, Phases: []job.Phase{job.Leased,
			job.Waiting, job.Ready}}, func(j *job.Job) bool {
			return j.ID.JobType == "y" && (j.Phase != job.Done || j.State == "u")
		}},
		{store.Filter{Indexes: []store.Index{done("none", "s")}},
			func(*job.Job) bool { return false }},
	} {
		var want []string
		for _, j := range all {
			if tt.want(j) {
				want = append(want, j.ID.Key)
			}
		}
		for i := range 8 {
			f := tt.f
			f.NewestFirst, f.WithoutBodies = i%2 == 1, i/2%2 == 1
			f.Limit, f.Scan = []int{100, 2}[i/4], []int{0, 2}[i/4]
			got := w.listAll(f)
			if f.NewestFirst {
				slices.Reverse(got)
			}
			equal(w, fmt.Sprintf("%+v", f), keys(got), append([]string{}, want...))
			if len(got) > 0 && (got[0].Payload == nil) != f.WithoutBodies {
				w.Errorf("%+v: the payload is %q", f, got[0].Payload)
			}
		}
	}
	w.view(func(r store.Reader) error {
		if _, err := r.List(store.Filter{Indexes: []store.Index{done("x", "\x00")}}); !job.IsKind(
			err, job.Invalid) {
			w.Errorf("got %v", err)
		}
		return nil
	})
}

// listAll returns the jobs of all pages of a filter.
func (w *world) listAll(f store.Filter) (all []*job.Job) {
	w.Helper()
	for {
		page := read(w, func(r store.Reader) (store.Page, error) { return r.List(f) })
		if len(page.Jobs) > f.Limit {
			w.Errorf("%+v: a page has %d jobs", f, len(page.Jobs))
		}
		if all = append(all, page.Jobs...); page.Next == 0 {
			return all
		}
		if f.NewestFirst {
			f.Before = page.Next
		} else {
			f.After = page.Next
		}
	}
}

// countGroups proves that CountUpTo groups the jobs of a phase by each field, at once and in
// windows, and the ready ones of queues, and counts those that an index has, never more than the
// limit.
func countGroups(w *world) {
	all := w.mixed(90)
	fields := map[store.JobField]func(*job.Job) string{
		store.ByState:  func(j *job.Job) string { return string(j.State) },
		store.ByKind:   func(j *job.Job) string { return j.Kind },
		store.ByWorker: func(j *job.Job) string { return j.Worker },
	}
	for by, value := range fields {
		for _, s := range []store.CountSelector{{JobType: "x", By: by, Phase: job.Waiting},
			{JobType: "y", By: by, Phase: job.Ready, Queue: "a"},
			{JobType: "x", By: by, Phase: job.Waiting, Queue: "b"},
			{JobType: "y", By: by, Phase: job.Done}, {JobType: "none", By: by},
			{JobType: "y", By: by, Phase: job.Done, Queue: "b"},
			{JobType: "y", By: by, Phase: job.Done, Queue: "b", Searchable: true}} {
			want := map[store.JobGroup]int{}
			for _, j := range all {
				if j.ID.JobType == s.JobType && j.Phase == s.Phase &&
					(s.Queue == "" || s.Queue == j.Queue) && (!s.Searchable || j.Searchable) {
					failed := by == store.ByState && j.FailedDeps > 0
					want[store.JobGroup{Value: value(j), FailedDeps: failed}]++
				}
			}
			got, windows := map[store.JobGroup]int{}, map[store.JobGroup]int{}
			add := func(to map[store.JobGroup]int, all []store.JobGroup) (sum int) {
				for _, g := range all {
					n := g.Jobs
					g.Jobs = 0
					to[g] += n
					sum += n
				}
				return sum
			}
			add(got, w.groups(s, 1000))
			equal(w, fmt.Sprintf("%+v", s), got, want)
			for ; s.Skip < len(all); s.Skip += 7 {
				if n := add(windows, w.groups(s, 7)); n > 7 {
					w.Errorf("%+v: %d of seven jobs", s, n)
				}
			}
			equal(w, fmt.Sprintf("%+v in windows", s), windows, want)
		}
		ready := store.CountSelector{By: by, Phase: job.Ready}
		want := map[string]int{}
		for _, queue := range []string{"a", "b"} {
			ready.Ready = append(ready.Ready, job.QueueHashOf("y", queue))
			for _, j := range all {
				if j.ID.JobType == "y" && j.Queue == queue && j.Phase == job.Ready {
					want[value(j)]++
				}
			}
			got := map[string]int{}
			for _, g := range w.groups(ready, 1000) {
				got[g.Value] += g.Jobs
			}
			equal(w, fmt.Sprintf("ready ones up to queue %s", queue), got, want)
		}
	}
	for _, p := range []job.Phase{job.Waiting, job.Ready} {
		for _, queue := range []string{"", "a"} {
			w.hadWorkerGroups(all, store.CountSelector{JobType: "y", Queue: queue,
				By: store.ByWorker, Phase: p, HadWorker: true})
		}
	}
	w.countsOfIndexes(all)
}

// hadWorkerGroups proves that HadWorker groups the jobs that had a worker, and that those of others
// among them have no value, at once and in windows.
func (w *world) hadWorkerGroups(all []*job.Job, s store.CountSelector) {
	w.Helper()
	want := map[string]int{}
	for _, j := range all {
		switch {
		case j.Phase != s.Phase || j.Worker == "":
		case j.ID.JobType == s.JobType && (s.Queue == "" || s.Queue == j.Queue):
			want[j.Worker]++
		default:
			want[""]++
		}
	}
	for _, window := range []int{1000, 7} {
		got, read := map[string]int{}, s
		for ; read.Skip < len(all); read.Skip += window {
			looked := 0
			for _, g := range w.groups(read, window) {
				got[g.Value] += g.Jobs
				looked += g.Jobs
			}
			if looked > window {
				w.Errorf("%+v: looked at %d of %d", read, looked, window)
			}
		}
		equal(w, fmt.Sprintf("%+v in windows of %d", s, window), got, want)
	}
}

// countsOfIndexes proves that CountUpTo counts what indexes have, up to a limit.
func (w *world) countsOfIndexes(all []*job.Job) {
	w.Helper()
	for _, c := range []struct {
		store.CountSelector
		isOne func(*job.Job) bool
	}{
		{store.CountSelector{By: store.ByState, Searchable: true},
			func(j *job.Job) bool { return j.Searchable }},
		{store.CountSelector{By: store.ByKind}, func(*job.Job) bool { return true }},
		{store.CountSelector{By: store.ByState},
			func(j *job.Job) bool { return j.Phase == job.Done }},
		{store.CountSelector{By: store.ByState, Queue: "a"},
			func(j *job.Job) bool { return j.Searchable && j.Queue == "a" }},
	} {
		s, values := c.CountSelector, []string{"K0", "S", "k0", "k1", "s"}
		s.JobType = "x"
		for _, limit := range []int{1000, 2} {
			var want []store.JobGroup
			for _, value := range values {
				n := 0
				for _, j := range all {
					of := map[store.JobField]string{store.ByState: string(j.State),
						store.ByKind: j.Kind}[s.By]
					if j.ID.JobType == s.JobType && of == value && c.isOne(j) {
						n++
					}
				}
				want = append(want, store.JobGroup{Value: value, Jobs: min(n, limit)})
			}
			s.Values = values
			equal(w, fmt.Sprintf("%d of each of %+v", limit, s), w.groups(s, limit), want)
			s.Values = values[2:3]
			equal(w, fmt.Sprintf("%d of %+v", limit, s), w.groups(s, limit), want[2:3])
		}
	}
}

// groups returns the groups of a count, by value.
func (w *world) groups(s store.CountSelector, limit int) []store.JobGroup {
	w.Helper()
	groups := read(w, func(r store.Reader) ([]store.JobGroup, error) {
		return r.CountUpTo(s, limit)
	})
	slices.SortFunc(groups, func(a, b store.JobGroup) int { return cmp.Compare(a.Value, b.Value) })
	return groups
}
