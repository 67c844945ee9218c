// Package queues is `millrace queues`: how operators see, pause and limit the queues of all
// contracts.
package queues

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/setting"
)

// A limit of a queue comes from the settings of the server or from an operator; that of the
// operator is in force until it is taken back. A command that changes a queue therefore sets the
// members that it names and leaves the others.

// columns are the columns of the table.
var columns = []cli.Column[client.AdminQueue]{
	{Name: "queue", Keep: true, Get: name},
	{Name: "ready", Right: true, Get: count(func(q client.AdminQueue) int64 { return q.Ready })},
	{Name: "oldest", Time: true, Get: oldest},
	{Name: "leased", Right: true, Get: count(func(q client.AdminQueue) int64 { return q.Leased })},
	{Name: "delayed", Right: true,
		Get: count(func(q client.AdminQueue) int64 { return q.Delayed })},
	{Name: "waiting", Right: true,
		Get: count(func(q client.AdminQueue) int64 { return q.Waiting })},
	{Name: "dead", Right: true, Get: count(func(q client.AdminQueue) int64 { return q.Dead }),
		Tone: func(q client.AdminQueue) cli.Tone {
			if q.Dead == 0 {
				return cli.ToneNone
			}
			return cli.ToneBad
		}},
	{Name: "paused", Get: paused, Tone: func(client.AdminQueue) cli.Tone { return cli.ToneWarn }},
	{Name: "workers", Right: true,
		Get: count(func(q client.AdminQueue) int64 { return int64(q.Workers) })},
	{Name: "asked", Time: true, Get: func(q client.AdminQueue) string {
		return cli.FormatTimePtr(q.LastClaimAt)
	}},
	{Name: "drains", Right: true, Get: drains},
	{Name: "started_per_minute", Right: true, Extra: true,
		Get: number(func(q client.AdminQueue) *float64 { return q.StartedPerMinute })},
	{Name: "failed_per_minute", Right: true, Extra: true,
		Get:  number(func(q client.AdminQueue) *float64 { return q.FailedPerMinute }),
		Tone: func(client.AdminQueue) cli.Tone { return cli.ToneBad }},
	{Name: "submitted_per_minute", Right: true, Extra: true,
		Get: number(func(q client.AdminQueue) *float64 { return q.SubmittedPerMinute })},
	{Name: "succeeded_per_minute", Right: true, Extra: true,
		Get: number(func(q client.AdminQueue) *float64 { return q.SucceededPerMinute })},
	{Name: "wait_p50", Right: true, Extra: true,
		Get: seconds(func(q client.AdminQueue) *float64 { return q.WaitP50 })},
	{Name: "wait_p95", Right: true, Extra: true,
		Get: seconds(func(q client.AdminQueue) *float64 { return q.WaitP95 })},
	{Name: "run_p50", Right: true, Extra: true,
		Get: seconds(func(q client.AdminQueue) *float64 { return q.RunP50 })},
	{Name: "run_p95", Right: true, Extra: true,
		Get: seconds(func(q client.AdminQueue) *float64 { return q.RunP95 })},
	{Name: "run_limit", Right: true, Get: maxRunning},
	{Name: "rate", Right: true, Get: rate},
}

// name returns what commands call the queue.
func name(q client.AdminQueue) string {
	return cli.Printable(cli.QueueName(q.Contract, q.Queue))
}

// count makes a number the text of a cell.
func count(of func(client.AdminQueue) int64) func(client.AdminQueue) string {
	return func(q client.AdminQueue) string { return strconv.FormatInt(of(q), 10) }
}

// number makes a rate the text of a cell, empty for none and - where it is not known.
func number(of func(client.AdminQueue) *float64) func(client.AdminQueue) string {
	return func(q client.AdminQueue) string {
		rate := of(q)
		switch {
		case rate == nil:
			return "-"
		case *rate == 0:
			return ""
		}
		return strconv.FormatFloat(*rate, 'f', 1, 64)
	}
}

// seconds makes a duration in seconds the text of a cell, empty where there is none.
func seconds(of func(client.AdminQueue) *float64) func(client.AdminQueue) string {
	return func(q client.AdminQueue) string {
		return cli.FormatSeconds(of(q))
	}
}

