package contract

import (
	"path/filepath"

	"github.com/millrace/millrace/internal/child"
	"github.com/millrace/millrace/internal/external"
)

// External is what the handlers of a contract that are not compiled in are made with.
func (n *Node) External(contract string) (external.Node, error) {
	args, err := n.Command(child.Subcommand)
	if err != nil {
		return external.Node{}, err
	}
	return external.Node{Child: args, Environ: n.Environ, Client: n.Client, Now: n.Now,
		Dir: filepath.Join(n.DataDir, "commands", contract)}, nil
}
