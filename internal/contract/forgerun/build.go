package forgerun

import "github.com/millrace/millrace/internal/contract"

// Define declares ForgeRun with settings that are still to be read. The process calls Build after
// it has read them. An error of the pepper, such as a file that other users can read, prevents the
// start.
func Define() *contract.Definition {
	s := new(Settings)
	return &contract.Definition{Settings: s.Group(), UsesPepper: true,
		Build: func(n *contract.Node) (*contract.Contract, error) {
			pepper, err := n.Pepper()
			if err != nil {
				return nil, err
			}
			f, err := New(Config{
				Settings: s.forNode(n),
				Engine:   n.Engine,
				Log:      n.Log,
				Registry: n.Registry(""),
				Tracing:  n.Tracing,
				Now:      n.Now,
				Elapsed:  n.Elapsed,
				Random:   n.Random,
				Pepper:   pepper,
				Node:     n.Name,
				Client:   n.Client,
				Grace:    n.Grace,
			})
			if err != nil {
				return nil, err
			}
			return f.Offer(), nil
		}}
}

// forNode returns the settings without workers where other nodes execute the jobs. The setting
// itself cannot be 0.
func (s Settings) forNode(n *contract.Node) Settings {
	if n.NoWorkers {
		s.Workers = 0
	}
	return s
}

// Offer is what ForgeRun offers the process. Everyone may become a client of ForgeRun (FR-037).
func (f *ForgeRun) Offer() *contract.Contract {
	workers := f.RemoteWorkers()
	return &contract.Contract{
		Name:      Name,
		Listen:    f.Listen,
		OpenAPI:   OpenAPI,
		Jobs:      f.Contracts(),
		Mount:     f.Mount,
		Run:       f.Run,
		Outbox:    &contract.Outbox{Deliver: f.Deliver},
		Checks:    f.Checks(),
		Workers:   &workers,
		Operators: f.operators(),
		Webhooks:  f.webhooks,
		Accounts:  f.accounts,
		Open:      []string{"/v1/clients"},
	}
}
