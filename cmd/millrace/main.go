package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/audit"
	"github.com/millrace/millrace/cmd/millrace/internal/bulk"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/cmd/millrace/internal/clients"
	"github.com/millrace/millrace/cmd/millrace/internal/dlq"
	"github.com/millrace/millrace/cmd/millrace/internal/enqueue"
	"github.com/millrace/millrace/cmd/millrace/internal/fetch"
	"github.com/millrace/millrace/cmd/millrace/internal/graph"
	"github.com/millrace/millrace/cmd/millrace/internal/images"
	"github.com/millrace/millrace/cmd/millrace/internal/inbox"
	"github.com/millrace/millrace/cmd/millrace/internal/jobs"
	"github.com/millrace/millrace/cmd/millrace/internal/login"
	"github.com/millrace/millrace/cmd/millrace/internal/nodes"
	"github.com/millrace/millrace/cmd/millrace/internal/queues"
	"github.com/millrace/millrace/cmd/millrace/internal/schedules"
	"github.com/millrace/millrace/cmd/millrace/internal/simulate"
	"github.com/millrace/millrace/cmd/millrace/internal/top"
	"github.com/millrace/millrace/cmd/millrace/internal/webhooks"
	"github.com/millrace/millrace/cmd/millrace/internal/work"
	"github.com/millrace/millrace/internal/child"
)

// main gives the commands the real process. Tests call run with buffers in the place of files.
func main() {
	start := time.Now()
	os.Exit(run(cli.Process{
		Args:    os.Args[1:],
		Environ: os.Environ(),
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
		Now:     time.Now,
		Elapsed: func() time.Duration { return time.Since(start) },

		SettingsServer: settingsServer,
	}))
}

// run runs the command that the arguments name and returns the code to exit with. It writes the
// error of the command to standard error, unless it is in the log. An error without a code of its
// own is one of the command line, such as an unknown command. The command by which a server starts
// the programs of operators is not among the others, as it has to be fast and reads no settings.
func run(p cli.Process) int {
	if len(p.Args) > 0 && p.Args[0] == child.Subcommand {
		return child.Exec(p.Args[1:], p.Environ, p.Stderr)
	}
	root := rootCommand(p)
	root.SetArgs(p.Args)
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	helpFailure := cli.CheckHelp(root)
	c, err := root.ExecuteC()
	err = errors.Join(err, helpFailure())
	for _, text := range []string{cli.ErrorText(err), cli.ErrorHint(p, c, err)} {
		if text != "" {
			fmt.Fprintln(p.Stderr, text)
		}
	}
	return cli.ExitCode(err)
}

// rootCommand is `millrace` with all its subcommands. Errors are written by run, not by cobra.
func rootCommand(p cli.Process) *cobra.Command {
	root := &cobra.Command{
		Use:     "millrace",
		Short:   "Millrace is a self-hosted job platform in one binary",
		Version: cli.ReadBuildInfo().Version,
		Long: `Millrace is a self-hosted job platform in one binary: a durable queue, workers in
any language over plain HTTP, and the tools to feed and watch them.

  millrace serve        starts a server; it needs nothing else
  millrace demo         shows what it does, on files of yours

` + cli.ExitHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cli.NoSuchCommand,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },

		PersistentPreRun: func(c *cobra.Command, _ []string) { warnMisspelledVariables(p, c) },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return flagError(p.Args, c, err)
	})
	root.AddCommand(serverCommands(p)...)
	root.AddCommand(
		healthCommand(p), versionCommand(p),
		enqueue.Command(p), work.Command(p, workedContracts()), graph.Command(p), fetch.Command(p),
		images.Command(p),
		jobs.Command(p, newOperator),
		jobs.WhyCommand(p, newOperator()), queues.Command(p, newOperator),
		dlq.Command(p, newOperator), inbox.Command(p, newOperator), bulk.Command(p, newOperator),
		nodes.WorkersCommand(p, newOperator), nodes.Command(p, newOperator),
		schedules.Command(p, newOperator), clients.Command(p, newOperator),
		webhooks.Command(p, newOperator),
		top.Command(p, newOperator()),
		audit.Command(p, newOperator()), login.Command(p), login.LogoutCommand(p),
		simulate.Command(p),
	)
	return root
}

// versionCommand is `millrace version`. A line whose value the build does not have, such as the
// revision of a build without version control, is left out.
func versionCommand(p cli.Process) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary and of what it contains",
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
