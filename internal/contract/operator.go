package contract

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// Operator is what operators may do with the jobs of one job type, besides the routes of the
// contract. Contract.Operators has none for jobs with which they may do nothing.
type Operator struct {
	JobType string // by its name, one of Contract.JobTypes
	Actions []Action
	// Replay replays a dead letter of these jobs, by the job that the dead letter holds, and
	// returns the job that runs then: the same one or a new one. Nil means that they leave none.
	Replay func(ctx context.Context, dead *job.Job) (*job.Job, error)
	// Submit stores the job that the contract's own route would store for a request, after the
	// same checks. Check makes the checks alone; it needs its context only where the checks read
	// the store. Nil means that operators submit none.
	Submit func(ctx context.Context, r Request) (*job.Job, error)
	// TakesHeaders says that a request may have Type and Callback, which clients send as headers.
	TakesHeaders bool
	Check        func(ctx context.Context, r Request) error
	// Example is a request that Submit takes, with an owner in capital letters where it needs one;
	// without a body where it takes none.
	Example Request
	// Kind is the kind of all of these jobs; "" means that each has its own, one of Kinds, or none.
	Kind  string
	Kinds []string
	// HasNoKinds says that none of these jobs has a kind.
	HasNoKinds bool
	// Name is the name that the definition of a job gives it; nil means that they have none.
	Name func(*job.Job) string
	// States has the states of the machine that each of the contract's words stands for, and State
	// returns the word of a job. Nil means that the machine has the contract's words.
	States map[string][]job.State
	State  func(*job.Job) string
	// StateBefore is State for the previous state in an event: the job's state is set to that one.
	// Nil means State.
	StateBefore func(*job.Job) string
	// IDsOfQueues says that an id is unique within its queue, which is the scope of the job.
	IDsOfQueues bool
	// Answer is how the contract's own routes answer an error of these functions. Without any of
	// them there is none.
	Answer func(error) httpapi.Answer
	// Timeline adds the entries of the contract to the timeline of a job, in one view with the
	// rest, and Log returns the entries of its log. Both may be nil.
	Timeline engine.TimelineSource
	Log      func(ctx context.Context, j *job.Job) ([]job.Entry, error)
	// Hide takes secrets out of the bodies of a job before operators see them; nil: nothing.
	Hide func(*job.Job)
	// Path is the path of the contract's own route that shows the job; nil or "" means none.
	Path func(*job.Job) string
	// Events are the types of events that changes of these jobs are (WH-002); without types there
	// are no events.
	Events []EventType
}

// Request is what an operator, or a schedule, submits in place of a client (AD-017).
type Request struct {
	Body  []byte // a JSON object
	Owner string // the client or tenant; empty where the contract has none
	Type  string // FetchBox's job type; empty for all others
	// Callback is the URL that FetchBox has in a header; the requests of all others have it in
	// themselves.
	Callback string
	// Key is an idempotency key: of requests with the same key one makes a job, and the others
	// return it. Empty means that the request is not repeated.
	Key string
}

// Action is one row of the table of what operators may do with a job (AD-016). Do uses the verbs of
// the contract, with all that follows from them, and makes one change of the engine: that writes
// what was attached to the context (engine.WithTxFunc). Do refuses with a Conflict what the job
// does not allow after all.
type Action struct {
	Name string
	// States are those in which the job allows it; none: the state does not matter. StateNone is a
	// job that is deleted, as its dead letter has it.
	States []job.State
	If     func(*job.Job) bool // decides beyond the state; nil: the state alone decides
	Do     func(ctx context.Context, j *job.Job) (*job.Job, error)
}

