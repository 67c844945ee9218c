package bulk

import (
	"cmp"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// smallMachine has a state of each phase but one.
var smallMachine = job.MustMachine(map[job.State]job.Phase{"ready": job.Ready,
	"running": job.Leased, "done": job.Done}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "ready"},
	{From: "ready", On: job.Claimed, To: "running"},
	{From: "running", On: job.Expired, To: "ready"},
	{From: "running", On: job.Succeeded, To: "done"}})

// TestSourcesOfAQueue shows what a list of a queue is read from: not from its history, however long
// that is, where no job that is done can match.
func TestSourcesOfAQueue(t *testing.T) {
	jobs := candidate{JobType: &engine.JobType{Name: "c", Searchable: true,
		Machine: smallMachine}, states: []job.State{"ready", "running", "done"}}
	const many = maxIndexJobs + 1
	all := store.Index{JobType: "c", Queue: "q"}
	of := func(s job.State) store.Index {
		source := all
		source.State = s
		return source
	}
	everything := []job.Phase{job.Waiting, job.Ready, job.Leased, job.Done}
	for name, test := range map[string]struct {
		filter  JobFilter
		states  []job.State // those of the filter, all for nil
		jobs    map[job.State]int
		sources []store.Index
		phases  []job.Phase
	}{
		"no states": {jobs: map[job.State]int{"done": many}, sources: []store.Index{all}},
		"few of phase": {filter: JobFilter{Phases: []job.Phase{job.Waiting, job.Ready}},
			jobs:    map[job.State]int{"ready": 3, "done": many},
			sources: []store.Index{of("ready")}},
		"many of phases": {filter: JobFilter{Phases: []job.Phase{job.Waiting, job.Ready}},
			jobs:   map[job.State]int{"ready": many, "done": many},
			phases: []job.Phase{job.Ready}},
		"many of a state": {filter: JobFilter{States: []job.State{"ready"}},
			states: []job.State{"ready"}, jobs: map[job.State]int{"ready": many, "done": many},
			phases: []job.Phase{job.Ready}},
		"many that are done": {filter: JobFilter{States: []job.State{"ready", "done"}},
			states: []job.State{"ready", "done"},
			jobs:   map[job.State]int{"ready": 1, "done": many}, sources: []store.Index{all}},
		"few that are done": {filter: JobFilter{Phases: []job.Phase{job.Done}},
			jobs:    map[job.State]int{"ready": many, "done": 2},
			sources: []store.Index{of("done")}},
	} {
		t.Run(name, func(t *testing.T) {
			candidate := jobs
			if test.states != nil {
				candidate.states = test.states
			}
			test.filter.Queue = "q"
			c := chooser{filter: &test.filter, allowed: everything, ListCounts: engine.ListCounts{
				Queues: func(s store.QueueSelector) ([]job.QueueCount, error) {
					return []job.QueueCount{{JobType: s.JobType, Queue: s.Queue,
						Ready: int64(test.jobs["ready"]), Done: int64(test.jobs["done"])}}, nil
				},
				Jobs: func(s store.CountSelector, limit int) (int, error) {
					return min(test.jobs[job.State(s.Values[0])], limit), nil
				}}}
			if len(test.filter.Phases) > 0 {
				c.allowed = test.filter.Phases
			}
			if err := c.add(&candidate); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(c.indexes, test.sources) ||
				!reflect.DeepEqual(c.phases, test.phases) {
				t.Errorf("read from %v and the phases %v, want %v and %v", c.indexes, c.phases,
					test.sources, test.phases)
			}
		})
	}
}

// TestSourcesOfAFew shows what is read where few jobs of a searchable job type have a kind, or a
// state that is not done, and where many have.
func TestSourcesOfAFew(t *testing.T) {
	t.Parallel()
	states := []job.State{"ready", "done"}
	done := store.Index{JobType: "c", State: "done"}
	for name, test := range map[string]struct {
		jobs    int // of the kind, and of the state
		filter  JobFilter
		sources []store.Index
		phases  []job.Phase
	}{
		"none of a kind": {0, JobFilter{Kind: "k"}, nil, nil},
		"few of a kind":  {3, JobFilter{Kind: "k"}, []store.Index{{JobType: "c", Kind: "k"}}, nil},
		"many of a kind": {maxIndexJobs + 1, JobFilter{Kind: "k"}, []store.Index{done},
			[]job.Phase{job.Ready}},
		"none of a state": {0, JobFilter{States: states}, []store.Index{done}, nil},
		"few of a state": {3, JobFilter{States: states}, []store.Index{done,
			{JobType: "c", State: "ready", Searchable: true}}, nil},
		"many of a state": {maxIndexJobs + 1, JobFilter{States: states}, []store.Index{done},
			[]job.Phase{job.Ready}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := chooser{filter: &test.filter, allowed: []job.Phase{job.Ready, job.Done},
				sums: []job.QueueCount{{JobType: "c", Ready: maxIndexJobs + 1, Done: 9}},
				ListCounts: engine.ListCounts{Jobs: func(_ store.CountSelector,
					limit int) (int, error) {
					return min(test.jobs, limit), nil
				}}}
			if err := c.add(&candidate{JobType: &engine.JobType{Name: "c", Searchable: true,
				Machine: smallMachine}, states: states, kind: test.filter.Kind}); err != nil {
				t.Fatal(err)
			}
			byState := func(a, b store.Index) int { return cmp.Compare(a.State, b.State) }
			slices.SortFunc(c.indexes, byState)
			if !reflect.DeepEqual(c.indexes, test.sources) ||
				!reflect.DeepEqual(c.phases, test.phases) {
				t.Errorf("read from %v and the phases %v, want %v and %v", c.indexes, c.phases,
					test.sources, test.phases)
			}
		})
	}
}

// TestFiltersOfQueues: a filter that has more than job types, phases and a queue is none of queues,
// whatever it has: the counts that the store keeps are not those of what matches.
func TestFiltersOfQueues(t *testing.T) {
	ofQueues := map[string]bool{"JobTypes": true, "Queue": true, "Phases": true, "Dead": true}
	check := func(name string, got bool) {
		if got != ofQueues[name] {
			t.Errorf("AD-020 with %s a filter is of queues: %v", name, got)
		}
	}
	each(t, func() (any, func() bool) { f := new(JobFilter); return f, f.isOfQueues }, check)
	each(t, func() (any, func() bool) { f := new(DeadLetterFilter); return f, f.isOfQueues }, check)
}

// each sets one member of a filter after the other.
func each(t *testing.T, filter func() (any, func() bool), check func(name string, ofQueues bool)) {
	t.Helper()
	empty, _ := filter()
	for i := range reflect.TypeOf(empty).Elem().NumField() {
		f, isOfQueues := filter()
		member := reflect.ValueOf(f).Elem().Field(i)
		switch value := member.Addr().Interface().(type) {
		case *string:
			*value = "a"
		case *bool:
			*value = true
		case *int:
			*value = 1
		case *int64:
			*value = 1
		case *time.Time:
			*value = time.Unix(1, 0)
		default:
			member.Set(reflect.MakeSlice(member.Type(), 1, 1))
		}
		check(reflect.TypeOf(f).Elem().Field(i).Name, isOfQueues())
	}
}
