package job

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// State is a contract's own word for where a job stands. Nowhere is the place
// of a job that is not stored: before it is submitted and after it is removed.
type State string

// StateNone is where a job comes from and where a removed job goes.
const StateNone State = ""

// Phase is what the store sees of a state.
type Phase uint8

// The four phases.
const (
	Waiting Phase = iota // not claimable yet: its time or its dependencies
	Ready                // may be claimed
	Leased               // held by a run
	Done                 // over
)

var phaseNames = [...]string{"waiting", "ready", "leased", "done"}

func (p Phase) String() string { return phaseNames[p] }

// Cause is why a job moves. Nothing but a cause changes a state.
type Cause string

// The causes. The ...ForGood forms are chosen by the engine when a move that
// counts has used up the job's runs.
const (
	Submitted      Cause = "submitted"        // the job is stored
	Replaced       Cause = "replaced"         // its definition is exchanged by its owner
	Due            Cause = "due"              // its time has come
	Satisfied      Cause = "satisfied"        // all it waited for is settled well
	Unsatisfiable  Cause = "unsatisfiable"    // something it waits for will never be
	Claimed        Cause = "claimed"          // handed to a worker
	Started        Cause = "started"          // the worker began (two-step contracts)
	Succeeded      Cause = "succeeded"        // the run ended well
	Failed         Cause = "failed"           // the run failed and may be tried again
	FailedForGood  Cause = "failed_for_good"  // the run failed and that was the last
	Expired        Cause = "expired"          // the run was silent for longer than its lease
	ExpiredForGood Cause = "expired_for_good" // ... and that was the last
	Released       Cause = "released"         // the worker gave it back unharmed
	Requeued       Cause = "requeued"         // swapped for other jobs by its run
	Canceled       Cause = "canceled"
	Retried        Cause = "retried" // asked to run again by a person or client
	Removed        Cause = "removed"
)

// Causes returns every cause, for exhaustive tests.
func Causes() []Cause {
	return []Cause{Submitted, Replaced, Due, Satisfied, Unsatisfiable, Claimed, Started, Succeeded,
		Failed,
		FailedForGood, Expired, ExpiredForGood, Released, Requeued, Canceled, Retried, Removed}
}

// Move is one row of a contract's table: in From, On leads to To.
type Move struct {
	From State
	On   Cause
	To   State
	// CountsFailed makes the move use up one of the job's runs. When the last is used
	// up the engine takes the ForGood form of the cause instead.
	CountsFailed bool
	// CountsLost makes the move count as a lost run, of which the contract allows a
	// number of their own. With the last one the engine takes the ForGood form too.
	CountsLost bool
	// DeadLetter keeps a dead letter of the job.
	DeadLetter bool
}

// Machine is a contract's transition table. What it does not hold does not
// happen: the engine answers Conflict.
type Machine struct {
	phases    map[State]Phase
	moves     map[trigger]Move
	successes map[State]bool // success leads there
}

type trigger struct {
	from State
	on   Cause
}

// NewMachine builds a machine from the phase of each state and the moves. It
// refuses a table that names an unknown state, decides a pair twice, counts
// without saying where the last failure leads, cannot begin, or has a state in
// which a job would be stuck: a ready one that cannot be claimed, a leased one
// that cannot expire, a waiting one that neither time nor dependencies end.
func NewMachine(phases map[State]Phase, moves []Move) (*Machine, error) {
	m := &Machine{phases: maps.Clone(phases), moves: make(map[trigger]Move, len(moves)),
		successes: map[State]bool{}}
	for _, mv := range moves {
		t := trigger{mv.From, mv.On}
		if _, twice := m.moves[t]; twice {
			return nil, fmt.Errorf("machine: %q on %s is decided twice", mv.From, mv.On)
		}
		for _, s := range []State{mv.From, mv.To} {
			if _, known := phases[s]; !known && s != StateNone {
				return nil, fmt.Errorf("machine: state %q has no phase", s)
			}
		}
		m.moves[t] = mv
		if mv.On == Succeeded {
			m.successes[mv.To] = true
		}
	}
	if err := m.validateStates(); err != nil {
		return nil, err
	}
	for _, mv := range moves {
		if err := m.validateMove(mv); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Machine) validateStates() error {
	if m.Has(StateNone) {
		return errors.New("machine: nowhere is no state and has no phase")
	}
	if mv, ok := m.Next(StateNone, Submitted); !ok || mv.To == StateNone {
		return fmt.Errorf("machine: no move for %s", Submitted)
	}
	for _, s := range m.States() {
		ways := []Cause{Due, Satisfied}
		switch m.phases[s] {
		case Ready:
			ways = []Cause{Claimed}
		case Leased:
			ways = []Cause{Expired}
		case Done:
			continue
		}
		if !slices.ContainsFunc(ways, func(on Cause) bool { _, ok := m.Next(s, on); return ok }) {
			return fmt.Errorf("machine: a job would be stuck in %q, which is %s and has no move "+
				"for any of %v", s, m.phases[s], ways)
		}
	}
	return nil
}

func (m *Machine) validateMove(mv Move) error {
	if mv.From == StateNone && mv.On != Submitted {
		return fmt.Errorf("machine: %s cannot happen to a job that is nowhere", mv.On)
	}
	if mv.CountsFailed || mv.CountsLost {
		if _, ok := m.Next(mv.From, mv.On.ForGood()); !ok || mv.On.ForGood() == mv.On {
			return fmt.Errorf("machine: %q on %s counts but has no last time", mv.From, mv.On)
		}
	}
	leased := mv.To != StateNone && m.phases[mv.To] == Leased
	if mv.On == Claimed && (m.phases[mv.From] != Ready || !leased) {
		return fmt.Errorf("machine: %q on %s must lead from a ready to a leased state", mv.From,
			mv.On)
	}
	if leased && mv.On != Claimed && (mv.From == StateNone || m.phases[mv.From] != Leased) {
		return fmt.Errorf("machine: %q on %s enters a leased state without a claim", mv.From, mv.On)
	}
	return nil
}

// MustMachine is NewMachine for tables written in code: a wrong one is a defect
// found by the first test that touches the package.
func MustMachine(phases map[State]Phase, moves []Move) *Machine {
	m, err := NewMachine(phases, moves)
	if err != nil {
		panic(err)
	}
	return m
}

// ForGood returns the form of a cause that applies when no run is left.
func (c Cause) ForGood() Cause {
	switch c {
	case Failed:
		return FailedForGood
	case Expired, Released: // a run that is given up is as good as lost
		return ExpiredForGood
	default:
		return c
	}
}

// Next looks a move up.
func (m *Machine) Next(from State, on Cause) (Move, bool) {
	mv, ok := m.moves[trigger{from, on}]
	return mv, ok
}

// Phase returns the phase of a state; Done for Nowhere.
func (m *Machine) Phase(s State) Phase {
	if s == StateNone {
		return Done
	}
	return m.phases[s]
}

// IsSuccess reports whether a settled state is one that success leads to.
func (m *Machine) IsSuccess(s State) bool { return m.successes[s] }

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
