package job

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// ID is the identity of a job: Key is unique within (Contract, Scope). Nothing
// looks up across contracts. For Relay the scope is the queue, so the same id
// may exist in two queues (RL-001).
type ID struct {
	Contract string
	Scope    string
	Key      string
}

// IdentityHash is the fixed-size form of an ID under which stores index it: identities
// may be longer than an index entry can be.
type IdentityHash [16]byte

// IdentityHash returns the first 16 bytes of the SHA-256 of the length-prefixed parts.
func (id ID) IdentityHash() IdentityHash {
	sum := digest(id.Contract, id.Scope, id.Key)
	return IdentityHash(sum[:16])
}

// AliasOf returns another name of a job, unique in its contract and scope: what a
// caller that does not know the key yet knows it by.
func AliasOf(contract, scope, name string) IdentityHash {
	sum := digest(contract, scope, name, "alias")
	return IdentityHash(sum[:16])
}

// QueueHash is the fixed-size form of (contract, queue) that leads the claim index.
type QueueHash int64

// QueueHashOf returns the lane of a queue. Two queues might share a lane by chance,
// so whoever selects by lane compares contract and queue as well.
func QueueHashOf(contract, queue string) QueueHash {
	sum := digest(contract, queue)
	return QueueHash(binary.BigEndian.Uint64(sum[:8]))
}

func digest(parts ...string) [sha256.Size]byte {
	buf := make([]byte, 0, 128)
	for _, p := range parts {
		buf = binary.AppendUvarint(buf, uint64(len(p)))
		buf = append(buf, p...)
	}
	return sha256.Sum256(buf)
}

// Job is one unit of work with everything the engine knows of it. Times are UTC
// with microsecond precision; the zero time stands for "not set".
type Job struct {
	Seq   int64 // given by the store, grows with insertion
	ID    ID
	Alias IdentityHash // see AliasOf; zero is none
	Kind  string       // the contract's word for what sort of job it is
	Queue string
	Owner string // client or tenant, empty where a contract has none
	// Searchable jobs are found by a search. The engine says so of all of a contract.
	Searchable bool

	State State // the contract's own word
	Phase Phase // what the store sees of it

	Priority  int       // higher is claimed first
	OrderTime time.Time // then earlier first, then lower Seq
	DueAt     time.Time // not claimable before

	Lease      time.Duration // how long a run may be silent
	Run        RunID         // the current run; zero when none
	LeaseUntil time.Time
	Worker     string

	Attempts       int // hand-outs so far
	FailedAttempts int // runs that counted against RunLimit
	LostAttempts   int // runs that counted as lost
	MaxAttempts    int // failures after which it is over; 0 means no limit
	OpenDeps       int // dependencies (or children) not yet settled
	FailedDeps     int // children that ended badly
	Parent         int64
	Children       int // how many it ever had
	// bytes its contract accounts to it and its children, see Contract.MaxBytes of the engine
	Size int64

	Definition []byte // the contract's own JSON
	Payload    []byte // bodies are kept byte for byte as sent
	Progress   []byte
	Result     []byte
	Failure    []byte
	Trace      string
	OutOfLine  uint8 // bit p is set when body p is kept apart; the store's own

	CreatedAt  time.Time
	UpdatedAt  time.Time
	StartedAt  time.Time
	FinishedAt time.Time
}

// QueueHash returns the lane of the job's queue.
func (j *Job) QueueHash() QueueHash { return QueueHashOf(j.ID.Contract, j.Queue) }

// Body returns the field of a body.
func (j *Job) Body(p Part) *[]byte {
	switch p {
	case Definition:
		return &j.Definition
	case Payload:
		return &j.Payload
	case Progress:
		return &j.Progress
	case Result:
		return &j.Result
	default:
		return &j.Failure
	}
}

// Part names one of a job's bodies.
type Part int

// The bodies of a job.
const (
	Definition Part = iota
	Payload
	Progress
	Result
	Failure
	Parts // their number
)

// Event is one recorded change of state.
type Event struct {
	ID     int64 // given by the store, grows per job in the order things happened
	Job    int64 // Seq of the job
	Cause  Cause
	Prev   State
	Next   State
	Run    RunID
	At     time.Time // grows strictly within a job
	Reason string    // what the worker or the contract says of it
}

// Message is an event on its way out of the database. It is written in the
// transaction of the change it tells of and delivered at least once, in order
// per job; ID serves receivers to recognise a repeat.
type Message struct {
	ID     int64
	JobID  ID
	Job    int64
	Cause  Cause
	Prev   State
	Next   State
	At     time.Time // that of the event
	Reason string    // likewise
	Body   []byte    // what the contract adds
}

// DeadLetter is what stays of a job that was given up: enough to say what
// happened and to submit it again.
type DeadLetter struct {
	ID        int64
	Job       Job // as it was when it was given up
	Cause     Cause
	CreatedAt time.Time
}

// Edge says that Dependent waits for Dependency.
type Edge struct {
	Dependent  int64
	Dependency int64
}

// QueueSettings are what an operator says about one queue.
type QueueSettings struct {
	Contract   string
	Queue      string
	Paused     bool
	MaxRunning int // jobs leased at a time, over all nodes; 0 means no limit
}

// QueueCount is the number of jobs of one queue in each phase that is not over.
// Delayed are those of the waiting ones whose state says that they are ready, but
// whose time has not come: they wait to be tried again.
type QueueCount struct {
	Contract string
	Queue    string
	Waiting  int64
	Delayed  int64
	Ready    int64
	Leased   int64
}

// Plus returns the sum of two counts of one queue.
func (c QueueCount) Plus(o QueueCount) QueueCount {
	c.Waiting, c.Delayed, c.Ready, c.Leased = c.Waiting+o.Waiting, c.Delayed+o.Delayed,
		c.Ready+o.Ready, c.Leased+o.Leased
	return c
}

// Jobs returns how many there are in all.
func (c QueueCount) Jobs() int64 { return c.Waiting + c.Delayed + c.Ready + c.Leased }

// Record is something that is kept beside jobs, such as who may submit them. Kind
// and Key together are unique.
type Record struct {
	Kind      string
	Key       string
	Owner     string // whom it belongs to, empty for nobody
	Body      []byte
	CreatedAt time.Time
	UpdatedAt time.Time
	ExpiresAt time.Time // from then on it is not there any more; zero is never
}
