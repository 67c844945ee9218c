package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

func versionCommand(p cli.Process) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print what this binary is made of",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := cli.ReadBuildInfo()
			if asJSON {
				return cli.WithCode(cli.ExitFailed, json.NewEncoder(p.Stdout).Encode(b))
			}
			fmt.Fprintf(p.Stdout, "millrace %s\n", b.Version)
			for _, line := range [][2]string{{"revision", b.Revision}, {"time", b.Time},
				{"go", b.Go},
				{"platform", b.Platform}, {"sqlite", b.SQLite}, {"postgres", b.Postgres}} {
				if line[1] != "" {
					fmt.Fprintf(p.Stdout, "%-9s %s\n", line[0], line[1])
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
