package sqlstore

import (
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// writes are the steps of Apply in their order, see store.Changes.
var writes = []func(t *Tx, c *store.Changes) error{
	func(t *Tx, c *store.Changes) error { return t.delete(c.Delete) },
	func(t *Tx, c *store.Changes) error { return t.deleteRows(deleteEvents, c.DeleteEvents) },
	func(t *Tx, c *store.Changes) error { return t.deleteRows(deleteEdges, c.DeleteEdges) },
	func(t *Tx, c *store.Changes) error { return t.deleteRows(deleteMessages, c.DeleteMessages) },
	func(t *Tx, c *store.Changes) error {
		return t.deleteRows(deleteDeadLetters, c.DeleteDeadLetters)
	},
	func(t *Tx, c *store.Changes) error { return t.deleteRecords(c.DeleteRecords) },
	func(t *Tx, c *store.Changes) error { return t.deleteEnds(c.DeleteEnds) },
	func(t *Tx, c *store.Changes) error { return t.insert(c.Insert) },
	func(t *Tx, c *store.Changes) error { return t.update(c.Update) },
	func(t *Tx, c *store.Changes) error { return t.addEdges(c.Edges) },
	func(t *Tx, c *store.Changes) error { return t.addDeadLetters(c.DeadLetters) },
	func(t *Tx, c *store.Changes) error { return t.updateDeadLetters(c.UpdateDeadLetters) },
	func(t *Tx, c *store.Changes) error { return t.addEvents(c.Events) },
	func(t *Tx, c *store.Changes) error { return t.addMessages(c.Messages) },
	func(t *Tx, c *store.Changes) error { return t.setQueues(c.Queues) },
	func(t *Tx, c *store.Changes) error { return t.upsertRecords(c.Records) },
	func(t *Tx, c *store.Changes) error { return t.addCounts(c.Counts) },
}

// Apply is documented at the port. It checks the texts first: one that one database refuses is
// refused by both, and before anything is written. A step that fails leaves the steps before it
// done; the transaction is then undone as a whole.
func (t *Tx) Apply(c store.Changes) error {
	if t.failed != nil {
		return t.failed
	}
	if err := check(&c); err != nil {
		return err
	}
	for _, write := range writes {
		if err := write(t, &c); err != nil {
			return err
		}
	}
	return nil
}

// check refuses changes with a text of a job or a name of a record that cannot be stored.
func check(c *store.Changes) error {
	for _, j := range c.Insert {
		if err := checkText(j); err != nil {
			return err
		}
	}
	for _, u := range c.Update {
		if !u.Fields.Has(store.StateFields) {
			continue // texts change with the state alone, or with everything
		}
		if err := checkText(u.Job); err != nil {
			return err
		}
	}
	for _, r := range c.Records {
		if err := checkRecord(r); err != nil {
			return err
		}
	}
	return nil
}

// updates are the jobs of each statement that updates jobs, in the order in which the statements
// were first needed. The frequent changes touch one list each: a claim and an end the states, a
// heartbeat the leases.
type updates struct {
	definitions []*job.Job
	leases      [len(tables)][]*job.Job // by the phase of the table
	order       []stateWrite            // the keys of states
	states      map[stateWrite][]*job.Job
	bodies      [job.Bodies][]*job.Job
}

// The updates of one table.
var (
	updateDefinitions = updateJobs("update_definitions", "jobs", columnsIn(store.AllFields, definitionColumns)...)
	updateLeases      = leaseUpdates()
)

// leaseUpdates returns an update of the fields that change within a phase for each table.
func leaseUpdates() (all [len(tables)]jobUpdate) {
	for p := range tables {
		all[p] = updateJobs("update_lease_of_"+tables[p].name, tables[p].name,
			columnsIn(store.LeaseFields, stateColumns)...)
	}
	return all
}

// update writes the fields of jobs with as few statements as there are groups of fields. Each
// statement writes each of its jobs once. A job that is not stored is passed over.
func (t *Tx) update(changes []store.JobUpdate) error {
	if len(changes) == 0 {
		return nil
	}
	jobs := make([]*job.Job, len(changes))
	for i := range changes {
		jobs[i] = changes[i].Job
	}
	if err := t.locate(jobs); err != nil {
		return err
	}
	u := updates{states: map[stateWrite][]*job.Job{}}
	for _, c := range changes {
		if at, ok := t.locations[c.Job.Seq]; ok {
			u.add(c, at)
		}
	}
	return u.write(t)
}

// add adds a job to the statements that write its fields. The state and the first of the bodies in
// its row go in one statement, as when an attempt ends with its result.
func (u *updates) add(c store.JobUpdate, at location) {
	writesAll, writesState := c.Fields.Has(store.AllFields), c.Fields.Has(store.StateFields)
	w := stateWrite{at, c.Job.Phase, writesAll, noBody}
	for p := range job.Bodies {
		switch hasBody := c.Fields.Has(store.BodyField(p)); {
		case hasBody && writesState && w.body == noBody && !isInDefinition(p):
			w.body = p
		case hasBody:
			u.bodies[p] = append(u.bodies[p], c.Job)
		}
	}
	switch {
	case writesState:
		if u.states[w] == nil {
			u.order = append(u.order, w)
		}
		u.states[w] = append(u.states[w], c.Job)
	case c.Fields.Has(store.LeaseFields):
		u.leases[at.phase] = append(u.leases[at.phase], c.Job)
	}
	if writesAll {
		u.definitions = append(u.definitions, c.Job)
	}
}

// write runs the statements. The states come before the bodies, which are written where they are
// then.
func (u *updates) write(t *Tx) error {
	if err := t.updateFields(updateDefinitions, u.definitions); err != nil {
		return err
	}
	for p := range tables {
		if err := t.updateFields(updateLeases[p], u.leases[p]); err != nil {
			return err
		}
	}
	for _, w := range u.order {
		write := func() error { return t.writeStates(w, u.states[w]) }
		if err := t.withBodies(w.body, u.states[w], write); err != nil {
			return err
		}
	}
	if err := t.updateSearchable(u.definitions); err != nil {
		return err
	}
	for p := range job.Bodies {
		if err := t.updateBodies(p, u.bodies[p]); err != nil {
			return err
		}
	}
	return nil
}

// updateFields runs u for jobs, nothing if there are none.
func (t *Tx) updateFields(u jobUpdate, jobs []*job.Job) error {
	if len(jobs) == 0 {
		return t.failed
	}
	set := setOfJobs(u.Bulk, u.columns, jobs)
	if err := t.try(func() error { return t.s.Bulk(u.Bulk, set) }); err != nil {
		return err
	}
	for i, j := range jobs {
		phase := t.locations[j.Seq].phase
		if err := t.cacheWritten(j.Seq, phase, u.columns, set, i); err != nil {
			return err
		}
	}
	return nil
}
