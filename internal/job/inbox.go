package job

import "time"

// InboxState says what has become of a request in the inbox.
type InboxState string

// The states of a request in the inbox.
const (
	InboxWaiting   InboxState = "waiting"
	InboxSubmitted InboxState = "submitted"
	InboxRefused   InboxState = "refused"
)

// InboxRequest is a request that a producer has submitted by SQL, in a transaction of its own.
type InboxRequest struct {
	Number   int64 // in the order in which requests came
	ID       string
	Contract string // as the producer has named it
	Owner    string
	Type     string
	Key      string // the idempotency key; empty for none
	Body     []byte // empty for a request that was submitted
	Producer string // the role that has logged in
	State    InboxState

	Transaction int64 // of the producer, see InboxTransaction
	CreatedAt   time.Time
	FinishedAt  time.Time // when it was submitted or refused

	Job   int64  // the number of the job that was submitted
	JobID string // the contract's id of it
	Error string // why it was refused, or could not be submitted yet
}

// InboxTransaction is what a transaction of a producer has submitted and waits.
type InboxTransaction struct {
	Number         int64
	FailedAttempts int // how often its requests could not be submitted yet
	// Delay is after what time the transaction is due again, for InboxChanges.
	Delay time.Duration
	// IsNew says that it has not been left to other nodes: either no node has taken it, or one of
	// its requests was just taken over.
	IsNew bool
}

// InboxSelector selects requests in the inbox, in one of three ways.
type InboxSelector struct {
	// Transactions selects the first Limit requests that wait in these transactions, in the order
	// of the transactions and then of the requests. There are fewer where they would have more than
	// Bytes, but at least one.
	Transactions []int64
	Limit        int
	Bytes        int64
	// Waiting locks those of these requests that wait, and returns their numbers alone.
	Waiting []int64
	// ID selects one request, and Lock locks it.
	ID   string
	Lock bool
}

// InboxChanges are changes of the inbox, in the order in which they are made.
type InboxChanges struct {
	// Update sets State, Job, JobID and Error of those of the requests that wait, and removes the
	// transactions in which none waits any longer.
	Update []InboxRequest
	// End removes those of the transactions in which no request waits.
	End []int64
	// Delay makes transactions due after their delays, and sets how often they were tried.
	Delay []InboxTransaction
	// Retry lets requests that were refused wait again, in transactions of their own.
	Retry []int64
	// Delete removes requests.
	Delete []int64
}

// InboxCount is how many requests wait and were refused, each counted up to a limit, and since when
// the oldest one waits.
type InboxCount struct {
	Waiting, Refused int
	OldestWaiting    time.Time // the zero time if none waits
}

// InboxFilter selects requests in the inbox: with State and Contract, where they are set, and below
// a number, the newest first.
type InboxFilter struct {
	State    InboxState
	Contract string
	Before   int64 // 0 means no bound
	Limit    int
}
