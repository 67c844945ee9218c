// Package bulk is `millrace bulk`, how operators see and steer bulk operations, and what the
// commands share that start one.
package bulk

import (
	"context"
	"fmt"
	"iter"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// columns are the columns of the table.
var columns = []cli.Column[client.AdminBulkOperation]{
	{Name: "bulk_id", Keep: true, Get: func(b client.AdminBulkOperation) string { return b.ID }},
	{Name: "action", Get: func(b client.AdminBulkOperation) string { return string(b.Action) }},
	{Name: "state", Get: func(b client.AdminBulkOperation) string { return b.State }},
	{Name: "reason", Text: true,
		Get:  func(b client.AdminBulkOperation) string { return cli.Printable(b.Reason) },
		Tone: func(client.AdminBulkOperation) cli.Tone { return cli.ToneWarn }},
	{Name: "done", Right: true, Get: count(func(b client.AdminBulkOperation) int64 { return b.Done })},
	{Name: "failed", Right: true, Get: count(func(b client.AdminBulkOperation) int64 { return b.Failed }),
		Tone: func(b client.AdminBulkOperation) cli.Tone { return tone(b.Failed) }},
	{Name: "skipped", Right: true,
		Get: count(func(b client.AdminBulkOperation) int64 { return b.Skipped })},
	{Name: "total", Right: true,
		Get: func(b client.AdminBulkOperation) string { return cli.Format(b.Total) }},
	{Name: "canary", Extra: true, Get: canary},
	{Name: "rate", Right: true, Extra: true,
		Get: positive(func(b client.AdminBulkOperation) int { return b.RatePerSecond })},
	{Name: "limit", Right: true, Extra: true,
		Get: positive(func(b client.AdminBulkOperation) int { return b.Limit })},
	{Name: "started_at", Time: true,
		Get: func(b client.AdminBulkOperation) string { return cli.FormatTime(b.StartedAt) }},
	{Name: "eta", Time: true,
		Get: func(b client.AdminBulkOperation) string { return cli.FormatTimePtr(b.ETA) }},
	{Name: "ended_at", Time: true, Extra: true,
		Get: func(b client.AdminBulkOperation) string { return cli.FormatTimePtr(b.EndedAt) }},
	{Name: "errors", Text: true, Extra: true, Get: problems},
}

// count makes a number the text of a cell.
func count(of func(client.AdminBulkOperation) int64) func(client.AdminBulkOperation) string {
	return func(b client.AdminBulkOperation) string { return strconv.FormatInt(of(b), 10) }
}

// positive makes a number the text of a cell, empty for 0.
func positive(of func(client.AdminBulkOperation) int) func(client.AdminBulkOperation) string {
	return func(b client.AdminBulkOperation) string {
		if n := of(b); n > 0 {
			return strconv.Itoa(n)
		}
		return ""
	}
}

// canary says how many went first, and how they have ended so far: the others go only where they
// have ended well.
func canary(b client.AdminBulkOperation) string {
	if b.Canary == 0 {
		return ""
	}
	text := strconv.Itoa(b.Canary)
	switch {
	case b.Reason == "canary":
		return text + ", not all done yet"
	case b.State == "paused" && b.Reason != "operator":
		return text + ", not all well: " + cli.Printable(b.Reason)
	case b.State == "done" || b.Done+b.Failed+b.Skipped > int64(b.Canary):
		return text + ", ended well"
	}
	return text
}

// tone colours a number of failures.
func tone(failed int64) cli.Tone {
	if failed > 0 {
		return cli.ToneBad
	}
	return cli.ToneNone
}

// problems is the first error, and how many there are.
func problems(b client.AdminBulkOperation) string {
	if len(b.Errors) == 0 {
		return ""
	}
	return cli.Printable(fmt.Sprintf("%d: %s (the first of %d)", b.Errors[0].Number,
		b.Errors[0].Error, b.Failed))
}

// Command is `millrace bulk`. Each of its commands gets a connection from operator.
func Command(p cli.Process, operator func() *cli.Operator) *cobra.Command {
	c := cli.Group("bulk", "List, pause, resume and cancel bulk operations, as an operator")
	c.Long = `List, pause, resume and cancel bulk operations. They are started by millrace jobs and
millrace dlq replay with filters, by millrace queues clear and by millrace webhooks
replay.`
	c.AddCommand(listCommand(p, operator()), showCommand(p, operator()),
		changeCommand(p, operator(), "pause", "Pause bulk operations", (*client.Admin).PauseBulkOperation),
		changeCommand(p, operator(), "resume", "Let bulk operations go on that are paused",
			(*client.Admin).ResumeBulkOperation),
		changeCommand(p, operator(), "cancel", "End bulk operations; what was done stays done",
			(*client.Admin).CancelBulkOperation))
	return c
}

// listCommand is `millrace bulk list`.
func listCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List bulk operations, the newest first"}
	return cli.List[client.AdminBulkOperation]{
		Columns: columns,
		Items: func(ctx context.Context, server *client.Admin,
			pageSize int) iter.Seq2[client.AdminBulkOperation, error] {
			return server.BulkOperations(ctx, pageSize)
		},
	}.Command(p, operator, c)
}

// showCommand is `millrace bulk show`.
func showCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	c := &cobra.Command{Use: "show ID", Short: "Print a bulk operation"}
	return cli.Show[client.AdminBulkOperation]{
		Columns: columns,
		Get: func(ctx context.Context, server *client.Admin,
			id string) (client.AdminBulkOperation, error) {
			return server.BulkOperation(ctx, id)
		},
	}.Command(p, operator, c)
}

// changeCommand is `millrace bulk pause`, resume or cancel.
func changeCommand(p cli.Process, operator *cli.Operator, use, short string,
	do func(*client.Admin, context.Context,
		string) (client.AdminBulkOperation, error)) *cobra.Command {
	c := &cobra.Command{Use: use + " ID...", Short: short}
	return cli.Each[client.AdminBulkOperation]{
		Do: func(ctx context.Context, server *client.Admin,
			id string) (client.AdminBulkOperation, error) {
			return do(server, ctx, id)
		},
		Done: func(id string, b client.AdminBulkOperation) string {
			text := fmt.Sprintf("bulk %s is %s, %d done", id, b.State, b.Done)
			if b.Total != nil {
				text += fmt.Sprintf(" of %d", *b.Total)
			}
			return text
		},
	}.Command(p, operator, c)
}
