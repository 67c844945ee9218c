package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func configCommand(p process) *cobra.Command {
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
				fmt.Fprintln(p.stderr, "millrace:", text)
			}
			if asJSON {
				return withCode(exitFailed, s.Resolved().WriteJSON(p.stdout))
			}
			return withCode(exitFailed, s.Resolved().WriteText(p.stdout))
		},
	}
	flags.register(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, with a sentence about each setting")
	return c
}