// drains is about how long the ready jobs take to start at the pace of the last minutes; empty
// where none is ready, none has started, the queue is paused or has no worker.
func drains(q client.AdminQueue) string {
	pace := q.StartedPerMinute
	if q.Ready == 0 || q.Paused || q.Workers == 0 || pace == nil || *pace == 0 {
		return ""
	}
	left := time.Duration(float64(q.Ready) / *pace * float64(time.Minute))
	switch {
	case left < 2*time.Minute:
		return fmt.Sprintf("%d s", max(1, int(left.Seconds())))
	case left < 2*time.Hour:
		return fmt.Sprintf("%d min", int(left.Minutes()))
	}
	return fmt.Sprintf("%d h", int(left.Hours()))
}

// oldest is since when the first job of a queue is ready, empty without one.
func oldest(q client.AdminQueue) string { return cli.FormatTimePtr(q.OldestReadyAt) }

// paused says that a queue is paused.
func paused(q client.AdminQueue) string {
	if q.Paused {
		return "paused"
	}
	return ""
}

// maxRunning is empty without a limit.
func maxRunning(q client.AdminQueue) string {
	if q.MaxRunning == 0 {
		return ""
	}
	return strconv.Itoa(q.MaxRunning)
}

// rate writes a rate as settings have it. It is empty without a rate.
func rate(q client.AdminQueue) string {
	if q.RateLimit == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%s", q.RateLimit, q.RatePeriod)
}

// Command is `millrace queues`. Each of its commands gets a connection from operator.
func Command(p cli.Process, operator func() *cli.Operator) *cobra.Command {
	c := cli.Group("queues", "List, pause and limit queues of every contract, as an operator")
	c.AddCommand(listCommand(p, operator()), showCommand(p, operator()),
		pauseCommand(p, operator(), "pause", "Start no more jobs of queues", true),
		pauseCommand(p, operator(), "resume", "Start jobs of paused queues again", false),
		setCommand(p, operator()), clearCommand(p, operator()))
	return c
}

// cleared is what --json prints of a queue whose jobs are being deleted.
type cleared struct {
	Queue  string `json:"queue"`
	BulkID string `json:"bulk_id"` // empty for a dry run
	Jobs   int64  `json:"jobs"`    // that the queue had just before
}

// clearCommand is `millrace queues clear` (AD-033).
func clearCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	c := &cobra.Command{
		Use:   "clear CONTRACT/QUEUE...",
		Short: "Delete the jobs of queues that are not done and do not run",
		Long: `Delete the jobs of queues that are not done and do not run, as bulk operations, which
go on in the server. It asks before; --yes answers, --dry-run only counts.`,
	}
	var confirm cli.Confirmation
	dryRun := c.Flags().Bool("dry-run", false, "change nothing and print how many jobs there are")
	confirm.Register(c)
	return cli.Each[cleared]{
		Check: func(names []string) error {
			if err := cli.CheckQueues(names); err != nil {
				return err
			}
			if *dryRun {
				return nil
			}
			return confirm.Check(p, "delete all jobs that do not run of "+strings.Join(names, ", "))
		},
		Do: func(ctx context.Context, server *client.Admin, argument string) (cleared, error) {
			q, err := find(ctx, server, argument)
			if err != nil {
				return cleared{}, err
			}
			jobs := q.Waiting + q.Delayed + q.Ready
			if *dryRun {
				return cleared{argument, "", jobs}, nil
			}
			if err := confirm.Ask(p, fmt.Sprintf("delete %s of %s", cli.Pluralize(jobs, "job"),
				name(q))); err != nil {
				return cleared{}, err
			}
			id, err := server.ClearQueue(ctx, q.Contract, q.Queue)
			return cleared{argument, id, jobs}, err
		},
		Done: func(argument string, done cleared) string {
			if done.BulkID == "" {
				return fmt.Sprintf("%s of %s would be deleted", cli.Pluralize(done.Jobs, "job"),
					cli.Printable(argument))
			}
			return fmt.Sprintf("bulk %s clears %s; see millrace bulk show %[1]s", done.BulkID,
				cli.Printable(argument))
		},
	}.Command(p, operator, c)
}

// figures describes the columns of figures.
const figures = `What is counted per minute, and the percentiles of how long jobs wait and run, are
over the last five minutes, or since the queue had its first job, at least one
minute. "drains" is about how long the ready jobs take to start at the pace of
started_per_minute, without those that come meanwhile. "workers" are those that ask
for the queue and are not drained; a remote one counts for a minute after its last
request, unless it has left.`

