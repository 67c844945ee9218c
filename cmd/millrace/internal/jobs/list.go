package jobs

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// A list has a column for each member of a job. Those marked Keep are there in any terminal, the
// Extra ones only where --columns names them. A column is called like its member of --json, so a
// script asks for what a person sees in a list.

type jobColumn = cli.Column[client.AdminJob]

// columns are the columns of the list (AD-011).
var columns = []jobColumn{
	{Name: "number", Keep: true, Right: true,
		Get: func(j client.AdminJob) string { return strconv.FormatInt(j.Number, 10) }},
	{Name: "queue", Keep: true, Get: func(j client.AdminJob) string {
		return cli.QueueName(j.Contract, j.Queue)
	}},
	{Name: "id", Keep: true, Get: func(j client.AdminJob) string { return j.ID }},
	{Name: "kind", Get: func(j client.AdminJob) string { return cli.Format(j.Kind) }},
	{Name: "state", Keep: true, Get: func(j client.AdminJob) string { return j.State }},
	{Name: "phase", Get: func(j client.AdminJob) string { return j.Phase }, Tone: tone},
	{Name: "attempts", Right: true,
		Get: func(j client.AdminJob) string { return strconv.Itoa(j.Attempts) }},
	{Name: "created_at", Time: true, Get: func(j client.AdminJob) string {
		return cli.FormatTimePtr(&j.CreatedAt)
	}},
	{Name: "worker", Get: func(j client.AdminJob) string { return cli.Format(j.Worker) }},
	{Name: "error", Text: true, Get: func(j client.AdminJob) string { return cli.Format(j.Error) }},

	{Name: "priority", Right: true, Extra: true,
		Get: func(j client.AdminJob) string { return cli.Format(j.Priority) }},
	{Name: "failures", Right: true, Extra: true,
		Get: func(j client.AdminJob) string { return strconv.Itoa(j.Failures) }},
	{Name: "run_limit", Right: true, Extra: true,
		Get: func(j client.AdminJob) string { return cli.Format(j.MaxAttempts) }},
	{Name: "updated_at", Time: true, Extra: true, Get: func(j client.AdminJob) string {
		return cli.FormatTimePtr(&j.UpdatedAt)
	}},
	{Name: "due_at", Time: true, Extra: true,
		Get: func(j client.AdminJob) string { return cli.FormatTimePtr(j.DueAt) }},
	{Name: "started_at", Time: true, Extra: true,
		Get: func(j client.AdminJob) string { return cli.FormatTimePtr(j.StartedAt) }},
	{Name: "settled_at", Time: true, Extra: true,
		Get: func(j client.AdminJob) string { return cli.FormatTimePtr(j.FinishedAt) }},
	{Name: "lease_until", Time: true, Extra: true,
		Get: func(j client.AdminJob) string { return cli.FormatTimePtr(j.LeaseUntil) }},
	{Name: "owner", Extra: true, Get: func(j client.AdminJob) string { return cli.Format(j.Owner) }},
	{Name: "parent", Right: true, Extra: true,
		Get: func(j client.AdminJob) string { return cli.Format(j.ParentNumber) }},
	{Name: "children", Right: true, Extra: true,
		Get: func(j client.AdminJob) string { return cli.Format(j.Children) }},
	{Name: "open_dependencies", Right: true, Extra: true,
		Get: func(j client.AdminJob) string { return cli.Format(j.OpenDependencies) }},
	{Name: "size", Right: true, Extra: true,
		Get: func(j client.AdminJob) string { return cli.Format(j.Size) }},
}

// tone marks dead jobs and running ones.
func tone(j client.AdminJob) cli.Tone {
	switch j.Phase {
	case "dead":
		return cli.ToneBad
	case "leased":
		return cli.ToneGood
	}
	return cli.ToneNone
}

// notListed says why a list of jobs may be empty although there were jobs: those that were given
// up are listed where they are asked for, and completed ones may be gone. It says nothing where
// another filter than contract, queue and phase chose what is listed.
func notListed(ctx context.Context, server *client.Admin, f client.AdminFilter) string {
	place := client.AdminFilter{Contract: f.Contract, Queue: f.Queue, Phases: f.Phases}
	if !reflect.DeepEqual(f, place) {
		return ""
	}
	var all []string
	if len(f.Phases) == 0 {
		if n := countDead(ctx, server, f); n > 0 {
			all = append(all, fmt.Sprintf("%d given up: millrace jobs list --phase dead", n))
		}
	}
	isOfDone := len(f.Phases) == 0 || slices.Contains(f.Phases, "done")
	if isOfDone && (f.Contract == "" || f.Contract == "relay") {
		all = append(all, "a job of Relay is not kept once it is completed")
	}
	if len(f.Phases) == 0 && f.Contract != "relay" {
		all = append(all, "others are removed when their retention has passed")
	}
	if len(all) == 0 {
		return ""
	}
	return "no such job is stored; " + strings.Join(all, "; ")
}

// countDead counts the jobs of a filter's contract and queue that were given up; 0 where that is
// not known.
func countDead(ctx context.Context, server *client.Admin, f client.AdminFilter) int64 {
	for n, err := range server.Counts(ctx, client.AdminCountQuery{By: "phase", Contract: f.Contract,
		Queue: f.Queue}) {
		if err != nil {
			return 0
		}
		if cli.Format(n.Phase) == "dead" && n.Count != nil {
			return *n.Count
		}
	}
	return 0
}

// listCommand is `millrace jobs list` (AD-010).
func listCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	var l client.AdminJobQuery
	order := ""
	c := &cobra.Command{
		Use:   "list",
		Short: "List the jobs of every contract",
		Long: `List the jobs of every contract that match all filters, the newest first. A search
for a text may take long: the server looks at the jobs part by part.

A job of Relay is deleted when it is completed, and when it is given up: then its dead
letter is what is left. With --phase dead such jobs come after the others, the one
first that was given up first.`,
	}
	registerBulkFilter(p, c.Flags(), &l.Filter)
	c.Flags().StringVar(&order, "order", "newest", "newest or oldest, by number")
	cli.CompleteWords(c, "order", "newest", "oldest")
	return cli.List[client.AdminJob]{
		Columns: columns,
		Check: func() error {
			if l.Oldest = order == "oldest"; !l.Oldest && order != "newest" {
				return cli.UsageError("--order must be newest or oldest")
			}
			return nil
		},
		Items: func(ctx context.Context, server *client.Admin,
			pageSize int) iter.Seq2[client.AdminJob, error] {
			l.PageSize = pageSize
			return server.Jobs(ctx, l)
		},
		Empty: func(ctx context.Context, server *client.Admin) string {
			if l.Filter.Queue == "" {
				return ""
			}
			return cli.NoQueue(ctx, server, l.Filter.Contract, l.Filter.Queue)
		},
		Elsewhere: func(ctx context.Context, server *client.Admin) string {
			return notListed(ctx, server, l.Filter)
		},
	}.Command(p, operator, c)
}
