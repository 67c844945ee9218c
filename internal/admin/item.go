package admin

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// JobItem is a job as operators see it (AD-011), with the words of its contract. A member without
// meaning for the job has the zero value, and null in JSON.
type JobItem struct {
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
	RunLimit         int // the failures after which it is given up
	CreatedAt        time.Time
	UpdatedAt        time.Time
	DueAt            time.Time
	StartedAt        time.Time // of the present or the last attempt
	SettledAt        time.Time
	LeaseUntil       time.Time
	Worker           string // of the present or the last attempt
	Owner            string
	Parent           int64 // a number
	Children         int
	OpenDependencies *int   // nil where jobs depend on no others
	Error            string // the first line of the failure
	Size             int64  // in bytes, by the contract's count
}

// maxErrorText bounds the error of an item, in characters.
const maxErrorText = 200

// JobItems returns the items of jobs, in their order. The jobs need their definition and failure.
func (a *API) JobItems(ctx context.Context, jobs []*job.Job) ([]JobItem, error) {
	dead, err := a.Engine.DeadOf(ctx, jobs)
	if err != nil {
		return nil, err
	}
	items := make([]JobItem, len(jobs))
	for i, j := range jobs {
		items[i] = a.jobItem(j)
		if dead[j.Seq] {
			items[i].Phase = phaseDead
		}
	}
	return items, nil
}

// jobItem returns the item of a job, apart from its dead letter.
func (a *API) jobItem(j *job.Job) JobItem {
	o := a.operatorOf(j.ID.Contract)
	item := JobItem{Number: j.Seq, Contract: PublicContract(j.ID.Contract), Queue: j.Queue,
		ID: j.ID.Key, Kind: o.KindOf(j), State: o.StateOf(j), Phase: j.Phase.String(),
		Priority: j.Priority, Attempts: j.Attempts, Failures: j.FailedAttempts,
		RunLimit: j.MaxAttempts, CreatedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt, DueAt: j.DueAt,
		StartedAt: j.StartedAt, SettledAt: j.FinishedAt, Worker: j.Worker, Owner: j.Owner,
		Parent: j.Parent, Children: j.Children, Error: errorLine(j.Failure), Size: j.Size}
	if j.State == job.StateNone {
		item.State = stateGone
	}
	if j.Phase == job.Leased {
		item.LeaseUntil = j.LeaseUntil
	}
	if j.Children > 0 || a.Engine.HasDependencies(j.ID.Contract) {
		item.OpenDependencies = &j.OpenDeps
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
	return text
}

// write writes the members of an item.
func (i *JobItem) write(o *strictjson.Object, d disclosure) {
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
	writePositive(o, "run_limit", int64(i.RunLimit))
	o.Time("created_at", i.CreatedAt)
	o.Time("updated_at", i.UpdatedAt)
	o.Time("due_at", i.DueAt)
	o.Time("started_at", i.StartedAt)
	o.Time("settled_at", i.SettledAt)
	o.Time("lease_until", i.LeaseUntil)
	o.Optional("worker", i.Worker)
	o.Optional("owner", i.Owner)
	writePositive(o, "parent", i.Parent)
	writePositive(o, "children", int64(i.Children))
	writeNumber(o, "open_dependencies", i.OpenDependencies)
	d.text(o, "error", i.Error)
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
