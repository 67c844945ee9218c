package jobs

import (
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// registerBulkFilter adds the filters of jobs, which are those of the API.
func registerBulkFilter(p cli.Process, flags *pflag.FlagSet, f *client.AdminFilter) {
	cli.QueueVar(flags, &f.Contract, &f.Queue, "jobs of this ")
	flags.StringSliceVar(&f.States, "state", nil, "jobs in these `states`, with commas")
	flags.StringSliceVar(&f.Phases, "phase", nil,
		"jobs in these `phases`: waiting, ready, leased, done, dead")
	flags.StringVar(&f.Owner, "owner", "", "jobs of this client or tenant")
	flags.StringVar(&f.Kind, "kind", "", "jobs of this kind")
	flags.StringVar(&f.ID, "id", "", "the job with this `id` of its contract")
	flags.Int64SliceVar(&f.Numbers, "number", nil, "the jobs with these `numbers`, with commas")
	flags.Int64Var(&f.ParentNumber, "parent", 0, "the children of the job with this `number`")
	flags.StringVar(&f.Worker, "worker", "", "jobs of this worker")
	cli.TimeVar(flags, p, &f.CreatedFrom, "created-from", "jobs created at this time or later")
	cli.TimeVar(flags, p, &f.CreatedBefore, "created-before", "jobs created before this time")
	cli.TimeVar(flags, p, &f.FinishedFrom, "settled-from", "jobs over at this time or later")
	cli.TimeVar(flags, p, &f.FinishedBefore, "settled-before", "jobs over before this time")
	flags.StringVar(&f.MinAge, "min-age", "", "jobs at least this `old`, such as 90m")
	flags.StringVar(&f.MaxAge, "max-age", "", "jobs less than this `old`")
	flags.IntVar(&f.MinAttempts, "min-attempts", 0, "jobs claimed so often at least")
	flags.StringVar(&f.ErrorContains, "error", "", "jobs with this `text` in their failure")
	flags.StringVar(&f.BodyContains, "text", "", "jobs with this `text` in definition, payload or result")
}
