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

// The causes. The engine chooses the ForGood forms when a move that counts has used up the job's
// attempts.
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

// Move is one transition, a row of a contract's table: in From, the cause On leads to To.
type Move struct {
	From State
	On   Cause
	To   State
	// CountsFailed makes the move count as a failed attempt. With the last one that the job may
	// have the engine takes the ForGood form of the cause instead.
	CountsFailed bool
	// Immediate makes the job ready without the delay of its retry policy, which follows other
	// moves that count as a failed attempt.
	Immediate bool
	// CountsLost makes the move count as a lost attempt, of which the contract allows a number of
	// its own. With the last one the engine takes the ForGood form as well.
	CountsLost bool
	// DeadLetter keeps a dead letter of the job.
	DeadLetter bool
}

// Machine is a contract's transition table. To a cause for which it has no move the engine answers
// Conflict.
type Machine struct {
	phases    map[State]Phase
	moves     map[trigger]Move
	successes map[State]bool // success leads there
}

type trigger struct {
	from State
	on   Cause
}

// NewMachine makes a machine from the phase of each state and the moves. It refuses a table that
// names an unknown state, has two moves for a state and cause, has a move that counts but none for
// the last failure, has no move for Submitted, or has a state in which a job would be stuck: a
// ready one that cannot be claimed, a leased one that cannot expire, a waiting one that neither
// time nor dependencies end.
func NewMachine(phases map[State]Phase, moves []Move) (*Machine, error) {
	m := &Machine{phases: maps.Clone(phases), moves: make(map[trigger]Move, len(moves)),
		successes: map[State]bool{}}
	for _, mv := range moves {
		t := trigger{mv.From, mv.On}
		if _, twice := m.moves[t]; twice {
			return nil, fmt.Errorf("machine: %q on %s has two moves", mv.From, mv.On)
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
		return errors.New("machine: the empty state has no phase")
	}
	if mv, ok := m.Next(StateNone, Submitted); !ok || mv.To == StateNone {
		return fmt.Errorf("machine: no move for %s", Submitted)
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
			return fmt.Errorf("machine: a job would be stuck in %q, which is %s and has no move "+
				"for any of %v", s, m.phases[s], causes)
		}
	}
	return nil
}

func (m *Machine) validateMove(mv Move) error {
	if mv.From == StateNone && mv.On != Submitted {
		return fmt.Errorf("machine: %s cannot happen to a job that is not stored", mv.On)
	}
	if mv.CountsFailed || mv.CountsLost {
		if _, ok := m.Next(mv.From, mv.On.ForGood()); !ok || mv.On.ForGood() == mv.On {
			return fmt.Errorf("machine: %q on %s counts but has no move for the last attempt",
				mv.From, mv.On)
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

// MustMachine is NewMachine for tables in code: it panics where the table is wrong.
func MustMachine(phases map[State]Phase, moves []Move) *Machine {
	m, err := NewMachine(phases, moves)
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

// Next returns the move for a cause in a state, if there is one.
func (m *Machine) Next(from State, on Cause) (Move, bool) {
	mv, ok := m.moves[trigger{from, on}]
	return mv, ok
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
	for _, mv := range m.moves {
		leaves = leaves || mv.DeadLetter
		kept = kept || (mv.DeadLetter && mv.To != StateNone)
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
