package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Faults says what is to go wrong below a store. Whatever stands between the store and its
// database, a driver or a relay of its connections, asks it before each step:
//
//	Begins, Commits   must this transaction fail to begin, or be undone by its commit?
//	Result, Row       must this row of this result be an error?
//
// Rows are chosen by their place. A first run without faults counts results and rows; then each of
// the first two rows of each result fails in a run of its own. It is safe for concurrent use.
type Faults struct {
	mu            sync.Mutex
	begin, commit bool
	rows          []int // of each result, since it was armed
	result, row   int   // the row that is an error; a row of 0 is none
}

// Begins reports whether a transaction must fail to begin.
func (f *Faults) Begins() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begin
}

// Commits reports whether a transaction must be undone by its commit.
func (f *Faults) Commits() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.commit
}

// Result gives the next result its number, from 0 since the faults were armed.
func (f *Faults) Result() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows = append(f.rows, 0)
	return len(f.rows) - 1
}

// Row counts the next row of a result and reports whether it must be an error instead. A result
// from before the faults were armed has no errors.
func (f *Faults) Row(result int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if result >= len(f.rows) {
		return false // of before
	}
	f.rows[result]++
	return result == f.result && f.rows[result] == f.row
}

// arm makes a row of a result an error, none if row is 0, and begins to count results. It
// returns how many rows each result had since it was called last.
func (f *Faults) arm(result, row int) (rows []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rows, f.rows, f.result, f.row = f.rows, nil, result, row
	return rows
}

// set makes the transactions that follow fail to begin, or to commit, until it is called again.
func (f *Faults) set(begin, commit bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begin, f.commit = begin, commit
}

// RunFaulty runs the tests of what a store does when its database fails, on the stores that open
// opens. The database of each store asks the faults that open was given. They are not part of Run,
// as each database has its own place where a fault can be made.
func RunFaulty(t *testing.T, open func(testing.TB, func() time.Time, *Faults) store.Store) {
	for name, test := range map[string]func(*world, *Faults){
		"begin": failingBegins, "commit": failingCommits, "rows": failingRows,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f Faults
			faulty := func(tb testing.TB, clock func() time.Time) store.Store {
				return open(tb, clock, &f)
			}
			test(newWorld(t, faulty), &f)
		})
	}
}

// failingBegins proves that a transaction that cannot begin is an error at once, that its fn does
// not run, and that it keeps no connection: more of them fail, in updates and views, than the store
// has connections, and it then works.
func failingBegins(w *world, f *Faults) {
	w.insert(newJob("before"))
	started := func() { w.Error("fn ran in a transaction that had not started") }
	ctx, cancel := context.WithTimeout(w.context(), 5*time.Second)
	defer cancel()
	f.set(true, false)
	// More often than a store has connections: 16 on PostgreSQL, 5 on SQLite.
	for n := range 40 {
		err := w.store.Update(ctx, func(store.Tx) error { started(); return nil })
		if refused := err != nil && ctx.Err() == nil; !refused {
			w.Fatalf("update %d: %v", n, err)
		}
		err = w.store.View(ctx, func(store.Reader) error { started(); return nil })
		if refused := err != nil && ctx.Err() == nil; !refused {
			w.Fatalf("view %d: %v", n, err)
		}
	}
	f.set(false, false)
	w.insert(newJob("after"))
	w.get(newJob("after"))
}

// failingCommits proves that an update whose commit the database undoes is an error, whatever the
// database answers to it, and that nothing of it is kept, also not in the memory of the store.
func failingCommits(w *world, f *Faults) {
	before := newJob("before")
	w.insert(before)
	f.set(false, true)
	for n := range 3 {
		err := w.store.Update(w.context(), func(tx store.Tx) error {
			changed := *before
			changed.Worker = "w"
			return tx.Apply(store.Changes{Insert: []*job.Job{newJob("a")},
				Update: []store.JobUpdate{{Job: &changed, Fields: store.StateFields}}})
		})
		if err != nil {
			continue
		}
		w.Errorf("update %d was undone and has no error", n)
	}
	f.set(false, false)
	stored := read(w, func(r store.Reader) ([]*job.Job, error) { return Listed(r, store.Filter{}) })
	equal(w, "stored", len(stored), 1)
	locked := change(w, func(tx store.Tx) ([]*job.Job, error) {
		seqs := []int64{before.Seq, before.Seq + 1, before.Seq + 2, before.Seq + 3}
		return tx.Load(store.Selector{Seqs: seqs, Lock: true})
	})
	equal(w, "locked", len(locked), 1)
	equal(w, "its worker", locked[0].Worker, "")
	w.insert(newJob("a"))
	w.get(newJob("a"))
}

