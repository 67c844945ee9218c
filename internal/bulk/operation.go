package bulk

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// The states of an operation.
const (
	Running  = "running"
	Paused   = "paused"
	Done     = "done"
	Canceled = "canceled"
)

// The reasons of Paused. A canary that failed is named by its number behind reasonFailed.
const (
	ReasonOperator = "operator"
	ReasonCanary   = "canary" // the canaries are not done
	reasonFailed   = "canary failed: job "
)

// reasonUnserved is the reason of Running where the node that has come to the operation does not
// serve all of its contracts. It names them.
const reasonUnserved = "waits for a node that serves "

// Replay is the action of dead letters, and of deliveries of a webhook. All other actions are
// actions on jobs, contract.Actions.
const Replay = "replay"

// Request is what an operation is to do. Of Jobs and DeadLetters one is set. Jobs with Replay are
// deliveries that are made once more to the webhook that is their Owner.
type Request struct {
	Action      string            `json:"action"`
	Jobs        *JobFilter        `json:"jobs,omitempty"`
	DeadLetters *DeadLetterFilter `json:"dead_letters,omitempty"`
	Rate        int               `json:"rate,omitempty"`   // a second; 0 is no rate
	Limit       int               `json:"limit,omitempty"`  // the most items; 0 is no limit
	Canary      int               `json:"canary,omitempty"` // how many go first; 0 is none
	// AsOf is the time of the preview that the operator has confirmed: the operation is about what
	// matched at that time. The zero time is the start.
	AsOf time.Time `json:"as_of,omitzero"`
	// After is a number below those of all matches.
	After int64 `json:"-"`
}

// jobTypes returns the job types that a request is about.
func (r *Request) jobTypes() []string {
	if r.Jobs != nil {
		return r.Jobs.JobTypes
	}
	return r.DeadLetters.JobTypes
}

// searchesTexts reports whether what matches is known only by reading texts.
func (r *Request) searchesTexts() bool {
	if r.Jobs != nil {
		return r.Jobs.SearchesTexts()
	}
	return r.DeadLetters.SearchesTexts()
}

// Operation is an operation with its progress.
type Operation struct {
	ID string `json:"id"`
	Request
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"` // of Paused, or why a Running one waits

	Done    int64 `json:"done"`
	Failed  int64 `json:"failed"`
	Skipped int64 `json:"skipped"`
	// Total is how many matched at the beginning, at most MaxCounted; Counted: it is known.
	Total     int64     `json:"total"`
	Counted   bool      `json:"counted"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	Errors    []Problem `json:"errors,omitempty"` // the first maxProblems

	// Cursor is the number up to which all was gone through.
	Cursor int64 `json:"cursor"`
	// Canaries are the jobs that have to end before the operation goes on.
	Canaries     []int64 `json:"canaries,omitempty"`
	CanariesDone bool    `json:"settled,omitempty"` // and have gone well
}

// Problem is why something failed.
type Problem struct {
	Number int64  `json:"number"` // of the job, or the ID of the dead letter
	Error  string `json:"error"`
}

// maxProblems bounds the errors that an operation keeps.
const maxProblems = 20

// meantAt is the time for which the filter is evaluated: what was created later is not touched, and
// what has changed since is skipped (AD-022).
func (o *Operation) meantAt() time.Time {
	if o.AsOf.IsZero() || o.AsOf.After(o.StartedAt) {
		return o.StartedAt
	}
	return o.AsOf
}

// replaysDeliveries reports whether the operation is about deliveries of a webhook.
func (o *Operation) replaysDeliveries() bool { return o.Action == Replay && o.Jobs != nil }

// IsFinished reports whether the operation has finished.
func (o *Operation) IsFinished() bool { return o.State == Done || o.State == Canceled }

// contractNames returns the contracts that an operation is about, as clients know them.
func (o *Operation) contractNames() (names []string) {
	for _, name := range o.jobTypes() {
		names = append(names, contract.PublicName(name))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ETA returns when the operation will have ended if it goes on as it did; zero if that is not
// known.
func (o *Operation) ETA(now time.Time) time.Time {
	gone := o.Done + o.Failed + o.Skipped
	if o.State != Running || gone == 0 || !o.Counted || o.Total >= MaxCounted {
		return time.Time{}
	}
	total := o.Total
	if o.Limit > 0 {
		total = min(total, int64(o.Limit)+o.Failed+o.Skipped)
	}
	left := max(0, total-gone)
	return now.Add(time.Duration(float64(now.Sub(o.StartedAt)) / float64(gone) * float64(left)))
}

// The kinds of records: operations, whose keys sort the newest first, and the marks of what was
// done in the present batch, which an operation owns.
const (
	operationKind = "bulk"
	markKind      = "bulk.mark"
)

// mark is the body of a mark: what it is about, and the job that the change left or made.
type mark struct {
	Number int64 `json:"number"`
	Job    int64 `json:"job"`
}

// markKey is the key of the mark of a job or dead letter.
func markKey(id string, number int64) string { return fmt.Sprintf("%s/%016x", id, number) }

// read reads an operation; nil if there is none.
func read(r engine.RecordReader, id string) (*Operation, error) {
	record, err := r.Record(operationKind, id)
	if err != nil || record == nil {
		return nil, err
	}
	return decode(record)
}

func decode(r *job.Record) (*Operation, error) {
	o := &Operation{}
	if err := json.Unmarshal(r.Body, o); err != nil {
		return nil, &job.Error{Op: "bulk", Msg: "a stored operation cannot be read", Err: err}
	}
	return o, nil
}

// retention is how long an operation that has ended is listed.
const retention = 30 * 24 * time.Hour

// write stores an operation.
func (o *Operation) write(w engine.RecordWriter) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	r := job.Record{Kind: operationKind, Key: o.ID, Body: body}
	if o.IsFinished() {
		r.ExpiresAt = w.Now().Add(retention)
	}
	return w.UpsertRecords(r)
}

// markedIn returns the marks of what was done in the present batch.
func markedIn(r engine.RecordReader, id string) ([]job.Record, error) {
	return r.Records(markKind, id, "", 2*maxBatch)
}

// addProblem keeps why something failed, if there is room.
func (o *Operation) addProblem(p Problem) {
	o.Failed++
	if len(o.Errors) < maxProblems {
		o.Errors = append(o.Errors, p)
	}
}
