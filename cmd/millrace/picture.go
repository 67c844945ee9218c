package main

import (
	"errors"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/contract/images/picture"
)

// ownCommand returns how the process starts one of its own subcommands: this very binary, on Linux
// even when another has been put in its place meanwhile, as the two must speak the same.
func ownCommand(name string) ([]string, error) {
	if runtime.GOOS == "linux" {
		return []string{"/proc/self/exe", name}, nil
	}
	self, err := os.Executable()
	return []string{self, name}, err
}

// pictureCommand is `millrace picture`, the hidden command of the child that processes one picture.
// Its arguments and its standard files are a protocol of package picture, which no user sees; a
// picture that exhausts memory or time ends this process and not the server.
func pictureCommand(p cli.Process) *cobra.Command {
	return &cobra.Command{
		Use:                images.PictureCommand,
		Short:              "process one picture (used by the server)",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if code := picture.Child(p.Stdin, p.Stdout, args); code != cli.ExitOK {
				return cli.WithCode(code, errors.New("no picture was processed"))
			}
			return nil
		},
	}
}
