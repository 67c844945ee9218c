package wordcount

import (
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
)

// Define declares WordCount with settings that are still to be read. Build is called once they are, and
// reads what s then holds; a node that does not serve WordCount never calls it.
func Define() *contract.Definition {
	s := new(Settings)
	return &contract.Definition{Settings: s.Group(), OpenAPI: OpenAPI,
		Build: func(d *contract.Deps) (*contract.Contract, error) {
			w, err := New(Config{
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
			return w.Offer(), nil
		}}
}

// Offer is what WordCount offers the process: its jobs, the API, a pool that executes the jobs, and
// their description for the worker API. It publishes no messages, so it has no outbox, and depends
// on nothing but the store, so it has no checks.
func (w *WordCount) Offer() *contract.Contract {
	workers := w.RemoteWorkers()
	return &contract.Contract{
		Name:     Name,
		Listen:   w.Listen,
		OpenAPI:  OpenAPI,
		JobTypes: []engine.JobType{w.JobType()},
		Mount:    w.Mount,
		Run:      w.Run,
		Workers:  &workers,
	}
}
