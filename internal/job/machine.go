package job

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// State is a contract's own word for the state of a job.
type State string

// StateNone is the state of a job that is not stored: before it is submitted, after it is removed.
const StateNone State = ""

// Phase is what the store sees of a state.
type Phase uint8

// The four phases.
const (
	Waiting Phase = iota // for its time or its dependencies
	Ready                // may be claimed
	Leased               // has a current run
	Done                 // finished
)

var phaseNames = [...]string{"waiting", "ready", "leased", "done"}

func (p Phase) String() string { return phaseNames[p] }

// Cause is why a job changes its state; nothing else does.
type Cause string

// The causes. The engine chooses the ForGood forms when a transition that counts has used up the
// job's attempts.
const (
	Submitted      Cause = "submitted"        // the job is stored
	Replaced       Cause = "replaced"         // its owner submits a new definition
	Due            Cause = "due"              // its DueAt is reached
	Satisfied      Cause = "satisfied"        // it waits for no dependency or child any longer
	Unsatisfiable  Cause = "unsatisfiable"    // a dependency will never succeed
	Claimed        Cause = "claimed"          // leased to a worker
	Started        Cause = "started"          // the work began, where there is a state for it
	Succeeded      Cause = "succeeded"        // the attempt succeeded
	Failed         Cause = "failed"           // the attempt failed and may be retried
	FailedForGood  Cause = "failed_for_good"  // the attempt failed and was the last
	Expired        Cause = "expired"          // the lease ended without a heartbeat
	ExpiredForGood Cause = "expired_for_good" // ... and the attempt was the last
	Released       Cause = "released"         // the worker gave it back
	Requeued       Cause = "requeued"         // its run submitted other jobs in its place
	Canceled       Cause = "canceled"
	Retried        Cause = "retried" // at somebody's request
	Removed        Cause = "removed"
)

// Causes returns every cause, for exhaustive tests.
func Causes() []Cause {
	return []Cause{Submitted, Replaced, Due, Satisfied, Unsatisfiable, Claimed, Started, Succeeded,
		Failed, FailedForGood, Expired, ExpiredForGood, Released, Requeued, Canceled, Retried,
		Removed}
}

// Transition is a row of a contract's table: in From, the cause On leads to To.
type Transition struct {
	From State
	On   Cause
	To   State
	// CountsFailed makes the transition count as a failed attempt. With the last one that the job
	// may have the engine takes the ForGood form of the cause instead.
	CountsFailed bool
	// Immediate makes the job ready without the delay of its retry policy, which follows other
	// transitions that count as a failed attempt.
	Immediate bool
	// CountsLost makes the transition count as a lost attempt, of which the contract allows a
	// number of its own. With the last one the engine takes the ForGood form as well.
	CountsLost bool
	// DeadLetter keeps a dead letter of the job.
	DeadLetter bool
}

// Machine is a contract's transition table. To a cause for which it has no transition the engine
// answers Conflict.
type Machine struct {
	phases      map[State]Phase
	transitions map[trigger]Transition
	successes   map[State]bool // success leads there
}

type trigger struct {
	from State
	on   Cause
}

