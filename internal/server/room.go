package server

import (
	"context"
	"errors"
	"sync"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// What a room may have beside a contract and a mount.
type (
	// plural is a room whose work is more than one contract of the engine; Contract is among them.
	plural interface{ Contracts() []engine.Contract }

	// active is a room that does something by itself: it runs jobs or sends what is due. Run is called once the engine is
	// bound and ends, with all it started, within the grace after ctx has ended.
	active interface{ Run(ctx context.Context) }

	// told is a room that takes the messages of its contracts' outbox, oldest first and at least once. After an error it
	// is given the same ones again.
	told interface {
		Deliver(ctx context.Context, messages []job.Message) error
	}

	// checked is a room that may be of no use although the store answers.
	checked interface{ Checks() []httpapi.Check }
)

func contractsIn(r Room) []engine.Contract {
	if p, ok := r.(plural); ok {
		return p.Contracts()
	}
	return []engine.Contract{r.Contract()}
}

func contractsOf(places []Place) []engine.Contract {
	var all []engine.Contract
	for _, p := range places {
		all = append(all, contractsIn(p.Room)...)
	}
	return all
}

func checksOf(places []Place) []httpapi.Check {
	var all []httpapi.Check
	for _, p := range places {
		if c, ok := p.Room.(checked); ok {
			all = append(all, c.Checks()...)
		}
	}
	return all
}

// runRooms runs what is active in the rooms until ctx ends, and returns when all of it has ended.
func (s *Server) runRooms(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range s.config.Places {
		if r, ok := p.Room.(active); ok {
			all.Go(func() { r.Run(ctx) })
		}
	}
	all.Wait()
}

// deliverer gives each room the messages of its contracts; nil when no room takes any.
func deliverer(places []Place) func(context.Context, []job.Message) error {
	var rooms []told
	of := map[string]int{} // contract to its place in rooms
	for _, p := range places {
		r, ok := p.Room.(told)
		if !ok {
			continue
		}
		for _, c := range contractsIn(p.Room) {
			of[c.Name] = len(rooms)
		}
		rooms = append(rooms, r)
	}
	if len(rooms) == 0 {
		return nil
	}
	return func(ctx context.Context, messages []job.Message) error {
		shares := make([][]job.Message, len(rooms))
		for i := range messages {
			if n, known := of[messages[i].JobID.Contract]; known {
				shares[n] = append(shares[n], messages[i])
			}
		}
		var errs []error // one room that fails keeps nothing from the others
		for i, share := range shares {
			if len(share) > 0 {
				errs = append(errs, rooms[i].Deliver(ctx, share))
			}
		}
		return errors.Join(errs...)
	}
}
