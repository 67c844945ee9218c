package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	start := time.Now()
	os.Exit(run(process{
		args:    os.Args[1:],
		environ: os.Environ(),
		stdin:   os.Stdin,
		stdout:  os.Stdout,
		stderr:  os.Stderr,
		now:     time.Now,
		elapsed: func() time.Duration { return time.Since(start) },
	}))
}

// run runs the command that the arguments name and returns the code to exit with.
func run(p process) int {
	root := rootCommand(p)
	root.SetArgs(p.args)
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	err := root.Execute()
	if text := errorText(err); text != "" {
		fmt.Fprintln(p.stderr, text)
	}
	return exitCode(err)
}

func rootCommand(p process) *cobra.Command {
	root := &cobra.Command{
		Use:     "millrace",
		Short:   "Millrace is a self-hosted job platform in one binary",
		Version: readBuildInfo().Version,
		Long: `Millrace is a self-hosted job platform in one binary: a durable queue, workers in
any language over plain HTTP, and the tools to feed and watch them.

  millrace serve        starts a server; it needs nothing else
  millrace demo         shows what it does, on files of yours

` + exitHelp,
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
		demoCommand(p), demoWorkerCommand(p), pictureCommand(p), simulateCommand(p),
		benchCommand(p),
	)
	return root
}