// The names of the actions (AD-016).
const (
	ActionRetry   = "retry"   // the same job again
	ActionRerun   = "rerun"   // a new job made of one that is done
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

// AllowsIn reports whether all jobs in some states allow an action, or none does. known is false
// where more than the state decides, or where only some of the states allow it.
func (o *Operator) AllowsIn(name string, states []job.State) (allowed, known bool) {
	at := slices.IndexFunc(o.Actions, func(a Action) bool { return a.Name == name })
	if at < 0 {
		return false, true
	}
	a, fit := &o.Actions[at], 0
	for _, s := range states {
		if len(a.States) == 0 || slices.Contains(a.States, s) {
			fit++
		}
	}
	return fit > 0, fit == 0 || (fit == len(states) && a.If == nil)
}

// KindOf returns the contract's word for what kind of job it is, "" for none.
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

// PreviousState returns the contract's word for the state of a job before a change, "" for none.
func (o *Operator) PreviousState(j *job.Job, prev job.State) string {
	before := *j
	before.State = prev
	if o.StateBefore == nil || prev == job.StateNone {
		return o.StateOf(&before)
	}
	return o.StateBefore(&before)
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

// StateGone is the word for the state of a job that is gone: it was deleted, or only its dead
// letter is left.
const StateGone = "gone"

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

// Act applies an action to a job, which was read before, and returns the job to look at now: of a
// rerun the new one. The error is a NotAllowed where the job does not allow it, or has moved on
// since and does not any longer.
func (o *Operator) Act(ctx context.Context, e *engine.Engine, name string,
	j *job.Job) (after *job.Job, err error) {
	at := slices.IndexFunc(o.Actions, func(a Action) bool { return a.Name == name })
	if at < 0 || !o.Actions[at].allows(j) {
		return nil, o.refuse(name, j)
	}
	if name == ActionRerun {
		after, err = rerun(ctx, e, &o.Actions[at], j)
	} else {
		after, err = o.Actions[at].Do(ctx, j)
	}
	moved, isMoved := errors.AsType[*engine.StateError](err)
	if isMoved && moved.Job.Seq == j.Seq {
		return nil, o.refuse(name, &moved.Job)
	}
	return after, err
}

// refuse returns the error of an action that a job does not allow.
func (o *Operator) refuse(name string, j *job.Job) *NotAllowed {
	return &NotAllowed{Action: name, State: cmp.Or(o.StateOf(j), StateGone), Allowed: o.Allowed(j)}
}

// rerun is a rerun of a job. That of one that was given up is a replay of its latest dead letter,
// which says so. A job that is deleted is rerun once: another replay has to say that it is one.
func rerun(ctx context.Context, e *engine.Engine, a *Action, j *job.Job) (*job.Job, error) {
	all, err := e.DeadLettersOf(ctx, []int64{j.Seq})
	if err != nil {
		return nil, err
	}
	deadLetters, isDeleted := all[j.Seq], j.State == job.StateNone
	switch {
	case len(deadLetters) == 0 && isDeleted:
		return nil, engine.ErrNoDeadLetter
	case len(deadLetters) == 0:
		return a.Do(ctx, j)
	}
	latest := &deadLetters[len(deadLetters)-1]
	return e.ReplayDeadLetter(ctx, engine.Replay{DeadLetter: latest, Again: !isDeleted,
		Do: func(ctx context.Context, _ *job.Job) (*job.Job, error) { return a.Do(ctx, j) }})
}

// RerunsDeleted reports whether jobs that are deleted are made once more by a rerun: their dead
// letters are all that is left of them.
func (o *Operator) RerunsDeleted() bool {
	return slices.ContainsFunc(o.Actions, func(a Action) bool {
		return a.Name == ActionRerun && slices.Contains(a.States, job.StateNone)
	})
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

// Change is an action that is one cause of the job's machine. edit is as for Engine.Change.
func Change(e *engine.Engine, name string, on job.Cause,
	edit func(*job.Job, time.Time) error, states ...job.State) Action {
	return Action{Name: name, States: states,
		Do: func(ctx context.Context, j *job.Job) (*job.Job, error) {
			return e.Change(ctx, j.ID, on, func(now *job.Job, at time.Time) error {
				// The job may have moved on since it was read, to a state that has the cause too.
				if now.Seq != j.Seq || !slices.Contains(states, now.State) {
					return &job.Error{Kind: job.Conflict, Op: "operator." + name, ID: j.ID,
						Msg: "the job has changed meanwhile", Err: &engine.StateError{Job: *now}}
				}
				if edit == nil {
					return nil
				}
				return edit(now, at)
			})
		}}
}

// OperatorOf returns what operators may do with the jobs of one job type. That is nothing where
// none of the contracts describes it, such as on a node that does not serve its contract. Operators
// then see no bodies of these jobs but failures: only the contract knows what else is secret.
func OperatorOf(contracts []*Contract, jobType string) *Operator {
	for _, c := range contracts {
		for i := range c.Operators {
			if c.Operators[i].JobType == jobType {
				return &c.Operators[i]
			}
		}
	}
	return &Operator{JobType: jobType, Hide: hideBodies}
}

// hideBodies takes all bodies but the failure out of a job.
func hideBodies(j *job.Job) {
	j.Definition, j.Payload, j.Progress, j.Result = nil, nil, nil, nil
}

// PublicName returns the contract that clients know of one of the engine (G-AD-05).
func PublicName(jobs string) string {
	name, _, _ := strings.Cut(jobs, ".")
	return name
}

// Submitters returns the names of the contracts that take submissions of operators.
func Submitters(contracts []*Contract) (names []string) {
	for _, c := range contracts {
		if OperatorOf(contracts, c.Name).Submit != nil {
			names = append(names, c.Name)
		}
	}
	return names
}

// Refusing returns the names of contracts that refuse requests on this node for now, because of
// something that is wrong with the node.
func Refusing(contracts []*Contract) (names []string) {
	for _, c := range contracts {
		if c.Workers == nil || c.Workers.Check == nil {
			continue
		}
		if c.Workers.Check() != nil {
			names = append(names, c.Name)
		}
	}
	return names
}

// SubmitterOf returns the Operator that takes the submissions of a contract. It is Invalid where
// there is no such contract, or where the request has members that the contract does not take.
func SubmitterOf(contracts []*Contract, name string, r *Request) (*Operator, error) {
	invalid := func(msg string) error {
		return &job.Error{Kind: job.Invalid, Op: "operator.submit", Msg: msg}
	}
	known := Submitters(contracts)
	if !slices.Contains(known, name) {
		return nil, invalid("contract must be one of " + strings.Join(known, ", "))
	}
	o := OperatorOf(contracts, name)
	switch {
	case !o.TakesHeaders && r.Type != "":
		return nil, invalid("requests of " + name + " take no job_type")
	case !o.TakesHeaders && r.Callback != "":
		return nil, invalid("callback_url is not allowed in requests of " + name +
			": their bodies have it")
	}
	return o, nil
}
