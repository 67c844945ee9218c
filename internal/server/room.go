package server

import (
	"context"
	"sync"

	"github.com/millrace/millrace/internal/duty"
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

	// awaiting is a room that is told no messages before it is known that this node may take them.
	awaiting interface {
		Await(ctx context.Context) bool
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
		_, takes := p.Room.(told)
		for _, c := range contractsIn(p.Room) {
			c.Publish = c.Publish && takes // else the outbox would keep what nobody takes
			all = append(all, c)
		}
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

// outlets gives each room the messages of its contracts.
func outlets(places []Place) []duty.Outlet {
	var all []duty.Outlet
	for _, p := range places {
		r, ok := p.Room.(told)
		if !ok {
			continue
		}
		var names []string
		for _, c := range contractsIn(p.Room) {
			if c.Publish {
				names = append(names, c.Name)
			}
		}
		if len(names) > 0 {
			o := duty.Outlet{Contracts: names, Deliver: r.Deliver}
			if a, ok := p.Room.(awaiting); ok {
				o.Await = a.Await
			}
			all = append(all, o)
		}
	}
	return all
}
