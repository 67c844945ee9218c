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
		Build: func(d *contract.Deps) (*contract.Contract, error) {
			t, err := New(Config{
				Settings: *s,
				Engine:   d.Engine,
				Log:      d.Log,
				Registry: d.Registry(""),
				Tracing:  d.Tracing,
				Now:      d.Now,
				Random:   d.Random,
				Node:     d.Name,

				NoLocalWorkers: d.NoLocalWorkers,
				Grace:          d.Grace,
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