// listCommand is `millrace queues list`.
func listCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	var f client.AdminQueueFilter
	c := &cobra.Command{
		Use:   "list",
		Short: "List the queues",
		Long: `List the queues, by contract and name or by --order. A queue is listed while it has
jobs that are not done or settings, and for a week after it had either.

` + figures + `

What the server does itself, its bulk operations and schedules, is listed with --all.`,
	}
	c.Flags().StringVar(&f.Contract, "contract", "", "only queues of this contract")
	c.Flags().StringVar(&f.NameContains, "text", "", "only queues with this text in their name")
	c.Flags().BoolVar(&f.IncludeInternal, "all", false, "also the queues of the server's own jobs")
	c.Flags().StringVar(&f.Order, "order", "",
		"name, or the greatest first: depth, age (of the oldest job) or failures")
	cli.CompleteWords(c, "order", "name", "depth", "age", "failures")
	return cli.List[client.AdminQueue]{
		Columns: columns,
		Items: func(ctx context.Context, server *client.Admin,
			pageSize int) iter.Seq2[client.AdminQueue, error] {
			f.PageSize = pageSize
			return server.Queues(ctx, f)
		},
	}.Command(p, operator, c)
}

// showCommand is `millrace queues show`.
func showCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	c := &cobra.Command{
		Use:   "show CONTRACT/QUEUE",
		Short: "Print a queue",
		Long:  "Print a queue.\n\n" + figures,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("one queue is required, such as taskflow/mail")
			}
			return cli.CheckQueues(args)
		},
	}
	return cli.Show[client.AdminQueue]{Columns: columns, Get: find}.Command(p, operator, c)
}

// find looks for a queue in the list.
func find(ctx context.Context, server *client.Admin, argument string) (client.AdminQueue, error) {
	contract, queue, err := cli.ParseQueue(argument)
	if err != nil {
		return client.AdminQueue{}, err
	}
	for q, err := range server.Queues(ctx, client.AdminQueueFilter{Contract: contract,
		NameContains: queue}) {
		if err != nil || q.Queue == queue {
			return q, err
		}
	}
	var names []string
	for q, err := range server.Queues(ctx, client.AdminQueueFilter{PageSize: maxSuggested}) {
		if err != nil {
			return q, err
		}
		if names = append(names, cli.QueueName(q.Contract, q.Queue)); len(names) == maxSuggested {
			break
		}
	}
	hint := ""
	if similar, ok := setting.Closest(argument, names); ok {
		hint = "; did you mean " + similar + "?"
	}
	return client.AdminQueue{}, cli.WithCode(cli.ExitFailed, errNone{argument, hint})
}

// maxSuggested is how many queues are looked at for the one that was meant.
const maxSuggested = 500

// errNone is the error of a queue that the server does not list.
type errNone struct{ name, hint string }

// Error names the queue that was most likely meant.
func (e errNone) Error() string { return "there is no queue " + e.name + e.hint }

// pauseCommand is `millrace queues pause` or `millrace queues resume` (AD-031).
func pauseCommand(p cli.Process, operator *cli.Operator, use, short string,
	value bool) *cobra.Command {
	c := &cobra.Command{
		Use:   use + " CONTRACT/QUEUE...",
		Short: short,
		Long: short + `, on all nodes within two seconds. A paused queue takes new
jobs, and its running jobs go on.`,
	}
	return each(c, func(ctx context.Context, server *client.Admin,
		before client.AdminQueue) (client.AdminQueue, error) {
		return server.SetQueue(ctx, before.Contract, before.Queue,
			client.AdminQueueChange{Paused: &value})
	}, func(before, after client.AdminQueue) string {
		switch {
		case before.Paused && value:
			return " was paused already: nothing changed"
		case value:
			return " is " + strings.Join(append([]string{"paused"}, limits(after)...), ", ")
		case before.Paused:
			return " is " + strings.Join(append([]string{"resumed"}, limits(after)...), ", ")
		}
		return " was not paused: nothing changed"
	}, nil).Command(p, operator, c)
}

