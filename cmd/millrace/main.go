package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/cmd/millrace/internal/demo"
	"github.com/millrace/millrace/cmd/millrace/internal/simulate"
)

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
	}))
}

// run runs the command that the arguments name and returns the code to exit with.
func run(p cli.Process) int {
	root := rootCommand(p)
	root.SetArgs(p.Args)
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	err := root.Execute()
	if text := cli.ErrorText(err); text != "" {
		fmt.Fprintln(p.Stderr, text)
	}
	return cli.ExitCode(err)
}

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
		Args:          noSuchCommand,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },

		PersistentPreRun: func(c *cobra.Command, _ []string) { warnMisspelledVariables(p, c) },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		serveCommand(p), configCommand(p), migrateCommand(p), operatorCommand(p), versionCommand(p),
		enqueueCommand(p), workCommand(p), graphCommand(p), fetchCommand(p), imagesCommand(p),
		exportCommand(p),
		demo.Command(p), demo.WorkerCommand(p), pictureCommand(p), simulate.Command(p),
		benchCommand(p),
	)
	return root
}
