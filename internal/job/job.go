package job

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// ID is the identity of a job: Key is unique within (JobType, Scope). Nothing looks up across
// job types. For Relay the scope is the queue, so the same id may exist in two queues (RL-001).
type ID struct {
	JobType string `json:"Contract"` // as dead letters of older versions have it
	Scope   string
	Key     string
}

// IdentityHash is the fixed-size form of an ID under which stores index it: identities may be
// longer than an index entry can be.
type IdentityHash [16]byte

// IdentityHash returns the first 16 bytes of the SHA-256 of the length-prefixed parts.
func (id ID) IdentityHash() IdentityHash {
	sum := digest(id.JobType, id.Scope, id.Key)
	return IdentityHash(sum[:16])
}

// AliasOf returns a second identity of a job, unique in its job type and scope, such as the
// idempotency key of a caller that does not know the job's key yet.
func AliasOf(jobType, scope, name string) IdentityHash {
	sum := digest(jobType, scope, name, "alias")
	return IdentityHash(sum[:16])
}

// QueueHash is the fixed-size form of (job type, queue) that leads the claim index.
type QueueHash int64

// QueueHashOf returns the hash of a queue. Two queues may have the same hash by chance, so a query
// by hash compares job type and queue as well.
func QueueHashOf(jobType, queue string) QueueHash {
	sum := digest(jobType, queue)
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

// Job is one unit of work with all that the engine stores for it. Times are UTC with microsecond
// precision; the zero time stands for "not set".
type Job struct {
	Seq   int64 // given by the store, grows with insertion
	ID    ID
	Alias IdentityHash // see AliasOf; zero is none
	Kind  string       // the contract's word for what kind of job it is
	Queue string
	Owner string // client or tenant, empty where a job type has none
	// Searchable jobs are found by a search. The engine sets it for all jobs of a job type.
	Searchable bool

	State State // the contract's own word
	Phase Phase // what the store sees of it

	Priority  int       // higher is claimed first; see NoPriority
	OrderTime time.Time // then earlier first, then lower Seq
	DueAt     time.Time // not claimable before

	Lease      time.Duration // how long a run may go without a heartbeat
	Run        RunID         // the current run; zero when none
	LeaseUntil time.Time
	Worker     string

	Attempts       int         // claims so far, but for those whose run did nothing
	FailedAttempts int         // attempts that counted towards MaxAttempts
	LostAttempts   int         // attempts that counted as lost
	MaxAttempts    int         // failed attempts after which it is given up; 0 means no limit
	Retry          RetryPolicy // how long it waits after a failed attempt
	OpenDeps       int         // unfinished dependencies and children
	FailedDeps     int         // children that failed
	Parent         int64       // its Seq, 0 for none
	Children       int         // how many it ever had
	Size           int64       // bytes of the job and its children by its job type's count

	Definition []byte // the contract's own JSON
	Payload    []byte // bodies are kept byte for byte as sent
	Progress   []byte
	Result     []byte
	Failure    []byte
	Trace      string
	Callback   string // where its events go, as package webhook encodes it; empty: nowhere
	OutOfLine  uint8  // bit p is set when body p is stored in a row of its own; set by the store
	// End is the recorded end of the current run, nil for none. Loads that lock set it.
	End *RunEnd `json:"-"`

	CreatedAt  time.Time
	UpdatedAt  time.Time
	StartedAt  time.Time
	FinishedAt time.Time
}

// NoPriority is the priority of a job that has none.
const NoPriority = 0

// QueueHash returns the hash of the job's queue.
func (j *Job) QueueHash() QueueHash { return QueueHashOf(j.ID.JobType, j.Queue) }

// Body returns a pointer to one of the bodies.
func (j *Job) Body(p Body) *[]byte {
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

// Body names one of the bodies of a job.
type Body int

// The bodies of a job.
const (
	Definition Body = iota
	Payload
	Progress
	Result
	Failure
	Bodies // their number
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
	Reason string    // given by the worker or the contract; of a claim the worker
}

// Message is an event to be published. It is written in the transaction of its change and delivered
// at least once, in order per job; a receiver recognises a repeat by ID.
type Message struct {
	ID     int64
	JobID  ID
	Job    int64
	Cause  Cause
	Prev   State
	Next   State
	At     time.Time // of the event
	Reason string    // of the event
	Body   []byte    // added by the contract
}

// Edge is one dependency: Dependent waits for Dependency. Both are Seqs.
type Edge struct {
	Dependent  int64
	Dependency int64
}

// QueueCount is the number of jobs of one queue in each phase. Delayed jobs have the phase Waiting
// as well, but a state that is ready: they wait for a retry and are not counted in Waiting. Dead
// counts the dead letters of the queue that are open, also of jobs that are gone.
type QueueCount struct {
	JobType string
	Queue   string
	Waiting int64
	Delayed int64
	Ready   int64
	Leased  int64
	Done    int64
	Dead    int64
}

// Plus returns the sum of two counts of one queue.
func (c QueueCount) Plus(o QueueCount) QueueCount {
	c.Waiting, c.Delayed, c.Ready, c.Leased = c.Waiting+o.Waiting, c.Delayed+o.Delayed,
		c.Ready+o.Ready, c.Leased+o.Leased
	c.Done, c.Dead = c.Done+o.Done, c.Dead+o.Dead
	return c
}

// Jobs returns the sum over all phases. Dead letters are no jobs of a phase.
func (c QueueCount) Jobs() int64 { return c.Waiting + c.Delayed + c.Ready + c.Leased + c.Done }

// CompareClaim is the order in which ready jobs are claimed: higher priority, then earlier order
// time, then earlier insertion. Negative means a first. The statements of the stores have the same
// order: package sqlstore says where (The claim order).
func CompareClaim(a, b *Job) int {
	return cmp.Or(
		cmp.Compare(b.Priority, a.Priority),
		a.OrderTime.Compare(b.OrderTime),
		cmp.Compare(a.Seq, b.Seq),
	)
}

// Record is what the store keeps that is no job, such as a client or an API key. Kind and Key
// together are unique.
type Record struct {
	Kind      string
	Key       string
	Owner     string // may be empty
	Body      []byte
	CreatedAt time.Time
	UpdatedAt time.Time
	ExpiresAt time.Time // from then on it is not returned; zero is never
}
