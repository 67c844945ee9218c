// Package store is the storage port: what the engine needs of a database, and what a database
// promises in return.
//
//	engine ── Update(fn) ──> Store ──> fn(Tx): Load and Lock..., then Apply(Changes)
//	       ── View(fn) ────> Store ──> fn(Reader): Load, List, Search, Counts, Records
//
// The methods take and return sets, so that the work of many callers is one statement. The
// engine locks jobs in a transaction, applies transitions to them in memory and writes all that
// follows as one value, Changes; the store knows phases and times, but no machine and no contract.
//
// Package sqlstore implements the methods once, on database/sql. Packages sqlite and postgres
// open a database and supply what differs. Every promise is made in a comment here and has its
// test in package storetest, which runs on every implementation. Only the engine calls Update.
//
// # A third kind of database
//
//   - A package beside sqlite and postgres has a sqlstore.Session, the marks of its statements
//     (sqlstore.Dialect), and migrations with its type of errors (sqlstore.Schema). Its tests call
//     storetest.Run and RunFaulty, and read the plans of sqlstore.MustUseIndex; RunMigrations and
//     RunLayout are for older schemas.
//   - A file like cmd/millrace/store_postgres.go says how it is opened, and by which values the
//     setting store names it. It is a line in databases (store.go); its driver is in drivers of the
//     tests of arch.
//   - A move copies a store to another kind of database. The package has an OpenMove for that,
//     which returns a move.Database; the file names it as openMove, with the place and placeForm by
//     which the flags of cmd/millrace/move.go name a store, and the tests of package move open it
//     in world_test.go.
//   - Tests list the databases in testkit.OnEveryStore, and in the packages engine and webhook.
package store

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// Store is a database of jobs.
//
// Every error is a *job.Error, and its kind says what the caller can do:
//
//   - Unavailable: the database does not answer, is busy, full or slow, or a deadline has passed.
//     The call may succeed later.
//   - ReadOnly: the database refuses writes until an operator acts.
//   - Aborted: the caller's ctx was canceled first.
//   - Invalid: a text is not UTF-8 or holds a NUL character, or a name is too long.
//   - TooLarge: a value is larger than the database can hold.
//   - Internal: any other error, which is a defect.
//
// After an error nothing has changed. The one exception is a commit whose answer was lost: it is
// Unavailable too, and its changes may have been kept.
//
// A database error inside fn ends the transaction: every later method returns the same error, and
// so does Update if fn returns nil. A panic in fn reaches the caller of Update and no other caller.
// fn must not use the Store itself: an Update inside an Update may wait forever.
type Store interface {
	// Update runs fn in a transaction and returns once its changes are on stable storage. If fn
	// returns an error, nothing is kept and Update returns that error. Update may run fn again
	// after a conflict with another transaction or a stored job, so fn changes nothing outside of
	// the transaction. Concurrent updates keep their own outcomes even where they share a commit.
	Update(ctx context.Context, fn func(Tx) error) error

	// View runs fn on a consistent snapshot that includes every Update that has returned. Where the
	// database allows it, View keeps working while writes fail.
	View(ctx context.Context, fn func(Reader) error) error

	// Notify notifies the other nodes that these queues may have ready jobs. It returns at once. An
	// announcement may be lost, so nodes also poll.
	Notify(queues []job.QueueHash)

	// Listen calls fn with the queues that other nodes announce, until ctx ends.
	Listen(ctx context.Context, fn func([]job.QueueHash))

	// Writers returns how many updates make progress at the same time: one for a database with a
	// single writer. More concurrent callers should share an update.
	Writers() int

	// Ping reports whether the database answers and accepts the writes of jobs, as far as that is
	// known without writing. An update that failed because of its own arguments does not count.
	Ping(ctx context.Context) error

	// Close ends the updates that run and closes the connections. Later calls fail with
	// Unavailable.
	Close() error
}

