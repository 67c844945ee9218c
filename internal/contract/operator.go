package contract

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// Operator is what operators may do with one sort of jobs of a contract, beside its own routes.
// Contract.Operators has one for each sort that has any of it.
type Operator struct {
	Jobs    string // the name of the engine's contract, one of Contract.Jobs
	Actions []Action
	// Replay replays a dead letter of these jobs, by the job that the letter holds, and returns
	// the job that runs then: the same one or a new one. Nil means that they leave none.
	Replay func(ctx context.Context, dead *job.Job) (*job.Job, error)
	// Submit stores the job that the contract's own route would store for a request, after the
	// same checks. Check makes the checks alone. Nil means that operators submit none.
	Submit func(ctx context.Context, r Request) (*job.Job, error)
	Check  func(ctx context.Context, r Request) error
	// Kind is the kind of all of these jobs; "" means that each has its own.
	Kind string
	// Name is the name that the definition of a job gives it; nil means that they have none.
	Name func(*job.Job) string
	// States has the states of the machine that each of the contract's words stands for, and State
	// returns the word of a job. Nil means that the machine has the contract's words.
	States map[string][]job.State
	State  func(*job.Job) string
	// IDsOfQueues says that an id is unique within its queue, which is the scope of the job.
	IDsOfQueues bool
	// Answer is how the contract's own routes answer an error of these functions.
	Answer func(error) httpapi.Answer
	// Timeline adds what the contract knows to the timeline of a job, in one view with the rest,
	// and Log returns the entries of its log. Both may be nil.
	Timeline engine.TimelineSource
	Log      func(ctx context.Context, j *job.Job) ([]job.Entry, error)
	// Hide takes what is secret out of the bodies of a job before operators see them; nil: nothing.
	Hide func(*job.Job)
	// Path is the path of the contract's own route that shows the job; nil or "" means none.
	Path func(*job.Job) string
}

// Request is what an operator, or a schedule, submits in place of a client (AD-017).
type Request struct {
	Body  []byte // a JSON object
	Owner string // the client or tenant; empty where the contract has none
	Type  string // FetchBox's job type; empty for all others
	// Key is an idempotency key: of requests with the same key one makes a job, and the others
	// return it. Empty means that the request is not repeated.
	Key string
}

// Action is one row of the table of what operators may do with a job (AD-016). Do uses the verbs of
// the contract, with all that follows from them, and makes one change of the engine: that writes
// what was attached to the context (engine.Attach). Do refuses with a Conflict what the job does
// not allow after all.
type Action struct {
	Name   string
	States []job.State         // in which the job allows it; none: the state does not matter
	If     func(*job.Job) bool // decides beyond the state; nil: the state alone decides
	Do     func(ctx context.Context, j *job.Job) (*job.Job, error)
}

// The names of the actions (AD-016).
const (
	ActionRetry   = "retry"   // the same job again
	ActionRerun   = "rerun"   // a new job made of one that is over
	ActionRunNow  = "run-now" // a job that waits for its time is due now
	ActionCancel  = "cancel"
	ActionRelease = "release" // a leased job can be claimed again, its run is lost
	ActionDelete  = "delete"
)

// Actions are the names of all actions, in the order in which they are shown.
var Actions = []string{ActionRetry, ActionRerun, ActionRunNow, ActionCancel, ActionRelease,
	ActionDelete}

// allows reports whether a job allows the action now.
func (a *Action) allows(j *job.Job) bool {
	return (len(a.States) == 0 || slices.Contains(a.States, j.State)) && (a.If == nil || a.If(j))
}

