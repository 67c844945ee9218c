package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

func configCommand(p cli.Process) *cobra.Command {
	var flags settingsFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "config",
		Short: "Print every setting as it is resolved, and where it comes from",
		Long: `Print every setting with its value and its origin: default, file, environment or
flag, each over the one before it. Secrets are masked. Settings that would stop
the start are named as 'serve' names them, with exit code 2.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := flags.load(p, c)
			if err != nil {
				return err
			}
			for _, text := range s.UnknownVariables() {
				fmt.Fprintln(p.Stderr, "millrace:", text)
			}
			if asJSON {
				return cli.WithCode(cli.ExitFailed, s.Resolved().WriteJSON(p.Stdout))
			}
			return cli.WithCode(cli.ExitFailed, s.Resolved().WriteText(p.Stdout))
		},
	}
	flags.register(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, with a sentence about each setting")
	return c
}