// Reader reads. Unless a method says otherwise, jobs come with all their bodies.
type Reader interface {
	// Now returns the database's time when fn began. It stays the same throughout fn.
	Now() time.Time

	// Load returns those of the selected jobs that exist: by Seq ascending if it locks them,
	// otherwise in no particular order.
	Load(s Selector) ([]*job.Job, error)
	// Exists reports whether the job is stored.
	Exists(id job.ID) (bool, error)
	// List returns a page of the jobs that match f, by Seq ascending or descending. It passes over
	// jobs that do not match; f.Scan bounds how many.
	List(f Filter) (Page, error)

	// Events returns the first limit events of a job, or all where limit is 0, in the order in
	// which they happened.
	Events(seq int64, limit int) ([]job.Event, error)
	// DeadLetters returns those of the selected dead letters that exist, by ID ascending.
	DeadLetters(s DeadLetterSelector) ([]job.DeadLetter, error)
	// DeadLetterGroups groups open dead letters of a job type by their fingerprint, in no
	// particular order: of those with an ID above after and not above upTo the newest limit.
	DeadLetterGroups(jobType string, after, upTo int64, limit int) ([]job.DeadLetterGroup, error)
	// Messages returns the n oldest messages of up to 16 job types in the outbox, as they were at
	// one moment. It locks nothing: Elect decides which node publishes them.
	Messages(jobTypes []string, n int) ([]job.Message, error)
	// NewestMessage returns the ID of the newest message in the outbox, 0 if it is empty.
	NewestMessage() (int64, error)
	// Search returns the first s.Limit searchable jobs that match s: newest first, and jobs of the
	// same time by key, compared byte by byte. It finds jobs without a priority and priorities from
	// MinPriority to MaxPriority. Its cost grows with the number of priorities and with s.Limit,
	// never with the number of jobs.
	Search(s Search) ([]*job.Job, error)

	// Dependencies returns what each of the jobs depends on, in no particular order.
	Dependencies(ids []job.ID) (map[job.ID][]job.ID, error)
	// Edges returns the selected edges, in no particular order.
	Edges(s EdgeSelector) ([]job.Edge, error)

	// QueueSettings returns the settings of every queue that has any, by job type and queue.
	QueueSettings() ([]job.QueueSettings, error)
	// Counts returns the number of jobs in each phase of the selected queues, in no particular
	// order. Changes.Counts keep them, so that no scan is needed to find them.
	Counts(s QueueSelector) ([]job.QueueCount, error)
	// ReadyQueues returns those of the queues that have ready jobs, in no particular order. Its
	// cost grows with the queues that are asked for alone and, WithSince, with their priorities.
	ReadyQueues(s ReadySelector) ([]ReadyQueue, error)
	// CountUpTo counts the selected jobs in groups, in no particular order. Its cost is bounded by
	// limit and s.Skip. What limit is depends on whether the selector names the groups:
	//
	//   - By Ahead, Owners or Values it does, and limit is the most that one of them counts.
	//   - By a field without Values it does not, and limit is how many jobs are looked at to find
	//     them: those that are selected are counted, and no job behind them.
	CountUpTo(s CountSelector, limit int) ([]JobGroup, error)
	// Records returns those of the selected records that exist, by key.
	Records(s RecordSelector) ([]job.Record, error)

	// NextDue returns when jobs become due and leases end next, as far as that is not after until.
	NextDue(until time.Time) (Due, error)
}

// NoRole in place of a role ends the terms of a node, see Tx.Elect.
const NoRole = ""