// NewMachine makes a machine from the phase of each state and the transitions. It refuses a table
// that names an unknown state, has two transitions for a state and cause, has a transition that
// counts but none for the last failure, has no transition for Submitted, or has a state in which a
// job would be stuck: a ready one that cannot be claimed, a leased one that cannot expire, a
// waiting one that neither time nor dependencies end.
func NewMachine(phases map[State]Phase, transitions []Transition) (*Machine, error) {
	m := &Machine{phases: maps.Clone(phases),
		transitions: make(map[trigger]Transition, len(transitions)),
		successes:   map[State]bool{}}
	for _, t := range transitions {
		key := trigger{t.From, t.On}
		if _, twice := m.transitions[key]; twice {
			return nil, fmt.Errorf("machine: %q on %s has two transitions", t.From, t.On)
		}
		for _, s := range []State{t.From, t.To} {
			if _, known := phases[s]; !known && s != StateNone {
				return nil, fmt.Errorf("machine: state %q has no phase", s)
			}
		}
		m.transitions[key] = t
		if t.On == Succeeded {
			m.successes[t.To] = true
		}
	}
	if err := m.validateStates(); err != nil {
		return nil, err
	}
	for _, t := range transitions {
		if err := m.validateTransition(t); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Machine) validateStates() error {
	if m.Has(StateNone) {
		return errors.New("machine: the empty state has no phase")
	}
	if t, ok := m.Next(StateNone, Submitted); !ok || t.To == StateNone {
		return fmt.Errorf("machine: no transition for %s", Submitted)
	}
	for _, s := range m.States() {
		causes := []Cause{Due, Satisfied}
		switch m.phases[s] {
		case Ready:
			causes = []Cause{Claimed}
		case Leased:
			causes = []Cause{Expired}
		case Done:
			continue
		}
		if !slices.ContainsFunc(causes, func(on Cause) bool { _, ok := m.Next(s, on); return ok }) {
			return fmt.Errorf("machine: a job would be stuck in %q, which is %s and has no transition "+
				"for any of %v", s, m.phases[s], causes)
		}
	}
	return nil
}

func (m *Machine) validateTransition(t Transition) error {
	if t.From == StateNone && t.On != Submitted {
		return fmt.Errorf("machine: %s cannot happen to a job that is not stored", t.On)
	}
	if t.CountsFailed || t.CountsLost {
		if _, ok := m.Next(t.From, t.On.ForGood()); !ok || t.On.ForGood() == t.On {
			return fmt.Errorf("machine: %q on %s counts but has no transition for the last attempt",
				t.From, t.On)
		}
	}
	leased := t.To != StateNone && m.phases[t.To] == Leased
	if t.On == Claimed && (m.phases[t.From] != Ready || !leased) {
		return fmt.Errorf("machine: %q on %s must lead from a ready to a leased state", t.From,
			t.On)
	}
	if leased && t.On != Claimed && (t.From == StateNone || m.phases[t.From] != Leased) {
		return fmt.Errorf("machine: %q on %s enters a leased state without a claim", t.From, t.On)
	}
	return nil
}

// MustMachine is NewMachine for tables in code: it panics where the table is wrong.
func MustMachine(phases map[State]Phase, transitions []Transition) *Machine {
	m, err := NewMachine(phases, transitions)
	if err != nil {
		panic(err)
	}
	return m
}

// ForGood returns the form of a cause that applies when no attempt is left.
func (c Cause) ForGood() Cause {
	switch c {
	case Failed:
		return FailedForGood
	case Expired, Released: // a run that was released is lost like one that has expired
		return ExpiredForGood
	default:
		return c
	}
}

// Next returns the transition for a cause in a state, if there is one.
func (m *Machine) Next(from State, on Cause) (Transition, bool) {
	t, ok := m.transitions[trigger{from, on}]
	return t, ok
}

// Phase returns the phase of a state; Done for StateNone.
func (m *Machine) Phase(s State) Phase {
	if s == StateNone {
		return Done
	}
	return m.phases[s]
}

// IsSuccess reports whether a finished state is one that Succeeded leads to.
func (m *Machine) IsSuccess(s State) bool { return m.successes[s] }

// LeavesDeadLetters reports whether jobs leave dead letters, and whether such jobs stay stored.
func (m *Machine) LeavesDeadLetters() (leaves, kept bool) {
	for _, t := range m.transitions {
		leaves = leaves || t.DeadLetter
		kept = kept || (t.DeadLetter && t.To != StateNone)
	}
	return leaves, kept
}

// Has reports whether s is a state of the machine.
func (m *Machine) Has(s State) bool { _, ok := m.phases[s]; return ok }

// States returns the states in alphabetical order.
func (m *Machine) States() []State {
	all := make([]State, 0, len(m.phases))
	for s := range m.phases {
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}