// failingRows proves that no method takes a part of a result for the whole: every result that it
// reads breaks off, at its first row and at its second, and the method and its update must return
// an error. A claim would otherwise lose jobs, and a count be too low, without a trace.
func failingRows(w *world, f *Faults) {
	breakRows(w, f, "Insert", func(tx store.Tx) error {
		_, err := insert(tx, newJob("a"), newJob("b"))
		return err
	})
	// From here on the store has something to read.
	verbs := readingVerbs(w)
	for name, verb := range verbs {
		breakRows(w, f, name, verb)
	}
}

// errUndo undoes the update that counts, so that each run of a verb finds the store as it was.
var errUndo = errors.New("undo it")

// breakTries bounds how often the rows of a verb are broken. What a store reads by itself
// meanwhile, such as the watermarks of PostgreSQL, counts among the results and may take the place
// of one of the verb's. An error that the verb hides is hidden in each try.
const breakTries = 5

// breakRows breaks the rows that a verb reads, and fails the test unless the verb returns each of
// the errors.
func breakRows(w *world, f *Faults, name string, verb func(store.Tx) error) {
	var hidden []string
	for range breakTries {
		if hidden = hiddenErrors(w, f, name, verb); len(hidden) == 0 {
			return
		}
	}
	w.Errorf("%s: %s", name, strings.Join(hidden, "; "))
}

// hiddenErrors runs a verb once to count the results and rows that it reads, and once more for each
// of the first two rows of each result, which is an error then. It returns the errors that the verb
// did not return. A verb that reads nothing is one of them, since nothing would be proved.
func hiddenErrors(w *world, f *Faults, name string, verb func(store.Tx) error) (hidden []string) {
	f.arm(0, 0)
	undone := func(tx store.Tx) error { return errors.Join(verb(tx), errUndo) }
	if err := w.store.Update(w.context(), undone); !errors.Is(err, errUndo) {
		w.Fatalf("%s: %v", name, err)
	}
	results := f.arm(0, 0)
	// The verb must return the error even though fn hides it, and so must the update.
	broken := 0
	for i, rows := range results {
		for row := 1; row <= min(rows, 2); row++ {
			broken++
			f.arm(i, row)
			var got error
			err := w.store.Update(w.context(),
				func(tx store.Tx) error { got = verb(tx); return nil })
			f.arm(0, 0)
			if failed := got != nil && err != nil; !failed {
				hidden = append(hidden, fmt.Sprintf("row %d of result %d was an error; the verb "+
					"returned %v, the update %v", row, i, got, err))
			}
		}
	}
	if broken == 0 {
		hidden = append(hidden, fmt.Sprintf("it reads nothing: %v", results))
	}
	return hidden
}

