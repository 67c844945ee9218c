package tally

import (
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
)

// Define declares Tally with settings that are still to be read. Build is called once they are, and
// reads what s then holds; a node that does not serve Tally never calls it.
func Define() *contract.Definition {
	s := new(Settings)
	return &contract.Definition{Settings: s.Group(), OpenAPI: OpenAPI,
		Build: func(n *contract.Node) (*contract.Contract, error) {
			t, err := New(Config{
				Settings: *s,
				Engine:   n.Engine,
				Log:      n.Log,
				Registry: n.Registry(""),
				Tracing:  n.Tracing,
				Now:      n.Now,
				Random:   n.Random,
				Node:     n.Name,
				Grace:    n.Grace,
			})
			if err != nil {
				return nil, err
			}
			return t.Offer(), nil
		}}
}

// Offer is what Tally offers the process: its jobs, the API, a pool that executes the jobs, and
// their description for the worker API. It publishes no messages, so it has no outbox, and depends
// on nothing but the store, so it has no checks.
func (t *Tally) Offer() *contract.Contract {
	workers := t.RemoteWorkers()
	return &contract.Contract{
		Name:     Name,
		Listen:   t.Listen,
		OpenAPI:  OpenAPI,
		JobTypes: []engine.JobType{t.JobType()},
		Mount:    t.Mount,
		Run:      t.Run,
		Workers:  &workers,
	}
}
