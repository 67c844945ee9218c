package relay

import (
	"net/http"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
)

// Define declares Relay with settings that are still to be read. Relay uses nothing of the node but
// the store: its jobs are executed by its own clients over HTTP, so it has no part in the worker
// API.
func Define() *contract.Definition {
	s := new(Settings)
	return &contract.Definition{Settings: s.Group(), OpenAPI: OpenAPI,
		Errors: errorTable(http.StatusTooManyRequests),
		Build: func(d *contract.Deps) (*contract.Contract, error) {
			r, err := New(Config{
				Settings: *s,
				Engine:   d.Engine,
				Log:      d.Log,
				Registry: d.Registry(""),
				Tracing:  d.Tracing,

				Callbacks: d.Callbacks,
			})
			if err != nil {
				return nil, err
			}
			return r.Offer(), nil
		}}
}

// Offer is what Relay offers the process. It has no Workers: its jobs are executed by callers of
// its own routes alone, and their leases are expired by the maintenance of the engine.
func (r *Relay) Offer() *contract.Contract {
	return &contract.Contract{
		Name:      Name,
		Listen:    r.Listen,
		OpenAPI:   OpenAPI,
		JobTypes:  []engine.JobType{r.JobType()},
		Mount:     r.Mount,
		Run:       r.Run,
		Operators: r.operators(),
	}
}
