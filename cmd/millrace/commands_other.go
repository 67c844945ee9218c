//go:build !unix

package main

import (
	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// serverCommands are none: no server was ever tried here.
func serverCommands(cli.Process) []*cobra.Command { return nil }
