package engine_test

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/internal/store"
)

// faultKind is what a store does to one update.
type faultKind string

const (
	noFault    faultKind = ""
	refused    faultKind = "refused"     // it does not begin
	rolledBack faultKind = "rolled back" // it is carried out, and its commit fails
	answerLost faultKind = "answer lost" // it is committed, and the caller sees an error
	delayed    faultKind = "delayed"     // it begins after a while
)

// fault is what happens to an update of the next verb.
type fault struct {
	kind    faultKind
	at      int           // the number of the update within the verb, from 1
	delay   time.Duration // of a delayed one
	crashes bool          // the node dies before it can do anything more
}

// simulatedStore is a store with a fault for the next verb, and with outages. All nodes of a
// simulation share it, one call at a time.
type simulatedStore struct {
	store.Store
	fault   fault
	updates int  // of the verb
	hit     bool // the fault has happened
	isDown  bool
	wait    func(time.Duration)
}

// plan sets the fault of the next verb.
func (s *simulatedStore) plan(f fault) { s.fault, s.updates, s.hit = f, 0, false }

func (s *simulatedStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	s.updates++
	if s.isDown {
		s.hit = true
		return errLost
	}
	if s.updates != s.fault.at {
		if s.hit && s.fault.crashes { // a dead node does nothing more
			return errLost
		}
		return s.Store.Update(ctx, fn)
	}
	switch s.fault.kind {
	case refused:
		s.hit = true
		return errLost
	case rolledBack:
		err := s.Store.Update(ctx, func(tx store.Tx) error {
			if err := fn(tx); err != nil {
				return err
			}
			return errDiscarded
		})
		if s.hit = errors.Is(err, errDiscarded); s.hit {
			return errLost
		}
		return err
	case delayed:
		s.wait(s.fault.delay)
	}
	err := s.Store.Update(ctx, fn)
	if s.hit = s.fault.kind == answerLost && err == nil; s.hit {
		return errLost
	}
	return err
}

func (s *simulatedStore) View(ctx context.Context, fn func(store.Reader) error) error {
	if s.isDown || (s.hit && s.fault.crashes) {
		return errLost
	}
	return s.Store.View(ctx, fn)
}
