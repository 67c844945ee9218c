// Package store is the storage port: what the engine needs of a database, and
// what a database promises in return. The verbs take and return sets, so that
// the work of many callers is one statement.
//
// Every promise stands in a comment here and has its test in storetest, which
// runs on every implementation. Nothing but the engine calls Update.
package store

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// Store is a database of jobs.
//
// Errors are *job.Error: Unavailable when the database is away, busy, full or
// slow and trying again may help, ReadOnly when it refuses writes until someone
// acts, Aborted when ctx was canceled first (a deadline that passed is
// Unavailable), Invalid when a text is not UTF-8 or holds a NUL, Internal
// otherwise. After any error but a lost answer to a commit nothing has changed;
// that one is Unavailable too.
//
// A database error inside of fn ends its transaction: all further verbs return
// it, and so does Update when fn does not return an error of its own. A panic in
// fn reaches the caller of Update and nobody else. fn uses nothing of the Store
// but what it is given: an Update in an Update may wait for itself.
type Store interface {
	// Update runs fn in a transaction and returns once its changes are on
	// stable storage. When fn returns an error nothing of it is kept and Update
	// returns that error. fn may run again (busy, serialization failure), so it
	// changes nothing outside until Update has returned. Concurrent updates
	// keep their own outcomes, also where they share one commit.
	Update(ctx context.Context, fn func(Tx) error) error

	// View runs fn on a consistent snapshot that includes every Update that has
	// returned. It goes on working while writes fail, where the database can.
	View(ctx context.Context, fn func(Reader) error) error

	// Announce tells the other nodes that the lanes may have ready jobs. It
	// returns at once and promises nothing: polling is the floor.
	Announce(lanes []job.QueueHash)

	// Listen calls fn with the lanes other nodes announce, until ctx ends.
	Listen(ctx context.Context, fn func([]job.QueueHash))

	// Writers is how many updates make progress at the same time: one where there
	// is one writer. More callers than that had better share an update.
	Writers() int

	// Ping reports whether the database answers and takes what the work writes, as far as
	// is known without writing. An update that failed because of what it was asked for
	// says nothing of that.
	Ping(ctx context.Context) error

	Close() error
}

// Reader reads. Jobs come with all their bodies.
type Reader interface {
	// Now is the database's time when fn began, one value for all of it.
	Now() time.Time

	// Get returns the jobs that exist of those asked for, in no order.
	Get(ids []job.ID) ([]*job.Job, error)
	// GetBySeq is Get by Seq.
	GetBySeq(seqs []int64) ([]*job.Job, error)
	// GetByAlias is Get by Alias.
	GetByAlias(aliases []job.IdentityHash) ([]*job.Job, error)
	// GetWithoutBodies is GetBySeq with no body but the definition.
	GetWithoutBodies(seqs []int64) ([]*job.Job, error)
	// Exists reports whether the job is stored.
	Exists(id job.ID) (bool, error)
	// List returns the jobs that match f, by Seq ascending, at most f.Limit. It
	// reads from f.After on until it has them, whatever else f says.
	List(f Filter) ([]*job.Job, error)

	// Events returns the history of a job in the order things happened.
	Events(seq int64) ([]job.Event, error)
	// DeadLetters returns those of a contract with an ID above after, by ID
	// ascending.
	DeadLetters(contract string, after int64, limit int) ([]job.DeadLetter, error)
	// Messages returns the n oldest messages of up to 16 contracts in the outbox, as
	// they were at one moment. It locks nothing: who may deliver them is decided by
	// Elect.
	Messages(contracts []string, n int) ([]job.Message, error)
	// NewestMessage returns the ID of the newest message in the outbox, 0 if there is none.
	NewestMessage() (int64, error)
	// Search returns the listed jobs that match s, newest first and those created at
	// the same time by key, which is compared byte by byte. It looks at priorities
	// from MinPriority to MaxPriority; its cost grows with their number and with s.Limit
	// only.
	Search(s Search) ([]*job.Job, error)

	// Dependencies returns what each of the jobs depends on, in no order.
	Dependencies(ids []job.ID) (map[job.ID][]job.ID, error)
	// EdgesFrom returns the edges of which a job is the dependent, EdgesTo up to n
	// of those of which one is the dependency; 0 means all.
	EdgesFrom(seqs []int64) ([]job.Edge, error)
	EdgesTo(seqs []int64, n int) ([]job.Edge, error)
	// TransitiveEdges returns every edge that is met by going from the jobs to what they
	// depend on, and on from there.
	TransitiveEdges(seqs []int64) ([]job.Edge, error)

	// QueueSettings returns every queue that has settings of its own, by contract and
	// queue.
	QueueSettings() ([]job.QueueSettings, error)
	// Counts returns the jobs in each phase of each queue, in no order, kept exact by
	// AddCounts and never found by scanning. An empty contract means all.
	Counts(contract string) ([]job.QueueCount, error)
	// Records returns those of a kind that exist of the keys asked for, by key.
	Records(kind string, keys []string) ([]job.Record, error)
	// ListRecords returns the first n of a kind and owner with a key above after,
	// by key.
	ListRecords(kind, owner, after string, n int) ([]job.Record, error)

	// NextDue returns when the next waiting job is due and the next lease ends;
	// zero times when there is none. A job without a time is due now.
	NextDue() (due, lease time.Time, err error)
}

