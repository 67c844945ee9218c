// Package jobs is `millrace jobs`: what operators do with jobs of all contracts.
//
//	jobs.go               the actions with their filters, and submit
//	list.go, count.go     what there is, by the same filters
//	show.go, why.go       one job; remedies.go has the commands that may help it
package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/bulk"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// The commands that act on jobs are one table, as they differ in the action and in their help. With
// numbers they call the route of the action for each job; with filters they start one bulk
// operation (package bulk).

// Command is `millrace jobs`. Each of its commands gets a connection from operator.
func Command(p cli.Process, operator func() *cli.Operator) *cobra.Command {
	c := cli.Group("jobs", "Show, explain, change and submit jobs of every contract, as an operator")
	for _, a := range actions {
		c.AddCommand(a.command(p, operator()))
	}
	c.AddCommand(listCommand(p, operator()), countCommand(p, operator()),
		showCommand(p, operator()), WhyCommand(p, operator()), submitCommand(p, operator()))
	return c
}

// action is a command that acts on jobs (AD-016).
type action struct {
	name        client.AdminAction
	short, long string
}

// actions are the commands that act on jobs.
var actions = []action{
	{client.AdminActionRetry, "Make failed jobs ready once more",
		"Make failed jobs ready once more. They stay the same jobs."},
	{client.AdminActionRerun, "Make new jobs of jobs that are done",
		"Make new jobs of jobs that are done."},
	{client.AdminActionRunNow, "Make jobs due that wait for their time",
		"Make jobs due that wait for their time."},
	{client.AdminActionCancel, "Cancel jobs", "Cancel jobs."},
	{client.AdminActionRelease, "Give leased jobs back to their queues",
		"Give leased jobs back to their queues. What their workers do with them no longer counts."},
	{client.AdminActionDelete, "Delete jobs", "Delete jobs."},
}

// command is `millrace jobs NAME`.
func (a action) command(p cli.Process, operator *cli.Operator) *cobra.Command {
	c := &cobra.Command{
		Use:   string(a.name) + " [NUMBER...]",
		Short: a.short,
		Long: a.long + `

A job is named by its number. What follows, such as events and webhooks, is that of
the contract's own route. A job whose state does not allow it is left as it is, and
the error names what it allows.

With filters in place of numbers it is a bulk operation on all jobs that match: it
goes on in the server, and asks before. --yes answers, --dry-run only counts.`,
		Args: cobra.ArbitraryArgs,
	}
	s := bulk.Starter{Request: client.AdminBulkRequest{Action: a.name}, Noun: "job"}
	s.Register(c, func(f *pflag.FlagSet) { registerBulkFilter(p, f, &s.Request.Filter) })
	return cli.Each[any]{
		Check: func(numbers []string) error {
			return errors.Join(s.Check(numbers, "numbers of jobs"), cli.CheckNumbers(numbers))
		},
		Do: func(ctx context.Context, server *client.Admin, argument string) (any, error) {
			if argument == "" {
				return s.Start(ctx, p, server)
			}
			number, err := cli.ParseNumber(argument)
			if err != nil {
				return nil, err
			}
			return server.ActOnJob(ctx, number, a.name)
		},
		Done: func(argument string, result any) string {
			if j, isJob := result.(client.AdminActionResult); isJob {
				return describe(argument, j)
			}
			return fmt.Sprint(result)
		},
	}.Command(p, operator, c)
}

// registerBulkFilter adds the filters of jobs that the API has.
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
	cli.TimeVar(flags, p, &f.FinishedFrom, "settled-from", "jobs done at this time or later")
	cli.TimeVar(flags, p, &f.FinishedBefore, "settled-before", "jobs done before this time")
	flags.StringVar(&f.MinAge, "min-age", "", "jobs at least this `old`, such as 90m")
	flags.StringVar(&f.MaxAge, "max-age", "", "jobs less than this `old`")
	flags.IntVar(&f.MinAttempts, "min-attempts", 0, "jobs claimed so often at least")
	flags.StringVar(&f.ErrorContains, "error", "", "jobs with this `text` in their failure")
	flags.StringVar(&f.BodyContains, "text", "", "jobs with this `text` in definition, payload or result")
}

// describe returns the line about a job that was changed or made.
func describe(_ string, j client.AdminActionResult) string {
	text := fmt.Sprintf("job %d (%s, %s) is %s", j.Number, cli.QueueName(j.Contract, j.Queue), j.ID,
		j.State)
	if j.SourceNumber != nil {
		text += fmt.Sprintf(", made from job %d", *j.SourceNumber)
	}
	return cli.Printable(text)
}

// submitCommand is `millrace jobs submit` (AD-017).
func submitCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	var s client.AdminSubmission
	c := &cobra.Command{
		Use:   "submit [FILE]",
		Short: "Submit a job in place of a client",
		Long: `Submit a job in place of a client. FILE holds what the contract's own route would
take, a JSON object; without one, or with -, it is read from standard input.`,
		Args: cobra.MaximumNArgs(1),
	}
	c.Flags().StringVar(&s.Contract, "contract", "", "the contract, such as taskflow")
	c.Flags().StringVar(&s.Owner, "owner", "", "client of ForgeRun, or tenant of FetchBox")
	c.Flags().StringVar(&s.JobType, "job-type", "", "the job type of FetchBox")
	c.Flags().StringVar(&s.CallbackURL, "callback-url", "",
		"the `URL` that is notified of the end of the job")
	c.Flags().StringVar(&s.IdempotencyKey, "idempotency-key", "",
		"submissions with the same `key` are one job")
	_ = c.MarkFlagRequired("contract")
	return cli.Each[client.AdminActionResult]{
		Do: func(ctx context.Context, server *client.Admin,
			file string) (client.AdminActionResult, error) {
			text, err := cli.ReadDocument(ctx, p, file)
			switch {
			case ctx.Err() != nil:
				return client.AdminActionResult{}, cli.ErrInterrupted
			case err != nil:
				return client.AdminActionResult{}, cli.UsageError("%w", err)
			}
			var request json.RawMessage
			if err := json.Unmarshal(text, &request); err != nil {
				return client.AdminActionResult{}, cli.UsageError("%s: %w", file, cli.JSONError(err))
			}
			s.Request = request
			return server.SubmitJob(ctx, s)
		},
		Done:    describe,
		Default: "-",
	}.Command(p, operator, c)
}
