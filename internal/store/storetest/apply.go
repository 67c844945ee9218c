package storetest

import (
	"fmt"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// applyTests prove what Apply promises of a value Changes as a whole: the order of its members,
// that a job that is taken or a value that is Invalid concerns nothing else, and that each job of a
// set has exactly the fields written that the set names. What single members do is proved beside
// the methods that read them.
var applyTests = []test{
	{"no changes are written by nothing", func(w *world) { w.apply(store.Changes{}) }},
	{"what is deleted may be inserted again", applyDeletesFirst},
	{"what is taken does not hold up the rest", applyBesideExisting},
	{"invalid changes write nothing", applyInvalid},
	{"each job has its own fields written", applyFields},
	{"queues are set once for each name", applyQueuesTwice},
}

// all returns the history of a job and its dependencies, of one snapshot.
func (w *world) all(j *job.Job) (events []job.Event, edges []job.Edge) {
	w.Helper()
	w.view(func(r store.Reader) (err error) {
		if events, err = r.Events(j.Seq, 0); err != nil {
			return err
		}
		edges, err = r.Edges(store.EdgeSelector{From: []int64{j.Seq}})
		return err
	})
	return events, edges
}

// applyDeletesFirst proves that the deletes of a Changes come before its inserts: one value
// deletes something of each kind and stores another of it. If an insert came first, the job
// would be taken, and the new event, edge and record would be deleted with the old ones.
func applyDeletesFirst(w *world) {
	old, other, stays := newJob("a"), newJob("other"), newJob("stays")
	w.insert(old, other, stays)
	event := func(cause job.Cause) job.Event {
		return job.Event{Job: stays.Seq, Cause: cause, At: start}
	}
	deadLetter := job.DeadLetter{Job: *old, CreatedAt: start}
	edge := func(to *job.Job) job.Edge {
		return job.Edge{Dependent: stays.Seq, Dependency: to.Seq}
	}
	w.apply(store.Changes{
		Edges:       []job.Edge{edge(old)},
		DeadLetters: []job.DeadLetter{deadLetter},
		Events:      []job.Event{event(job.Claimed)},
		Messages:    []job.Message{{JobID: old.ID, Cause: job.Claimed, At: start}},
		Records:     []job.Record{record("a"), record("b")},
	})
	// Messages and dead letters are deleted by the IDs that the store gave them.
	message := read(w, func(r store.Reader) ([]job.Message, error) {
		return r.Messages([]string{"relay"}, 1)
	})[0]
	dead := read(w, func(r store.Reader) ([]job.DeadLetter, error) {
		return r.DeadLetters(store.DeadLetterSelector{JobType: "relay", Limit: 1})
	})[0]

	// The one value under test: each member of the first half makes place for one of the second.
	again := newJob("a")
	w.apply(store.Changes{
		Delete:            []*job.Job{old},
		DeleteEvents:      []int64{stays.Seq},
		DeleteEdges:       []int64{stays.Seq},
		DeleteMessages:    []int64{message.ID},
		DeleteDeadLetters: []int64{dead.ID},
		DeleteRecords:     []store.RecordKey{{Kind: "kind", Key: "a"}, {Kind: "kind", Key: "b"}},
		Insert:            []*job.Job{again},
		Edges:             []job.Edge{edge(other)},
		DeadLetters:       []job.DeadLetter{deadLetter},
		Events:            []job.Event{event(job.Succeeded)},
		Messages:          []job.Message{{JobID: old.ID, Cause: job.Succeeded, At: start}},
		Records:           []job.Record{record("a")},
	})
	equal(w, "a", w.get(old), again)
	events, edges := w.all(stays)
	if len(events) != 1 || events[0].Cause != job.Succeeded {
		w.Errorf("events: %v", events)
	}
	equal(w, "edges", edges, []job.Edge{edge(other)})
	// What is left is what the second half has stored.
	messages := read(w, func(r store.Reader) ([]job.Message, error) {
		return r.Messages([]string{"relay"}, 10)
	})
	if len(messages) != 1 || messages[0].Cause != job.Succeeded {
		w.Errorf("messages: %v", messages)
	}
	deadLetters := read(w, func(r store.Reader) ([]job.DeadLetter, error) {
		return r.DeadLetters(store.DeadLetterSelector{JobType: "relay", Limit: 10})
	})
	if len(deadLetters) != 1 || deadLetters[0].ID == dead.ID {
		w.Errorf("%d dead letters", len(deadLetters))
	}
	equal(w, "records", len(w.records("kind", "a", "b")), 1)
}

// applyBesideExisting proves that a job that is taken gets Seq 0 and is named by Existing, and that
// the other members of the same Changes are written nevertheless: a second job, an update, an event
// and a count.
func applyBesideExisting(w *world) {
	a := newJob("a")
	w.insert(a)
	changed := *a
	changed.State = "changed"
	c := updates(store.StateFields, &changed)
	c.Insert = []*job.Job{newJob("a"), newJob("b")}
	c.Events = []job.Event{{Job: a.Seq, Cause: job.Claimed, At: start}}
	c.Counts = []job.QueueCount{{JobType: "x", Queue: "q", Ready: 1}}
	w.apply(c)
	equal(w, "taken", c.Existing(), []int{0})
	equal(w, "a", w.get(a), &changed)
	equal(w, "b", w.exists("b"), true)
	events, _ := w.all(a)
	equal(w, "events", len(events), 1)
	equal(w, "counts", w.counts("x"), c.Counts)
}

// applyInvalid proves that an Apply that returns Invalid has written nothing and leaves the
// transaction usable. Each Changes holds one text with a NUL character beside a valid delete and a
// valid insert, of which none must be seen; the transaction then stores another job and commits.
func applyInvalid(w *world) {
	a := newJob("a")
	w.insert(a)
	bad := *a
	bad.Worker = "\x00"
	for name, c := range map[string]store.Changes{
		"insert": {Insert: []*job.Job{newJob("\x00")}},
		"update": updates(store.StateFields, &bad),
		"record": {Records: []job.Record{record("\x00")}},
	} {
		c.Delete = []*job.Job{a}
		c.Insert = append(c.Insert, newJob("b"))
		w.update(func(tx store.Tx) error {
			if err := tx.Apply(c); !job.IsKind(err, job.Invalid) {
				w.Errorf("%s: %v", name, err)
			}
			return insertOne(tx, "after "+name) // the transaction goes on
		})
		equal(w, "a exists after "+name, w.exists("a"), true)
		equal(w, "b exists after "+name, w.exists("b"), false)
	}
}

// applyFields updates each job with another set of fields, all of them in one Apply. It proves that
// Update writes the named group of fields and the named bodies of each job and no others, whatever
// the other jobs of the set have written: every group, none included, meets every body alone, no
// body, two and three.
func applyFields(w *world) {
	groups := []store.Fields{0, store.LeaseFields, store.StateFields, store.AllFields}
	var bodies []store.Fields
	for p := range job.Bodies {
		bodies = append(bodies, store.BodyField(p))
	}
	// With no body, two and three: a job's state shares a statement with the first of its
	// bodies.
	result, failure := bodies[job.Result], bodies[job.Failure]
	bodies = append(bodies, 0, result|failure, result|failure|bodies[job.Definition])
	var c store.Changes
	var want []*job.Job
	for _, group := range groups {
		for _, some := range bodies {
			j := newJob(fmt.Sprint(group, some))
			w.insert(j)
			all := changed(j)
			all.Alias = job.AliasOf("relay", "q", j.ID.Key)
			for p := range job.Bodies {
				*all.Body(p) = fmt.Appendf(nil, "%s %d", j.ID.Key, p)
			}
			c.Update = append(c.Update, store.JobUpdate{Job: all, Fields: group | some})
			want = append(want, written(j, all, group|some))
		}
	}
	w.apply(c)
	// All updates were written by one Apply; each job must have its own fields and no other's.
	for i, j := range want {
		equal(w, fmt.Sprintf("fields %b", c.Update[i].Fields), w.get(j), j)
	}
}

// written returns the job that is stored once fields of another are written. It is the port's
// definition of the groups in a second form, so that a column in the wrong group of sqlstore is
// noticed.
func written(was, to *job.Job, fields store.Fields) *job.Job {
	j := *was
	switch {
	case fields.Has(store.AllFields):
		j = *to
	case fields.Has(store.StateFields):
		j = *to
		keepDefinition(&j, was)
	case fields.Has(store.LeaseFields):
		j.LeaseUntil, j.OpenDeps, j.FailedDeps, j.UpdatedAt = to.LeaseUntil, to.OpenDeps,
			to.FailedDeps, to.UpdatedAt
	}
	for p := range job.Bodies {
		*j.Body(p) = *was.Body(p)
		if fields.Has(store.BodyField(p)) {
			*j.Body(p) = *to.Body(p)
		}
	}
	return &j
}

// applyQueuesTwice proves that of two settings for one queue in a set the later one is stored, and
// that QueueSettings lists queues by name, whatever the order of the set.
func applyQueuesTwice(w *world) {
	q := func(name string, limit int) job.QueueSettings {
		return job.QueueSettings{JobType: "x", Queue: name, MaxRunning: limit}
	}
	w.apply(store.Changes{Queues: []job.QueueSettings{q("b", 1), q("a", 2), q("b", 3)}})
	got := read(w, func(r store.Reader) ([]job.QueueSettings, error) { return r.QueueSettings() })
	equal(w, "settings", got, []job.QueueSettings{q("a", 2), q("b", 3)})
}
