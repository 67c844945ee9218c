package store

import "github.com/millrace/millrace/internal/job"

// Changes are what a transaction writes. Apply writes them in the order of the members, in sets:
// each member is one statement, and one that is empty costs none.
//
//	Delete...   makes identities free, so that Insert may use them again
//	Insert      may wait for other transactions, see below
//	Update      waits for none where the transaction has locked the jobs, as it should
//	Edges, DeadLetters, Events, Messages   waits for none: they are new rows
//	Queues, Records                        may wait, see below
//	Counts      may wait, and comes last: what waits for counters needs nothing else
//
// Updates that apply the same Insert, Queues or Counts wait for each other but never deadlock, so
// none of them is run again. Those that write the same Records should lock a name first.
type Changes struct {
	// Delete removes jobs with their bodies. DeleteEvents removes the events of jobs, and
	// DeleteEdges every edge from them: most jobs that are deleted have neither.
	Delete       []*job.Job
	DeleteEvents []int64
	DeleteEdges  []int64
	// DeleteMessages removes messages that were published, DeleteDeadLetters dead letters and
	// DeleteRecords records.
	DeleteMessages    []int64
	DeleteDeadLetters []int64
	DeleteRecords     []RecordKey
	// DeleteEnds removes recorded ends of runs.
	DeleteEnds []job.RunID

	// Insert stores the jobs and sets their Seq, which grows in the order of the set. A job
	// whose identity or alias is taken, in the store or earlier in the set, is not stored and
	// gets Seq 0, see Existing; the other changes are written nevertheless. Of several jobs of the
	// set with one alias, any one is stored.
	Insert []*job.Job
	// Update writes fields of jobs that are stored: one statement for each phase that jobs leave
	// for another or stay in, and one for each body, which a job's StateFields share with its first
	// progress, result or failure. AllFields take one more. A set holds a job once.
	Update []JobUpdate

	// Edges stores dependencies; an edge that exists stays as it is.
	Edges []job.Edge
	// DeadLetters stores dead letters. UpdateDeadLetters writes when those with the IDs were
	// replayed, and marks those of an older schema with their fingerprint.
	DeadLetters       []job.DeadLetter
	UpdateDeadLetters []job.DeadLetter
	// Events appends to the histories.
	Events []job.Event
	// Messages appends to the outbox.
	Messages []job.Message

	// Queues stores the settings of queues.
	Queues []job.QueueSettings
	// Records inserts or replaces records. A record that is replaced keeps its CreatedAt.
	Records []job.Record
	// Counts adds to the counts of queues.
	Counts []job.QueueCount
}

// Existing returns the indexes of the jobs of Insert that Apply has not stored.
func (c Changes) Existing() (indexes []int) {
	for i, j := range c.Insert {
		if j.Seq == 0 {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// JobUpdate is a job with the fields to write.
type JobUpdate struct {
	Job    *job.Job
	Fields Fields
}

// Fields is a set of fields of a job: one of LeaseFields, StateFields and AllFields or none of
// them, and bodies.
type Fields uint16

// The groups of fields, each of which includes those before it.
const (
	// LeaseFields are what may change while a job stays in its state: the end of the lease, the
	// counters of its relatives and the time of the change.
	LeaseFields Fields = 1 << 0
	// StateFields are what transitions change: state, phase, times, run id, worker and counters.
	// The other fields of the job are as they are stored: where claims look for a job follows from
	// them too.
	StateFields = LeaseFields | 1<<1
	// AllFields are all but identity and bodies.
	AllFields = StateFields | 1<<2

	firstBody Fields = 1 << 3
)

// BodyField returns a body as a field.
func BodyField(p job.Body) Fields { return firstBody << p }

// Has reports whether f includes all of the fields.
func (f Fields) Has(fields Fields) bool { return f&fields == fields }

// RecordKey names a record.
type RecordKey struct{ Kind, Key string }
