package server

import (
	"context"
	"sync"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/maintenance"
)

// jobTypesOf returns the job types that the contracts consist of. Where remote workers may end
// runs, they may record the ends too.
func jobTypesOf(contracts []*contract.Contract) []engine.JobType {
	var all []engine.JobType
	for _, c := range contracts {
		for _, t := range c.JobTypes {
			if ends := c.Workers.EndsOf(t.Name); ends != nil {
				t.RecordedEnds = ends
			}
			all = append(all, t)
		}
	}
	return all
}

// healthChecks returns the checks of all contracts.
func healthChecks(contracts []*contract.Contract) []httpapi.Check {
	var all []httpapi.Check
	for _, c := range contracts {
		all = append(all, c.Checks...)
	}
	return all
}

// runContracts runs the background work of the contracts and of the other APIs until ctx ends, and
// returns when all of it has ended.
func (s *Server) runContracts(ctx context.Context) {
	var wg sync.WaitGroup
	for _, c := range s.config.Contracts {
		if c.Run != nil {
			wg.Go(func() { c.Run(ctx) })
		}
	}
	for _, a := range s.config.Services {
		if a.Run != nil {
			wg.Go(func() { a.Run(ctx) })
		}
	}
	wg.Wait()
}

// outboxPublishers returns a publisher for each contract that publishes its outbox.
func outboxPublishers(contracts []*contract.Contract) []maintenance.Publisher {
	var all []maintenance.Publisher
	for _, c := range contracts {
		if c.Outbox != nil {
			all = append(all, maintenance.Publisher{JobTypes: c.PublishingJobTypes(),
				Deliver: c.Outbox.Deliver, Await: c.Outbox.Await})
		}
	}
	return all
}