// Tx reads and writes. Every Lock... verb returns rows that no other
// transaction changes until this one ends, without bodies unless said. A set
// holds a job once, but for Insert and the sets of ids. What is looked up by its
// text, which are owners and the names of records, has at most MaxNameBytes bytes there.
type Tx interface {
	Reader

	// Insert stores the jobs and sets their Seq, growing with their order.
	// taken lists the indexes of those whose identity or alias exists already, in
	// the store or earlier in jobs; they are not stored and have no Seq. Of several
	// with one alias in jobs any one is stored. Updates that insert the same jobs wait
	// for each other and never in a circle: none is run again for that.
	Insert(jobs []*job.Job) (taken []int, err error)
	// UpdateState writes what moves change: state, phase, times, run, counters.
	UpdateState(jobs []*job.Job) error
	// UpdateLeases writes what may change while a job stays in its state: the end of the
	// lease, the counters of relatives and the time of the change.
	UpdateLeases(jobs []*job.Job) error
	// UpdateAll writes everything but identity and bodies.
	UpdateAll(jobs []*job.Job) error
	// UpdateBodies writes one body of each of the jobs.
	UpdateBodies(p job.Part, jobs []*job.Job) error
	// UpdateStateAndBody is Save and UpdateBodies in one.
	UpdateStateAndBody(p job.Part, jobs []*job.Job) error
	// Delete removes the jobs with their bodies.
	Delete(jobs []*job.Job) error
	// DeleteEvents removes the events of jobs.
	DeleteEvents(seqs []int64) error

	// Lock returns the jobs that exist of those asked for, by Seq ascending.
	Lock(ids []job.ID) ([]*job.Job, error)
	// LockBySeq is Lock by Seq.
	LockBySeq(seqs []int64) ([]*job.Job, error)
	// LockReady returns the first n ready jobs of a queue in claim order, with
	// bodies, passing over those another transaction holds. It returns fewer when
	// their bodies together would exceed MaxReadyBytes, so that a claim of many large
	// jobs does not exhaust memory; it returns one however large.
	LockReady(contract, queue string, n int) ([]*job.Job, error)
	// LockDue returns up to n waiting jobs with no open dependency whose time
	// has come, earliest first, passing over those another transaction holds and
	// those in the states given, each as "contract state".
	LockDue(n int, except []string) ([]*job.Job, error)
	// LockExpired returns up to n leased jobs whose lease is over, longest first, passing over
	// those another transaction holds. After a jump of the clock at the time
	// jumped, runs that began before it are kept for one lease from then on;
	// the zero time means no jump.
	LockExpired(jumped time.Time, n int) ([]*job.Job, error)
	// LoadBodies fills in the bodies of jobs that were locked without.
	LoadBodies(jobs []*job.Job) error

	// AddEvents appends to the histories.
	AddEvents(events []job.Event) error
	// AddMessages appends to the outbox.
	AddMessages(messages []job.Message) error
	// DeleteMessages removes messages that were delivered.
	DeleteMessages(ids []int64) error
	// AddDeadLetters keeps dead letters.
	AddDeadLetters(letters []job.DeadLetter) error
	// DeleteDeadLetters removes dead letters.
	DeleteDeadLetters(ids []int64) error

	// AddEdges stores dependencies; an edge that exists stays as it is.
	AddEdges(edges []job.Edge) error
	// DeleteEdges removes every edge of which a job is the dependent.
	DeleteEdges(dependents []int64) error

	// SetQueue stores the settings of a queue.
	SetQueue(q job.QueueSettings) error
	// LockName makes transactions that lock the same name run one after
	// another, on all nodes, until they end.
	LockName(name string) error
	// AddCounts adds to the counts of queues. Updates that count for the same queues, or
	// fold them, wait for each other and never in a circle: none is run again for that.
	AddCounts(deltas []job.QueueCount) error
	// CompactCounts tidies the counters of up to n queues that are empty.
	CompactCounts(n int) error

	// UpsertRecords inserts or replaces records; the time it was first put stays.
	UpsertRecords(records []job.Record) error
	// DeleteRecords removes records.
	DeleteRecords(kind string, keys []string) error
	// PruneRecords removes up to n records whose time is over, oldest first, and
	// reports how many.
	PruneRecords(n int) (int, error)

	// Elect makes holder the one that does a duty until the given time, unless
	// somebody else is and the time given for them has not come.
	Elect(duty, holder string, until time.Time) (bool, error)
	// EndTerms ends all that holder was elected for.
	EndTerms(holder string) error
	// PruneFinished removes up to n jobs of a contract that settled before the
	// given time, oldest first, and no more once those removed have sizes that add
	// up to bytes, if that is not 0. Children go before their parents: where some of
	// the jobs have children, up to n of these are removed and nothing else.
	PruneFinished(contract string, before time.Time, bytes int64, n int) (Pruned, error)
	// Size returns the sum of the sizes of a contract's jobs.
	Size(contract string) (int64, error)
	// PruneDeadLetters is the same for dead letters.
	PruneDeadLetters(contract string, before time.Time, n int) (int, error)
}

