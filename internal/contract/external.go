package contract

import (
	"path/filepath"

	"github.com/millrace/millrace/internal/child"
	"github.com/millrace/millrace/internal/external"
)

// External is what the handlers of a contract that are not compiled in are made with.
func (d *Deps) External(contract string) (external.Factory, error) {
	args, err := d.Command(child.Subcommand)
	if err != nil {
		return external.Factory{}, err
	}
	return external.Factory{Child: args, Environ: d.Environ, Client: d.Client, Now: d.Now,
		Dir: filepath.Join(d.DataDir, "commands", contract)}, nil
}
