//go:build unix

package main

import (
	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/bench"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/cmd/millrace/internal/demo"
)

// serverCommands are the commands that are a server, start one, or use its files. All others talk
// to a server over HTTP.
func serverCommands(p cli.Process) []*cobra.Command {
	return []*cobra.Command{serveCommand(p), configCommand(p), migrateCommand(p), backupCommand(p),
		restoreCommand(p), operatorCommand(p), exportCommand(p), demo.Command(p),
		demo.WorkerCommand(p), pictureCommand(p), bench.Command(p)}
}