// setCommand is `millrace queues set` (AD-031, AD-032).
func setCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	var limit int
	var starts string
	var reset bool
	c := &cobra.Command{
		Use:   "set CONTRACT/QUEUE...",
		Short: "Limit queues, or take back what was set for them",
		Long: `Limit the jobs of queues that run at a time, or that start in a period, over all
nodes. It takes the place of the server's settings until --reset, which also resumes
a paused queue.`,
	}
	c.Flags().IntVar(&limit, "run-limit", 0, "jobs that run at a time; 0 is no limit")
	c.Flags().StringVar(&starts, "rate", "", "starts in a period, such as 100/1m; 0 is no rate")
	c.Flags().BoolVar(&reset, "reset", false, "take back what operators have set")
	c.MarkFlagsMutuallyExclusive("reset", "run-limit")
	c.MarkFlagsMutuallyExclusive("reset", "rate")
	c.MarkFlagsOneRequired("reset", "run-limit", "rate")
	var change client.AdminQueueChange
	return each(c, func(ctx context.Context, server *client.Admin,
		before client.AdminQueue) (client.AdminQueue, error) {
		if reset {
			return server.ResetQueue(ctx, before.Contract, before.Queue)
		}
		return server.SetQueue(ctx, before.Contract, before.Queue, change)
	}, func(before, after client.AdminQueue) string {
		if reset {
			return describeReset(before, after)
		}
		return describeLimits(after)
	}, func() (err error) {
		if c.Flags().Changed("run-limit") {
			change.MaxRunning = &limit
		}
		if c.Flags().Changed("rate") {
			change.RateLimit, change.RatePeriod, err = parseRate(starts)
		}
		return err
	}).Command(p, operator, c)
}

// parseRate reads a rate such as 100/1m, or 0. The server checks the period.
func parseRate(text string) (starts *int, period *string, err error) {
	number, rest, hasPeriod := strings.Cut(text, "/")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || hasPeriod != (n > 0) {
		return nil, nil, cli.UsageError("--rate: %q is not a rate, such as 100/1m or 0", text)
	}
	if !hasPeriod {
		return &n, nil, nil
	}
	return &n, &rest, nil
}

// changed is a queue before and after a command has changed it.
type changed struct {
	client.AdminQueue
	before client.AdminQueue
}

// each does one thing to each of the queues that the arguments name, and prints the name with what
// say says of it. A queue that the server does not list is refused without --new: its name may be
// misspelt. flags looks at the command's flags before; nil if there are none.
func each(c *cobra.Command,
	do func(context.Context, *client.Admin, client.AdminQueue) (client.AdminQueue, error),
	say func(before, after client.AdminQueue) string, flags func() error) cli.Each[changed] {
	isNew := c.Flags().Bool("new", false, "make settings also for queues that had no job yet")
	return cli.Each[changed]{
		Check: func(names []string) error {
			if flags == nil {
				return cli.CheckQueues(names)
			}
			return errors.Join(cli.CheckQueues(names), flags())
		},
		Do: func(ctx context.Context, server *client.Admin,
			argument string) (q changed, err error) {
			q.before, err = find(ctx, server, argument)
			if err != nil && !*isNew {
				return q, offerNew(err)
			}
			if q.before.Contract, q.before.Queue, err = cli.ParseQueue(argument); err != nil {
				return q, err
			}
			q.AdminQueue, err = do(ctx, server, q.before)
			return q, err
		},
		Done: func(_ string, q changed) string {
			return name(q.AdminQueue) + say(q.before, q.AdminQueue)
		},
	}
}

// offerNew adds to the error of a queue that is not listed how it can be made.
func offerNew(err error) error {
	var none errNone
	if !errors.As(err, &none) {
		return err
	}
	if none.hint == "" {
		none.hint = ";"
	}
	none.hint += " --new makes settings for a queue that has had no job yet"
	return cli.WithCode(cli.ExitFailed, none)
}

// limits says what limits a queue.
func limits(q client.AdminQueue) (all []string) {
	if q.MaxRunning > 0 {
		all = append(all, fmt.Sprintf("runs at most %d at a time", q.MaxRunning))
	}
	if q.RateLimit > 0 {
		all = append(all, "starts at most "+rate(q))
	}
	return all
}

// describeLimits says what limits a queue for which limits were set.
func describeLimits(q client.AdminQueue) string {
	all := limits(q)
	if len(all) == 0 {
		all = []string{"has no limit"}
	}
	if q.Paused {
		all = append([]string{"is paused"}, all...)
	}
	return " " + strings.Join(all, ", ")
}

// describeReset names the settings that are in force again after those of operators were taken
// back.
func describeReset(before, after client.AdminQueue) string {
	text := " has the settings of the server: "
	if before.Paused {
		text = " is resumed and" + text
	}
	if all := limits(after); len(all) > 0 {
		return text + strings.Join(all, ", ")
	}
	return text + "no limit"
}