// Allowed returns the names of the actions that a job allows now.
func (o *Operator) Allowed(j *job.Job) []string {
	names := []string{}
	for i := range o.Actions {
		if o.Actions[i].allows(j) {
			names = append(names, o.Actions[i].Name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return slices.Index(Actions, a) - slices.Index(Actions, b)
	})
	return names
}

// KindOf returns the contract's word for what sort of job it is, "" for none.
func (o *Operator) KindOf(j *job.Job) string { return cmp.Or(o.Kind, j.Kind) }

// NameOf returns the name of a job, "" for none.
func (o *Operator) NameOf(j *job.Job) string {
	if o.Name == nil {
		return ""
	}
	return o.Name(j)
}

// StateOf returns the contract's word for the state of a job.
func (o *Operator) StateOf(j *job.Job) string {
	if o.State == nil || j.State == job.StateNone {
		return string(j.State)
	}
	return o.State(j)
}

// HideSecrets takes what operators do not see out of the bodies of a job.
func (o *Operator) HideSecrets(j *job.Job) {
	if o.Hide != nil {
		o.Hide(j)
	}
}

// StatesOf returns the states of a machine for which the contract has one of the words.
func (o *Operator) StatesOf(words []job.State, m *job.Machine) (states []job.State) {
	for _, word := range words {
		switch {
		case o.States != nil:
			states = append(states, o.States[string(word)]...)
		case m.Has(word):
			states = append(states, word)
		}
	}
	return states
}

// Words returns the words of a contract for the states of a machine.
func (o *Operator) Words(m *job.Machine) (words []job.State) {
	if o.States == nil {
		return m.States()
	}
	for word := range o.States {
		words = append(words, job.State(word))
	}
	return words
}

// NotAllowed is the error of an action that the job does not allow (AD-016).
type NotAllowed struct {
	Action, State string
	Allowed       []string
}

// Error names the state and what it allows.
func (e *NotAllowed) Error() string {
	allowed := "no action"
	if len(e.Allowed) > 0 {
		allowed = strings.Join(e.Allowed, ", ")
	}
	return fmt.Sprintf("the job is %s, which does not allow %s; allowed: %s", e.State, e.Action,
		allowed)
}

// Act lets an action happen to a job, which was read before, and returns the job that it is about
// then. The error is a NotAllowed where the job does not allow it.
func (o *Operator) Act(ctx context.Context, name string, j *job.Job) (*job.Job, error) {
	at := slices.IndexFunc(o.Actions, func(a Action) bool { return a.Name == name })
	if at < 0 || !o.Actions[at].allows(j) {
		return nil, &NotAllowed{Action: name, State: o.StateOf(j), Allowed: o.Allowed(j)}
	}
	return o.Actions[at].Do(ctx, j)
}

// Waits reports whether a job waits for nothing but its time: what run-now is for.
func Waits(j *job.Job) bool { return j.Phase == job.Waiting && j.OpenDeps == 0 }

// RunNow is the action of jobs that wait for their time.
func RunNow(e *engine.Engine) Action {
	return Action{Name: ActionRunNow, If: Waits,
		Do: func(ctx context.Context, j *job.Job) (*job.Job, error) {
			return e.RunNow(ctx, j.ID)
		}}
}

// Release is the action of jobs that are leased in one of the states. Their run is lost.
func Release(e *engine.Engine, states ...job.State) Action {
	return Change(e, ActionRelease, job.Released, nil, states...)
}

// Change is an action that is one cause of the job's machine. edit is that of Engine.Change.
func Change(e *engine.Engine, name string, on job.Cause,
	edit func(*job.Job, time.Time) error, states ...job.State) Action {
	return Action{Name: name, States: states,
		Do: func(ctx context.Context, j *job.Job) (*job.Job, error) {
			return e.Change(ctx, j.ID, on, func(now *job.Job, at time.Time) error {
				// The job may have moved on since it was read, to a state that has the cause too.
				if now.Seq != j.Seq || !slices.Contains(states, now.State) {
					return &job.Error{Kind: job.Conflict, Op: "operator." + name, ID: j.ID,
						Msg: "the job has changed: it is " + string(now.State) + " now"}
				}
				if edit == nil {
					return nil
				}
				return edit(now, at)
			})
		}}
}

// OperatorOf returns what operators may do with a job, nil for nothing.
func OperatorOf(contracts []*Contract, jobs string) *Operator {
	for _, c := range contracts {
		for i := range c.Operators {
			if c.Operators[i].Jobs == jobs {
				return &c.Operators[i]
			}
		}
	}
	return nil
}

// SubmitterOf returns the Operator that takes the submissions of a contract. It is Invalid where
// there is no such contract, or where the request has what the contract does not know.
func SubmitterOf(contracts []*Contract, name string, r *Request) (*Operator, error) {
	var known []string
	for _, c := range contracts {
		known = append(known, c.Name)
		o := OperatorOf([]*Contract{c}, name)
		if o == nil || o.Submit == nil {
			continue
		}
		if o.Jobs != "fetchbox" && r.Type != "" {
			return nil, &job.Error{Kind: job.Invalid, Op: "operator.submit",
				Msg: "job_type is for the contract fetchbox alone"}
		}
		return o, nil
	}
	return nil, &job.Error{Kind: job.Invalid, Op: "operator.submit",
		Msg: "contract must be one of " + strings.Join(known, ", ")}
}
