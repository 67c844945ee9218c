package server

import (
	"context"
	"sync"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/maintenance"
)

// The interfaces that a contract may implement in addition to Contract.
type (
	// multiContract is a contract with several job types, each of which is a contract to the
	// engine. The one that Contract returns is among them.
	multiContract interface{ Contracts() []engine.Contract }

	// backgroundRunner is a contract with background work, such as the execution of jobs or the
	// delivery of webhooks. Run is called after Mount and returns, with everything it has
	// started, within the grace after ctx has ended.
	backgroundRunner interface{ Run(ctx context.Context) }

	// outboxConsumer is a contract that publishes the messages of its outbox. Deliver receives
	// them oldest first and at least once; after an error it receives the same ones again.
	outboxConsumer interface {
		Deliver(ctx context.Context, messages []job.Message) error
	}

	// deliveryWaiter is an outboxConsumer whose Deliver must not be called before Await has
	// reported true. Await waits while this node may not deliver, and reports false when ctx has
	// ended.
	deliveryWaiter interface {
		Await(ctx context.Context) bool
	}

	// healthChecker is a contract that depends on more than the store.
	healthChecker interface{ Checks() []httpapi.Check }
)

// engineContracts returns the contracts of the engine that a contract consists of.
func engineContracts(c Contract) []engine.Contract {
	if several, ok := c.(multiContract); ok {
		return several.Contracts()
	}
	return []engine.Contract{c.Contract()}
}

// allEngineContracts returns the contracts of the engine. The outbox is switched off for those
// that no contract publishes: their messages would stay in it for ever.
func allEngineContracts(contracts []ServedContract) []engine.Contract {
	var all []engine.Contract
	for _, served := range contracts {
		_, consumes := served.Contract.(outboxConsumer)
		for _, c := range engineContracts(served.Contract) {
			c.Publish = c.Publish && consumes
			all = append(all, c)
		}
	}
	return all
}

// healthChecks returns the checks of all contracts.
func healthChecks(contracts []ServedContract) []httpapi.Check {
	var all []httpapi.Check
	for _, served := range contracts {
		if c, ok := served.Contract.(healthChecker); ok {
			all = append(all, c.Checks()...)
		}
	}
	return all
}

// runContracts runs the background work of the contracts until ctx ends, and returns when all of it
// has ended.
func (s *Server) runContracts(ctx context.Context) {
	var wg sync.WaitGroup
	for _, served := range s.config.Contracts {
		if runner, ok := served.Contract.(backgroundRunner); ok {
			wg.Go(func() { runner.Run(ctx) })
		}
	}
	wg.Wait()
}

// outboxPublishers returns a publisher for each contract that publishes its outbox.
func outboxPublishers(contracts []ServedContract) []maintenance.Publisher {
	var all []maintenance.Publisher
	for _, served := range contracts {
		consumer, ok := served.Contract.(outboxConsumer)
		if !ok {
			continue
		}
		var names []string
		for _, c := range engineContracts(served.Contract) {
			if c.Publish {
				names = append(names, c.Name)
			}
		}
		if len(names) == 0 {
			continue
		}
		publisher := maintenance.Publisher{Contracts: names, Deliver: consumer.Deliver}
		if waiter, ok := served.Contract.(deliveryWaiter); ok {
			publisher.Await = waiter.Await
		}
		all = append(all, publisher)
	}
	return all
}
