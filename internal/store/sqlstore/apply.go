package sqlstore

import (
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// writes are the steps of Apply in their order, see store.Changes.
var writes = []func(t *Tx, c *store.Changes) error{
	func(t *Tx, c *store.Changes) error { return t.delete(c.Delete) },
	func(t *Tx, c *store.Changes) error { return t.deleteRows(dropHistory, c.DeleteEvents) },
	func(t *Tx, c *store.Changes) error { return t.deleteRows(dropEdges, c.DeleteEdges) },
	func(t *Tx, c *store.Changes) error { return t.deleteRows(dropMessages, c.DeleteMessages) },
	func(t *Tx, c *store.Changes) error {
		return t.deleteRows(dropDeadLetters, c.DeleteDeadLetters)
	},
	func(t *Tx, c *store.Changes) error { return t.deleteRecords(c.DeleteRecords) },
	func(t *Tx, c *store.Changes) error { return t.insert(c.Insert) },
	func(t *Tx, c *store.Changes) error { return t.update(c.Update) },
	func(t *Tx, c *store.Changes) error { return t.addEdges(c.Edges) },
	func(t *Tx, c *store.Changes) error { return t.addDeadLetters(c.DeadLetters) },
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
			continue // the other groups have no text
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

// updates are the jobs of each statement that updates jobs. The frequent changes touch one list
// each: a claim states, a heartbeat leases, a finish with a result statesWithBody.
type updates struct {
	all, leases, states []*job.Job
	statesWithBody      [job.Parts][]*job.Job // states and this body
	bodies              [job.Parts][]*job.Job
}

// update writes the fields of jobs with as few statements as there are groups of fields. Each
// statement writes each of its jobs once. The order does not matter to the result, since no two
// statements write the same column of a job but apart, which each sets to the value in memory.
func (t *Tx) update(jobs []store.JobUpdate) error {
	var u updates
	for _, j := range jobs {
		u.add(j)
	}
	if err := t.updateFields(updateAll, u.all); err != nil {
		return err
	}
	if err := t.updateFields(updateLeases, u.leases); err != nil {
		return err
	}
	for p := range job.Parts {
		if err := t.updateBodies(updateStateAndBody[p], p, u.statesWithBody[p]); err != nil {
			return err
		}
	}
	if err := t.updateFields(updateStates, u.states); err != nil {
		return err
	}
	for p := range job.Parts {
		if err := t.updateBodies(updateBody[p], p, u.bodies[p]); err != nil {
			return err
		}
	}
	return nil
}

// add adds a job to the statements that write its fields. The state and the first of the bodies
// go in one statement, as when an attempt ends with its result: on PostgreSQL every update of a
// row writes a new version of it, so one update costs half as much as two.
func (u *updates) add(j store.JobUpdate) {
	writesAll := j.Fields.Has(store.AllFields)
	writesState := j.Fields.Has(store.StateFields) && !writesAll
	withBody := false
	for p := range job.Parts {
		switch hasBody := j.Fields.Has(store.BodyField(p)); {
		case hasBody && writesState && !withBody:
			u.statesWithBody[p] = append(u.statesWithBody[p], j.Job)
			withBody = true
		case hasBody:
			u.bodies[p] = append(u.bodies[p], j.Job)
		}
	}
	switch {
	case writesAll:
		u.all = append(u.all, j.Job)
	case writesState && !withBody:
		u.states = append(u.states, j.Job)
	case j.Fields.Has(store.LeaseFields) && !writesState:
		u.leases = append(u.leases, j.Job)
	}
}

// updateFields runs u for jobs, nothing if there are none.
func (t *Tx) updateFields(u jobUpdate, jobs []*job.Job) error {
	return t.bulk(u.Bulk, u.rows(jobs))
}
