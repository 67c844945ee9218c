package server

import (
	"context"
	"sync"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/maintenance"
)

// What a room may have beside a contract and a mount.
type (
	// multiContract is a room whose work is more than one contract of the engine; Contract is among
	// them.
	multiContract interface{ Contracts() []engine.Contract }

	// backgroundRunner is a room that does something by itself: it runs jobs or sends what is due.
	// Run is called once the engine is bound and ends, with all it started, within the grace after
	// ctx has ended.
	backgroundRunner interface{ Run(ctx context.Context) }

	// told is a room that takes the messages of its contracts' outbox, oldest first and at least
	// once. After an error it is given the same ones again.
	outboxConsumer interface {
		Deliver(ctx context.Context, messages []job.Message) error
	}

	// deliveryWaiter is a room that is told no messages before it is known that this node may take
	// them.
	deliveryWaiter interface {
		Await(ctx context.Context) bool
	}

	// healthChecker is a room that may be of no use although the store answers.
	healthChecker interface{ Checks() []httpapi.Check }
)

func engineContracts(r Contract) []engine.Contract {
	if p, ok := r.(multiContract); ok {
		return p.Contracts()
	}
	return []engine.Contract{r.Contract()}
}

func allEngineContracts(contracts []ServedContract) []engine.Contract {
	var all []engine.Contract
	for _, p := range contracts {
		_, consumes := p.Contract.(outboxConsumer)
		for _, c := range engineContracts(p.Contract) {
			c.Publish = c.Publish && consumes // else the outbox would keep what nobody takes
			all = append(all, c)
		}
	}
	return all
}

func healthChecks(contracts []ServedContract) []httpapi.Check {
	var all []httpapi.Check
	for _, p := range contracts {
		if c, ok := p.Contract.(healthChecker); ok {
			all = append(all, c.Checks()...)
		}
	}
	return all
}

// runContracts runs what is active in the rooms until ctx ends, and returns when all of it has
// ended.
func (s *Server) runContracts(ctx context.Context) {
	var wg sync.WaitGroup
	for _, p := range s.config.Contracts {
		if r, ok := p.Contract.(backgroundRunner); ok {
			wg.Go(func() { r.Run(ctx) })
		}
	}
	wg.Wait()
}

// outboxOutlets gives each room the messages of its contracts.
func outboxOutlets(contracts []ServedContract) []maintenance.Publisher {
	var all []maintenance.Publisher
	for _, p := range contracts {
		r, ok := p.Contract.(outboxConsumer)
		if !ok {
			continue
		}
		var names []string
		for _, c := range engineContracts(p.Contract) {
			if c.Publish {
				names = append(names, c.Name)
			}
		}
		if len(names) > 0 {
			o := maintenance.Publisher{Contracts: names, Deliver: r.Deliver}
			if a, ok := p.Contract.(deliveryWaiter); ok {
				o.Await = a.Await
			}
			all = append(all, o)
		}
	}
	return all
}