// Tx reads and writes.
//
// Load with Lock and every Lock... method lock the jobs that they return: until this transaction
// ends, no other one changes them or records the end of one of their runs. LockDue and LockExpired
// return jobs without bodies. A method that skips locked rows passes over jobs that another
// transaction has locked; the other methods wait for that transaction.
//
// Owners and the kinds, keys and owners of records have at most MaxNameBytes bytes.
type Tx interface {
	Reader

	// Apply writes changes, in the order that Changes describes. Where it returns Invalid, it has
	// written none of them and the transaction can go on.
	Apply(c Changes) error

	// LockReady returns the first n ready jobs of a queue in claim order, with bodies, and skips
	// locked rows. It returns fewer where the large bodies of the jobs would together exceed
	// MaxReadyBytes, so that a claim cannot exhaust memory, but always at least one.
	LockReady(jobType, queue string, n int) ([]*job.Job, error)
	// LockDue returns up to n waiting jobs that are due and have no open dependency, earliest
	// first, and skips locked rows. It leaves out jobs in the states given, each as "type state".
	LockDue(n int, exceptStates []string) ([]*job.Job, error)
	// LockExpired returns up to n leased jobs whose lease has ended, the longest ended first, and
	// skips locked rows. A clockJump that is not zero is when the clock jumped: attempts that were
	// last seen before it get one more lease from that time on.
	LockExpired(clockJump time.Time, n int) ([]*job.Job, error)
	// LockName makes the transactions that lock the same name run one after another, on all
	// nodes, until they end.
	LockName(name string) error

	// Elect makes node the leader in a role until the given time and reports whether it is the
	// leader. It is not while the term of another node lasts. With NoRole it ends all terms of the
	// node, makes it no leader and reports false; until has no meaning then.
	Elect(role, node string, until time.Time) (bool, error)

	// PruneFinished removes up to n jobs of a job type that finished before the given time, oldest
	// first. If bytes is not 0, it stops once the removed jobs have sizes that add up to bytes.
	// Children go before their parents: where some of the jobs have children, it removes up to n of
	// these children and nothing else.
	PruneFinished(jobType string, before time.Time, bytes int64, n int) (Pruned, error)
	// Size returns the sum of the sizes of a job type's jobs.
	Size(jobType string) (int64, error)
	// PruneRecords removes up to n expired records, the longest expired first, and returns how many
	// it removed.
	PruneRecords(n int) (int, error)
	// CompactCounts removes the counters of up to n empty queues and returns those queues, with
	// counts of 0. It folds what a store that counts in several places has of one queue. It locks
	// counters in the order in which Apply writes them, so the two wait for each other but never
	// deadlock.
	CompactCounts(n int) ([]job.QueueCount, error)
}

// Due has the next times at which time alone changes something. A time is zero where there is none,
// or where it is after the one that was asked for. A waiting job without a due time is due now.
type Due struct {
	Waiting      time.Time // when the next waiting job is due
	Lease        time.Time // when the next lease ends
	RecordedEnds bool      // see job.RunEnd; found a little late at times
}

// Selector selects jobs for Load, by one of IDs, Seqs, Aliases and RecordedEnds. An id that is
// given twice selects its job once.
type Selector struct {
	IDs     []job.ID
	Seqs    []int64
	Aliases []job.IdentityHash
	// RecordedEnds is how many recorded ends are selected at most, of runs of jobs with a Seq
	// above After, in that order. The jobs come without a lock and with Seq alone, with the run of
	// the End, with Run if that is the job's current one, and with the bytes of the result as Size.
	RecordedEnds int
	After        int64
	Bodies       Bodies // which bodies the jobs come with
	// Lock locks the rows of the jobs, by Seq ascending, and waits for those that another
	// transaction has locked: no two such calls deadlock. It is Internal in a View. A worker that
	// is about to record the end of a run may keep its job locked for long, so the update is run
	// again then instead of keeping a connection.
	Lock bool
	// NoLockTimeout, with Lock and Seqs, waits for the locks as long as it takes, without running
	// the update again. It is for jobs that have no run. No worker can end them, so only nodes lock
	// them, and nodes hold locks briefly.
	NoLockTimeout bool
	// SkipLocked, with Lock and Seqs, passes over jobs that another transaction has locked.
	SkipLocked bool
	// LeaseOnly, with Lock and Seqs or IDs, is for a transaction that changes LeaseFields and
	// bodies alone: it does not wait for a worker that is about to record the end of the run.
	LeaseOnly bool
}

// Bodies says which bodies a job is loaded with.
type Bodies uint8

// The bodies that Load can read.
const (
	NoBodies       Bodies = iota
	DefinitionOnly        // no body but the definition
	FailureOnly           // no body but the failure
	AllBodies
	OnlyBodies // all bodies, and of the other fields Seq and OutOfLine alone
)

