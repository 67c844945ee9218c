package taskflow

import (
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
)

// Limits of request bodies, in bytes: of one job and of a whole graph (G-TF-32).
const (
	maxBodyBytes      = 1 << 20
	maxGraphBodyBytes = 16 << 20
)

// Define declares TaskFlow with settings that are still to be read. On a node without workers the
// jobs of queues with a handler wait for another node.
func Define() *contract.Definition {
	s := new(Settings)
	return &contract.Definition{Settings: s.Group(), OpenAPI: OpenAPI,
		Errors: errorTable, CheckQueue: checkQueue,
		Build: func(d *contract.Deps) (*contract.Contract, error) {
			programs, err := d.External(Name)
			if err != nil {
				return nil, err
			}
			t, err := New(Config{
				Settings:       *s,
				Engine:         d.Engine,
				Log:            d.Log,
				Registry:       d.Registry(""),
				Tracing:        d.Tracing,
				Now:            d.Now,
				Random:         d.Random,
				Callbacks:      d.Callbacks,
				BodyLimit:      maxBodyBytes,
				GraphBodyLimit: maxGraphBodyBytes,
				Node:           d.Name,
				NoLocalWorkers: d.NoLocalWorkers,
				External:       programs,
				Grace:          d.Grace,
			})
			if err != nil {
				return nil, err
			}
			return t.Offer(), nil
		}}
}

// Offer is what TaskFlow offers the process. Run executes the jobs of queues with a handler,
// Workers offers those of all other queues to remote workers.
func (t *TaskFlow) Offer() *contract.Contract {
	workers := t.RemoteWorkers()
	return &contract.Contract{
		Name:      Name,
		Listen:    t.Listen,
		OpenAPI:   OpenAPI,
		JobTypes:  []engine.JobType{t.JobType()},
		Mount:     t.Mount,
		Run:       t.Run,
		Workers:   &workers,
		Operators: t.operators(),
	}
}
