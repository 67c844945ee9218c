package fetchbox

import (
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/stream"
)

// maxProcesses bounds the processes of the handler of one job type at a time. The submits and
// downloads beyond it wait.
const maxProcesses = 16

// Define declares FetchBox with settings that are still to be read. The process calls Streams and
// Build after it has read them, so both see the values of the configuration.
//
// Its downloads do not leave through Deps.Client but through egress clients of its own, made from
// Deps.Egress: a direct one, and one for each proxy of its pools.
func Define() *contract.Definition {
	s := new(Settings)
	return &contract.Definition{Settings: s.Group(handler.Options()), OpenAPI: OpenAPI,
		Errors: errorTable, UsesObjects: true, Export: Export,
		Streams: func() []stream.Spec {
			return Streams(s.TasksRetention, s.LogsRetention, s.DLQRetention)
		},
		Build: func(d *contract.Deps) (*contract.Contract, error) {
			programs, err := d.External(Name)
			if err != nil {
				return nil, err
			}
			programs.MaxProcesses = maxProcesses
			f, err := New(Config{
				Settings:       *s,
				Engine:         d.Engine,
				Log:            d.Log,
				Registry:       d.Registry(""),
				Tracing:        d.Tracing,
				Now:            d.Now,
				Elapsed:        d.Elapsed,
				Random:         d.Random,
				Node:           d.Name,
				Objects:        d.Objects,
				Streams:        d.Streams,
				Binding:        d.Binding,
				OperatorToken:  d.OperatorToken,
				NoLocalWorkers: d.NoLocalWorkers,
				Grace:          d.Grace,
				PruneInterval:  d.PruneInterval,
				Egress:         d.Egress,
				External:       programs,
				Callbacks:      d.Callbacks,
			})
			if err != nil {
				return nil, err
			}
			return f.Offer(), nil
		}}
}

// Offer is what FetchBox offers the process. Without an operator token its operators' routes are
// among those that need no credentials (G-FB-31).
func (f *FetchBox) Offer() *contract.Contract {
	workers := f.RemoteWorkers()
	c := &contract.Contract{
		Name:      Name,
		Listen:    f.Listen,
		OpenAPI:   OpenAPI,
		JobTypes:  f.JobTypes(),
		Mount:     f.Mount,
		Run:       f.Run,
		Outbox:    &contract.Outbox{Deliver: f.Deliver, Await: f.Await},
		Checks:    f.Checks(),
		Workers:   &workers,
		Operators: f.operators(),
		Manifests: &contract.Manifests{Jobs: Name, Resources: Tasks, Manifest: manifestOf,
			Resource: resourceOf},
	}
	if f.OperatorToken.Empty() {
		c.Open = []string{"/operators"}
	}
	return c
}
