package contract

import (
	"encoding/base64"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// An item is the common form in which /admin/v1, the console and live events show a job of any
// contract. The engine has the facts; the contract has the words for states and kinds, and says
// what is secret (Operator). It has no bodies, so a list of items is read without them.

// Item is a job as operators see it (AD-011), with the words of its contract. A member without
// meaning for the job has the zero value, and null in JSON.
type Item struct {
	Number           int64 // its place in the store
	Contract         string
	Queue            string
	ID               string // the contract's id
	Kind             string // such as "manifest"
	State            string // "gone" for a job that was deleted
	Phase            string // waiting, ready, leased, done or dead
	Priority         int
	Attempts         int // how often it was claimed
	Failures         int // how often it failed
	MaxAttempts      int // the failures after which it is given up
	CreatedAt        time.Time
	UpdatedAt        time.Time
	DueAt            time.Time
	StartedAt        time.Time // of the present or the last attempt
	FinishedAt       time.Time
	LeaseUntil       time.Time
	Worker           string // of the present or the last attempt
	Owner            string
	Parent           int64 // a number
	Children         int
	OpenDependencies *int   // nil where jobs depend on no others
	Error            string // the first line of the failure
	Size             int64  // in bytes, by the contract's count
}

// PhaseDead is the phase of a job with an open dead letter, in an Item (G-AD-06).
const PhaseDead = "dead"

// maxErrorText bounds the error of an item, in characters.
const maxErrorText = 200

// Item returns the item of a job, apart from its dead letter. The job needs its failure. It has
// open dependencies where it has children, or where jobs of its contract may wait for others.
func (o *Operator) Item(j *job.Job, mayWait bool) Item {
	item := Item{Number: j.Seq, Contract: PublicName(j.ID.JobType), Queue: j.Queue,
		ID: j.ID.Key, Kind: o.KindOf(j), State: o.StateOf(j), Phase: j.Phase.String(),
		Priority: j.Priority, Attempts: j.Attempts, Failures: j.FailedAttempts,
		MaxAttempts: j.MaxAttempts, CreatedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt, DueAt: j.DueAt,
		StartedAt: j.StartedAt, FinishedAt: j.FinishedAt, Worker: j.Worker, Owner: j.Owner,
		Parent: j.Parent, Children: j.Children, Error: errorLine(j.Failure), Size: j.Size}
	if j.State == job.StateNone {
		item.State = StateGone
	}
	if j.Phase == job.Leased {
		item.LeaseUntil = j.LeaseUntil
	}
	if j.Children > 0 || mayWait {
		open := j.OpenDeps // a pointer to the member would keep the whole job
		item.OpenDependencies = &open
	}
	return item
}

// errorLine returns the first line of the text of a failure, "" for no failure.
func errorLine(failure []byte) string {
	_, text := job.FailureOf(failure)
	text, _, _ = strings.Cut(strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD")), "\n")
	text = strings.TrimSpace(text)
	if utf8.RuneCountInString(text) > maxErrorText {
		text = string([]rune(text)[:maxErrorText])
	}
	return strings.Clone(text) // not a part of the failure, which may be long
}

// Write writes the members of an item. Without showsError its error is null.
func (i *Item) Write(o *strictjson.Object, showsError bool) {
	o.Int("number", i.Number)
	o.Text("contract", i.Contract)
	o.Text("queue", i.Queue)
	o.Text("id", i.ID)
	o.Optional("kind", i.Kind)
	o.Text("state", i.State)
	o.Text("phase", i.Phase)
	writePositive(o, "priority", int64(i.Priority))
	o.Int("attempts", int64(i.Attempts))
	o.Int("failures", int64(i.Failures))
	writePositive(o, "run_limit", int64(i.MaxAttempts))
	o.Time("created_at", i.CreatedAt)
	o.Time("updated_at", i.UpdatedAt)
	o.Time("due_at", i.DueAt)
	o.Time("started_at", i.StartedAt)
	o.Time("settled_at", i.FinishedAt)
	o.Time("lease_until", i.LeaseUntil)
	o.Optional("worker", i.Worker)
	o.Optional("owner", i.Owner)
	writePositive(o, "parent", i.Parent)
	writePositive(o, "children", int64(i.Children))
	if i.OpenDependencies == nil {
		o.Null("open_dependencies")
	} else {
		o.Int("open_dependencies", int64(*i.OpenDependencies))
	}
	if showsError {
		o.Optional("error", i.Error)
	} else {
		o.Null("error")
	}
	writePositive(o, "size", i.Size)
}

// writePositive writes a member that is a whole number, or null for 0.
func writePositive(o *strictjson.Object, name string, value int64) {
	if value == 0 {
		o.Null(name)
		return
	}
	o.Int(name, value)
}

// ShownBody returns a body as JSON: as it is where it is JSON, else as an object with what it is in
// base64. One of more than max bytes is cut: text to a string of JSON, anything else in base64
// (G-AD-07).
func ShownBody(body []byte, max int) (text []byte, isCut bool) {
	if len(body) == 0 {
		return nil, false
	}
	if len(body) <= max && strictjson.IsValid(body) {
		return body, false
	}
	isCut = len(body) > max
	begin := body[:min(len(body), max)]
	if isCut && utf8.Valid(body) {
		for !utf8.Valid(begin) {
			begin = begin[:len(begin)-1]
		}
		return strictjson.AppendString(nil, string(begin)), true
	}
	o := strictjson.NewObject(nil)
	o.Text("encoding", "base64")
	o.Text("data", base64.StdEncoding.EncodeToString(begin))
	return o.End(), isCut
}
