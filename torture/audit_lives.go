package main

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// lifeTimeout bounds the search for an order of the requests about one job.
const lifeTimeout = time.Second

// lifeChunk is how many jobs have their requests in memory a second time while they are checked.
const lifeChunk = 50_000

// lives counts jobs by what the search for an order has found.
type lives struct {
	Ordered   int `json:"ordered"`
	Unordered int `json:"unordered"`
	Undecided int `json:"undecided"` // not within lifeTimeout, which says nothing
}

// lifeModel is the sequential specification of one job.
var lifeModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{life{}} },
	Step: func(state, input, _ any) (all []any) {
		for _, l := range input.(*step).next(state.(life)) {
			all = append(all, l)
		}
		return all
	},
}).ToModel()

// checkLives checks I17: for each job of Relay and TaskFlow there is an order of all requests about
// it, each between its beginning and its answer, in which one after the other leads to the answers
// that were given. A request with an unknown outcome may stand anywhere after its beginning, also
// behind all others, where it has no effect any more.
func (a *audit) checkLives() (found lives) {
	for labels := range slices.Chunk(slices.Sorted(maps.Keys(a.sent)), lifeChunk) {
		all := a.lives(labels)
		for _, label := range slices.Sorted(maps.Keys(all)) {
			a.checkLife(label, all[label], &found)
		}
	}
	return found
}

// checkLife searches for an order of the requests about one job.
func (a *audit) checkLife(label string, steps []*step, found *lives) {
	switch porcupine.CheckOperationsTimeout(lifeModel, operations(steps), lifeTimeout) {
	case porcupine.Ok:
		found.Ordered++
	case porcupine.Unknown:
		found.Undecided++
	case porcupine.Illegal:
		found.Unordered++
		a.add("I17 linearizable", "job %s has no order of its requests %s", label,
			describeSteps(steps))
	}
}

// operations returns the requests about a job in the form of porcupine.
func operations(steps []*step) []porcupine.Operation {
	all := make([]porcupine.Operation, len(steps))
	for i, s := range steps {
		all[i] = porcupine.Operation{Input: s, Call: s.Invoked, Return: s.latest()}
	}
	return all
}

// describeSteps names requests by their numbers in the ledger.
func describeSteps(steps []*step) string {
	all := make([]string, len(steps))
	for i, s := range steps {
		all[i] = fmt.Sprintf("%s %d %s", s.verb, s.ID, s.Class)
	}
	return strings.Join(all, ", ")
}

// lives returns the requests about each job of some labels, with what there is at the end as the
// last one. A request that was never sent is none, and one that was refused for itself, such as a
// create under a key of another request, says nothing about the job.
func (a *audit) lives(labels []string) map[string][]*step {
	l := &lifeIndex{a, a.subjects(labels), map[string]string{}, map[string][]*step{}}
	for label, about := range l.about {
		l.labels[about.Job] = label
	}
	end := int64(0)
	for _, o := range a.ops {
		l.add(o)
		end = max(end, o.Invoked, o.Returned)
	}
	last := &op{Verb: "final", Class: classOK, Invoked: end + 1, Returned: math.MaxInt64}
	for label, steps := range l.steps {
		l.steps[label] = append(steps, &step{last, l.about[label], last.Verb, nil})
	}
	return l.steps
}

// subjects returns those jobs of Relay and TaskFlow that were sent under some labels, by label.
func (a *audit) subjects(labels []string) map[string]*subject {
	unknown := map[string]int{}
	for _, o := range a.ops {
		if o.Verb == "claim" && (o.Class == classUnknown || o.Note != "" || o.Returned == 0) {
			unknown[o.Contract+"/"+o.Queue]++
		}
	}
	ids := map[string]string{} // by label, of jobs whose create has no answer
	for id, h := range a.jobs {
		if h.sent != nil && h.sent.Job == "" {
			ids[h.sent.label()] = id
		}
	}
	all := map[string]*subject{}
	for _, label := range labels {
		s := a.sent[label]
		if s.contract != relay && s.contract != taskflow {
			continue
		}
		about := &subject{made: s.made, contract: s.contract,
			unknown: unknown[s.contract+"/"+s.Queue]}
		if about.Job == "" {
			about.Job = ids[label]
		}
		if j, found := a.final.Jobs[about.Job]; found {
			about.final = &j
		}
		_, about.isDead = a.final.Dead[about.Job]
		if h := a.jobs[about.Job]; h != nil {
			about.attempts = h.attempts
		}
		all[label] = about
	}
	return all
}

// lifeIndex sorts requests by job.
type lifeIndex struct {
	*audit
	about  map[string]*subject
	labels map[string]string // by id
	steps  map[string][]*step
}

// add adds a request to the jobs that it is about.
func (l *lifeIndex) add(o *op) {
	isUnsent := o.Class == classFailed && o.Status == 0
	if isUnsent || (o.Verb == "read" && o.Class != classFailed && o.Seen == nil) {
		return
	}
	for i := range o.Made {
		l.addCreate(o, o.Made[i].label())
	}
	for i := range o.Claimed {
		g := &o.Claimed[i]
		if label := l.labels[g.Job]; label != "" {
			l.steps[label] = append(l.steps[label], &step{o, l.about[label], "claimed", g})
		}
	}
	if label := l.labels[o.Job]; o.Job != "" && label != "" {
		l.steps[label] = append(l.steps[label], &step{o, l.about[label], o.Verb, nil})
	}
}

// addCreate adds a request to a job that it makes. A batch that is refused does not say for which
// of its jobs, and create-again is about a single one.
func (l *lifeIndex) addCreate(o *op, label string) {
	about, verb := l.about[label], o.Verb
	switch {
	case about == nil || verb == "submit-other":
		return
	case o.Class == classFailed && (verb != "submit-again" || o.Status != http.StatusConflict):
		return
	case verb == "requeue":
		verb = "requeue-into"
	}
	l.steps[label] = append(l.steps[label], &step{o, about, verb, nil})
}