// QueueSelector selects queues for Counts: those of a JobType, or of all where it is empty, that
// have jobs which are not done, or had some until CompactCounts removed their counters.
type QueueSelector struct {
	JobType string
	// Queue selects one queue of the JobType, at the cost of this queue alone.
	Queue string
	// Sums returns one count for each job type, the sum of those of its queues.
	Sums bool
	// WithDone sets Done of the counts, and selects the queues whose jobs are all done too.
	WithDone bool
}

// CountSelector selects jobs for CountUpTo, in one of these ways:
//
//	Ahead                        the ready jobs of its queue that come before it in claim order
//	JobType, Owners              those of each owner, in groups with the owner as their value
//	JobType, By kind, Values     those of each of these kinds, in groups by kind
//	JobType, By state, Values    those that are done, of each of these states, in groups by state;
//	                             with Searchable searchable ones, and with Queue those of a queue
//	JobType, By, Phase           those of a phase; with Queue, of a queue. It looks at all jobs of
//	                             the phase, of those that are done at those of the job type, and
//	                             with Searchable at those that are searchable of the queue
//	By, Phase Ready, Ready       the ready ones of some queues
//	JobType, By, Phase, HadWorker
//	                             those that wait or are ready and had a worker before. It looks at
//	                             these of all job types, and the others among them are a group
//	                             without a value
//
// With By, Skip is how many jobs were looked at before, in the same snapshot; with Ready it goes
// with one queue alone.
type CountSelector struct {
	Ahead   *job.Job
	JobType string
	Owners  []string
	Queue   string
	By      JobField
	Values  []string
	Phase   job.Phase
	Ready   []job.QueueHash
	Skip    int

	Searchable bool
	HadWorker  bool
}

// JobField is what CountUpTo groups jobs by.
type JobField uint8

// The fields.
const (
	ByNothing JobField = iota
	ByState            // and by whether a dependency has failed
	ByKind
	ByWorker // of the present or the last attempt
)

// JobGroup is how many jobs have one value of a field.
type JobGroup struct {
	Value      string
	FailedDeps bool // the jobs have failed dependencies; ByState alone sets it
	Jobs       int
}

// EdgeSelector selects edges, by one of From and To.
type EdgeSelector struct {
	From       []int64 // the edges from these dependents
	Transitive bool    // and, with From, from everything that they depend on
	To         []int64 // the edges to these dependencies
	Limit      int     // the number of edges To them at most; 0 means all
}

// ReadySelector selects queues for ReadyQueues.
type ReadySelector struct {
	Queues    []job.QueueHash
	WithSince bool // sets Since of the queues
}

// ReadyQueue is a queue with ready jobs. Since is from when on the jobs that are first in the claim
// order of their priority are ready, the earliest of these times.
type ReadyQueue struct {
	Queue job.QueueHash
	Since time.Time
}

// RecordSelector selects records of a kind: those with Keys or, where Keys is empty, the first
// Limit of an Owner, or with AnyOwner of all owners, with a key above After. With Owners they are
// the first Limit of each owner, by owner and key.
type RecordSelector struct {
	Kind     string
	Keys     []string
	Owners   []string
	Owner    string
	AnyOwner bool
	After    string
	Limit    int
}

// DeadLetterSelector selects dead letters: those with IDs, those of Jobs or, where both are empty,
// the first Limit of a JobType. Of the members below WithoutJobs one at most is set.
type DeadLetterSelector struct {
	IDs  []int64
	Jobs []int64 // the Seqs of jobs
	// Open selects of those of Jobs the open ones, with ID, times, and of their jobs number, job
	// type and queue alone.
	Open    bool
	JobType string
	After   int64 // selects an ID above this
	Limit   int
	// WithoutJobs selects with ID, times, fingerprint and of their jobs number, job type and queue
	// alone. It goes with After.
	WithoutJobs bool

	Queue       string // selects one queue of the JobType; goes with After
	Fingerprint string // selects one fingerprint, of whatever job type; goes with After
	// Before selects those of before a time, the oldest first, with ID, times, and of their jobs
	// job type and queue alone. After does not apply then.
	Before time.Time
	// NewestFirst, with Before, is for the newest of them first.
	NewestFirst bool
	// WithoutFingerprint selects those of an older schema, which have no fingerprint and are not
	// counted. After does not apply then.
	WithoutFingerprint bool
}