// Pruned is how much a PruneFinished removed.
type Pruned struct{ Jobs, Children int }

// MaxNameBytes is how many bytes an owner and the kind, key and owner of a record may
// have: a longer one is Invalid.
const MaxNameBytes = 512

// MaxReadyBytes bounds the large bodies that one LockReady brings into memory.
const MaxReadyBytes = 64 << 20

// The priorities of a listed job.
const (
	MinPriority = 1
	MaxPriority = 10
)

// Search selects listed jobs. Empty members select all.
type Search struct {
	Contract      string // needed
	Queue         string
	State         job.State
	PriorityMin   int       // 0 means no bound
	PriorityMax   int       // likewise
	CreatedFrom   time.Time // inclusive
	CreatedBefore time.Time // exclusive

	// AfterTime and AfterKey are those of the last job of the page before.
	AfterTime time.Time
	AfterKey  string
	Limit     int // needed
}

// Filter selects jobs for List. Empty members select all.
type Filter struct {
	Contract string
	Queue    string
	Owner    string
	States   []job.State
	Phases   []job.Phase
	// Parent lists the children of a job. Of the other members only States, After and
	// Limit count then.
	Parent int64
	After  int64 // Seq above this
	// NewestFirst lists the jobs of an Owner by Seq descending, below Before if that is
	// not 0. Of the other members only Contract, States and Limit count then.
	NewestFirst bool
	Before      int64
	Limit       int // 0 means no limit
}
