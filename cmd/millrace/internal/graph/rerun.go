package graph

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// rerunCommand is `millrace graph rerun`.
func rerunCommand(p cli.Process) *cobra.Command {
	var f flags
	var alone, again bool
	c := &cobra.Command{
		Use:   "rerun ID",
		Short: "Run the failed part of a TaskFlow graph again, as new jobs",
		Long: `Make new jobs of all that are FAILED or BLOCKED in the graph around a job: failed
jobs stay as they are, and the copies depend on each other as the originals did, and on
the jobs that have completed. The command prints the id of each original and of its
copy.

What was rerun before is left out, unless --again is given.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return f.rerun(p, args[0], alone, again)
		},
	}
	f.register(c)
	c.Flags().BoolVar(&alone, "job", false,
		"rerun the job itself, with its own ancestors and dependents alone")
	c.Flags().BoolVar(&again, "again", false, "rerun also what was rerun before")
	return c
}

// rerun reruns the graph around a job, or the job alone, and prints the ids. With --wait it then
// waits for the copies and draws them.
func (f *flags) rerun(p cli.Process, id string, alone, again bool) error {
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	c, err := f.remote.Client(p, nil)
	if err != nil {
		return err
	}
	rerun := c.TaskFlow().RerunGraph
	if alone {
		rerun = c.TaskFlow().Rerun
	}
	copies, err := rerun(ctx, id, again)
	if err != nil {
		return explainRerun(ctx, err)
	}
	originals := slices.Sorted(maps.Keys(copies))
	table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	for _, original := range originals {
		fmt.Fprintf(table, "%s\t%s\n", original, copies[original])
	}
	if err := table.Flush(); err != nil || !f.wait {
		return err
	}
	f.required = map[string]bool{}
	for _, made := range copies {
		f.required[made] = true
	}
	return f.drawAll(ctx, p, c.TaskFlow(), originals, copies)
}

// explainRerun names the copies of an earlier rerun in the error of a second one.
func explainRerun(ctx context.Context, err error) error {
	remote := cli.RemoteError(ctx, err)
	fail, is := errors.AsType[*client.Error](err)
	if !is || len(fail.Copies) == 0 {
		return remote
	}
	const shown = 5
	text := ""
	for i, original := range slices.Sorted(maps.Keys(fail.Copies)) {
		if i == shown {
			text += fmt.Sprintf("\n  and %d more", len(fail.Copies)-shown)
			break
		}
		text += "\n  " + original + " as " + fail.Copies[original]
	}
	return cli.WithCode(cli.ExitCode(remote),
		fmt.Errorf("%w; --again reruns it once more. It was rerun:%s", remote, text))
}