// Pruned is how many jobs a PruneFinished removed, and these jobs, without their bodies.
type Pruned struct {
	Jobs, Children int
	Removed        []*job.Job
}

// MaxNameBytes is the length limit of an owner and of the kind, key and owner of a record: a
// longer one is Invalid.
const MaxNameBytes = 512

// MaxReadyBytes limits the large bodies that one LockReady brings into memory.
const MaxReadyBytes = 64 << 20

// The priorities of a searchable job that has one.
const (
	MinPriority = 1
	MaxPriority = 10
)

// Search selects searchable jobs. Empty members select all.
type Search struct {
	JobType       string // required
	Queue         string
	State         job.State
	PriorityMin   int       // 0 means no bound; with a bound, jobs without a priority are left out
	PriorityMax   int       // 0 means no bound; like PriorityMin
	CreatedFrom   time.Time // inclusive
	CreatedBefore time.Time // exclusive

	// AfterTime and AfterKey are CreatedAt and the key of the last job of the previous page.
	AfterTime time.Time
	AfterKey  string
	Limit     int // required
}

// Filter selects jobs for List. Empty members select all. An index decides which members apply
// besides States, After, Before, NewestFirst, WithoutBodies and Limit:
//
//	Parent                                none
//	Owner, with JobType and with one of
//	NewestFirst and WithoutBodies         none
//	Owners                                none, and States does not
//	Dead, Runs                            none, and States does not
//	Indexes                               none, and States does not
//	otherwise                             all
type Filter struct {
	JobType string
	Queue   string
	Owner   string
	Kind    string
	States  []job.State
	Phases  []job.Phase
	Worker  string // of the present or the last attempt
	Parent  int64  // selects the children of a job
	// Owners selects the jobs of some owners, with JobType. A page costs what they have.
	Owners []string
	Dead   bool // selects the jobs with an open dead letter
	// Runs selects the leased jobs, which come with Seq, the job type and Worker alone.
	Runs bool
	// Indexes selects the jobs of these indexes, and besides them those of Phases that match all
	// members; where it is set, no Phases are none. A job that is in several is listed once.
	Indexes []Index

	CreatedFrom    time.Time // inclusive
	CreatedBefore  time.Time // exclusive
	FinishedFrom   time.Time // inclusive
	FinishedBefore time.Time // exclusive
	MinAttempts    int

	After       int64 // selects a Seq above this
	Before      int64 // selects a Seq below this; 0 means no bound
	NewestFirst bool  // by Seq descending
	// WithoutBodies lists jobs without their bodies. Dead does so always.
	WithoutBodies bool
	Limit         int // the jobs of a page; 0 means no limit
	// Scan is up to how many jobs of each phase, or dead letters, one List looks at; 0 means no
	// limit. So a page costs no more than that, however rare the jobs are that match.
	Scan int
}

// Index is an index of jobs, in one of these forms. A page of the forms behind the first two costs
// what they hold.
//
//	JobType, State                those that are done, in a state
//	JobType, Queue                searchable ones of a queue
//	JobType, Queue, State         searchable ones of a queue in a state
//	JobType, State, Searchable    searchable ones in a state
//	JobType, Queue, Ready         the ready ones of a queue
//	JobType, Kind                 those of a kind
type Index struct {
	JobType    string
	Queue      string
	State      job.State
	Kind       string
	Ready      bool
	Searchable bool
}

// Page is what a List has found.
type Page struct {
	Jobs []*job.Job
	// Next is where the next page begins: its After or, with NewestFirst, its Before. It is 0 where
	// there are no more jobs.
	Next int64
}