// readingVerbs fills a store with two rows or more of each kind and returns, by name, all methods
// that read. Some of the jobs have a body out of line and an alias, so that a Load reads two
// results.
func readingVerbs(w *world) map[string]func(store.Tx) error {
	large := make([]byte, 9<<10) // is stored out of line
	withLargeBody := func(j *job.Job) { j.Payload, j.Alias = large, job.AliasOf("relay", "q", j.ID.Key) }
	// One pair of jobs for each method that selects by phase or time, so that both rows of its
	// result can fail.
	var ready, due, lapsed, done, listed []*job.Job
	for i := range 2 {
		n := fmt.Sprint(i)
		ready = append(ready, newJob("r"+n, withLargeBody))
		due = append(due, newJob("d"+n, waiting(start, 0)))
		lapsed = append(lapsed, newJob("l"+n,
			leased(start.Add(-time.Hour), start.Add(-time.Minute))))
		done = append(done, newJob("o"+n, finished("done", start.Add(-time.Hour))))
		listed = append(listed, newJob("s"+n, func(j *job.Job) {
			j.Searchable, j.Priority = true, 5
		}))
	}
	for _, all := range [][]*job.Job{ready, due, lapsed, done, listed} {
		w.insert(all...)
	}
	var children []*job.Job
	for i := range 2 {
		children = append(children,
			newJob(fmt.Sprint("c", i), func(j *job.Job) { j.Parent, j.Size = done[0].Seq, 5 }))
	}
	w.insert(children...)
	first, second := ready[0].Seq, ready[1].Seq
	w.update(func(tx store.Tx) error {
		var events []job.Event
		for _, cause := range []job.Cause{job.Submitted, job.Claimed} {
			events = append(events, job.Event{Job: first, Cause: cause, At: start})
		}
		deadLetters := []job.DeadLetter{deadLetterOf("a", first, "x", start),
			deadLetterOf("b", first, "y", start),
			{Job: *ready[0], CreatedAt: start.Add(-time.Hour)},
			{Job: *ready[1], CreatedAt: start.Add(-time.Hour)}}
		records := []job.Record{{Kind: "k", Key: "a", Owner: "o"},
			{Kind: "k", Key: "b", Owner: "o"},
			{Kind: "k", Key: "old", ExpiresAt: start},
			{Kind: "k", Key: "older", ExpiresAt: start.Add(-time.Hour)}}
		message := job.Message{JobID: ready[0].ID, Job: first, At: start}
		one := []job.QueueCount{{JobType: "relay", Queue: "q", Ready: 1},
			{JobType: "relay", Queue: "r", Ready: 1},
			{JobType: "relay", Queue: "empty"}}
		return tx.Apply(store.Changes{
			Edges: []job.Edge{{Dependent: first, Dependency: second},
				{Dependent: first, Dependency: due[0].Seq},
				{Dependent: second, Dependency: due[0].Seq}},
			DeadLetters: deadLetters,
			Events:      events,
			Messages:    []job.Message{message, message},
			Queues: []job.QueueSettings{{JobType: "relay", Queue: "q"},
				{JobType: "relay", Queue: "r"}},
			Records: records,
			Counts:  one,
		})
	})
	// Each function runs one method alone: a fault in it cannot be hidden by the success of
	// another.
	ids, both := []job.ID{ready[0].ID, ready[1].ID}, []int64{first, second}
	return map[string]func(store.Tx) error{
		"Load by ID":  func(tx store.Tx) error { return errOf(tx.Load(byID(ids...))) },
		"Load by Seq": func(tx store.Tx) error { return errOf(tx.Load(bySeq(ready...))) },
		"Load by Alias": func(tx store.Tx) error {
			return errOf(tx.Load(store.Selector{
				Aliases: []job.IdentityHash{ready[0].Alias, ready[1].Alias},
				Bodies:  store.AllBodies,
			}))
		},
		"Load of definitions": func(tx store.Tx) error {
			return errOf(tx.Load(store.Selector{Seqs: both, Bodies: store.DefinitionOnly}))
		},
		"Load of bodies": func(tx store.Tx) error {
			return errOf(tx.Load(store.Selector{Seqs: both, Bodies: store.OnlyBodies}))
		},
		"Load with Lock by ID": func(tx store.Tx) error {
			return errOf(tx.Load(store.Selector{IDs: ids, Lock: true}))
		},
		"Load with Lock by Seq": func(tx store.Tx) error {
			return errOf(tx.Load(locked(ready...)))
		},
		"CountUpTo ahead of a job": func(tx store.Tx) error {
			return errOf(tx.CountUpTo(store.CountSelector{Ahead: &job.Job{Seq: 1, Queue: "q"}}, 5))
		},
		"CountUpTo of an owner": func(tx store.Tx) error {
			return errOf(tx.CountUpTo(store.CountSelector{JobType: "relay",
				Owners: []string{"owner"}}, 5))
		},
		"CountUpTo of a phase": func(tx store.Tx) error {
			return errOf(tx.CountUpTo(store.CountSelector{JobType: "relay", By: store.ByState,
				Phase: job.Ready}, 5))
		},
		"Exists": func(tx store.Tx) error { return errOf(tx.Exists(ids[0])) },
		"List":   func(tx store.Tx) error { return errOf(tx.List(store.Filter{})) },
		"List of indexes": func(tx store.Tx) error {
			return errOf(tx.List(store.Filter{Limit: 5, Indexes: []store.Index{
				{JobType: "relay", Queue: "q", Ready: true}}}))
		},
		"List of owners": func(tx store.Tx) error {
			return errOf(tx.List(store.Filter{JobType: "relay", Owners: []string{"owner"}, Limit: 5}))
		},
		"List of a parent": func(tx store.Tx) error {
			return errOf(tx.List(store.Filter{Parent: done[0].Seq}))
		},
		"List of an owner": func(tx store.Tx) error {
			return errOf(tx.List(store.Filter{JobType: "relay", Owner: "owner", NewestFirst: true,
				Limit: 5}))
		},
		"Events": func(tx store.Tx) error { return errOf(tx.Events(first, 0)) },
		"DeadLetters": func(tx store.Tx) error {
			return errOf(tx.DeadLetters(store.DeadLetterSelector{JobType: "relay", Limit: 5}))
		},
		"DeadLetterGroups": func(tx store.Tx) error {
			return errOf(tx.DeadLetterGroups("relay", 0, 9, 5))
		},
		"List of an owner without bodies": func(tx store.Tx) error {
			return errOf(tx.List(store.Filter{JobType: "relay", Owner: "owner",
				NewestFirst: true, WithoutBodies: true, Limit: 5}))
		},
		"List of an owner, oldest first": func(tx store.Tx) error {
			return errOf(tx.List(store.Filter{JobType: "relay", Owner: "owner",
				WithoutBodies: true, Limit: 5}))
		},
		"Search": func(tx store.Tx) error {
			return errOf(tx.Search(store.Search{JobType: "relay", Limit: 5}))
		},
		"Dependencies": func(tx store.Tx) error { return errOf(tx.Dependencies(ids)) },
		"Edges From": func(tx store.Tx) error {
			return errOf(tx.Edges(store.EdgeSelector{From: both}))
		},
		"Edges To": func(tx store.Tx) error {
			return errOf(tx.Edges(store.EdgeSelector{To: []int64{second, due[0].Seq}}))
		},
		"Edges Transitive": func(tx store.Tx) error {
			return errOf(tx.Edges(store.EdgeSelector{From: both, Transitive: true}))
		},
		"QueueSettings": func(tx store.Tx) error { return errOf(tx.QueueSettings()) },
		"Counts":        func(tx store.Tx) error { return errOf(tx.Counts(store.QueueSelector{WithDone: true})) },
		"ReadyQueues": func(tx store.Tx) error {
			return errOf(tx.ReadyQueues(store.ReadySelector{WithSince: true,
				Queues: []job.QueueHash{job.QueueHashOf("relay", "q")}}))
		},
		"Records": func(tx store.Tx) error {
			return errOf(tx.Records(store.RecordSelector{Kind: "k", Keys: []string{"a", "b"}}))
		},
		"Records of an owner": func(tx store.Tx) error {
			return errOf(tx.Records(store.RecordSelector{Kind: "k", Owner: "o", Limit: 5}))
		},
		"Records of any owner": func(tx store.Tx) error {
			return errOf(tx.Records(store.RecordSelector{Kind: "k", AnyOwner: true, Limit: 5}))
		},
		"Records of each owner": func(tx store.Tx) error {
			return errOf(tx.Records(store.RecordSelector{Kind: "k", Owners: []string{"o", "p"},
				Limit: 5}))
		},
		"NextDue":       func(tx store.Tx) error { _, err := tx.NextDue(tx.Now()); return err },
		"LockReady":     func(tx store.Tx) error { return errOf(tx.LockReady("relay", "q", 50)) },
		"LockDue":       func(tx store.Tx) error { return errOf(tx.LockDue(5, nil)) },
		"LockLapsed":    func(tx store.Tx) error { return errOf(tx.LockExpired(time.Time{}, 5)) },
		"NewestMessage": func(tx store.Tx) error { return errOf(tx.NewestMessage()) },
		"Messages": func(tx store.Tx) error {
			return errOf(tx.Messages([]string{"relay"}, 5))
		},
		"FoldCounts":   func(tx store.Tx) error { return errOf(tx.CompactCounts(5)) },
		"PruneRecords": func(tx store.Tx) error { return errOf(tx.PruneRecords(5)) },
		"PruneFinished": func(tx store.Tx) error {
			return errOf(tx.PruneFinished("done", start, 0, 5))
		},
		"Size": func(tx store.Tx) error { return errOf(tx.Size("relay")) },
		"DeadLetters of jobs": func(tx store.Tx) error {
			return errOf(tx.DeadLetters(store.DeadLetterSelector{Jobs: []int64{first}}))
		},
	}
}

// errOf returns the error that came with a value.
func errOf[T any](_ T, err error) error { return err }
