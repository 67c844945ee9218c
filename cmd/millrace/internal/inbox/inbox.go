// Package inbox is `millrace inbox`: how operators see what producers have submitted by SQL, and
// retry and discard what was refused.
//
// A request is named by its id. Lists leave the requests themselves out, which show prints. On a
// database without an inbox lists are empty.
package inbox

import (
	"context"
	"iter"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// columns are the columns of a table of requests.
var columns = []cli.Column[client.AdminInboxRequest]{
	{Name: "id", Keep: true, Get: func(r client.AdminInboxRequest) string { return r.ID }},
	{Name: "state", Get: func(r client.AdminInboxRequest) string { return r.State },
		Tone: func(r client.AdminInboxRequest) cli.Tone {
			if r.State == client.AdminInboxRefused {
				return cli.ToneBad
			}
			return cli.ToneNone
		}},
	{Name: "contract", Get: func(r client.AdminInboxRequest) string {
		return cli.Printable(r.Contract)
	}},
	{Name: "created_at", Time: true,
		Get: func(r client.AdminInboxRequest) string { return cli.FormatTime(r.CreatedAt) }},
	{Name: "producer",
		Get: func(r client.AdminInboxRequest) string { return cli.Printable(r.Producer) }},
	{Name: "job", Right: true, Get: func(r client.AdminInboxRequest) string {
		if r.JobNumber == 0 {
			return ""
		}
		return strconv.FormatInt(r.JobNumber, 10)
	}},
	{Name: "job_id", Extra: true,
		Get: func(r client.AdminInboxRequest) string { return cli.Printable(r.JobID) }},
	{Name: "idempotency_key", Extra: true,
		Get: func(r client.AdminInboxRequest) string { return cli.Printable(r.IdempotencyKey) }},
	{Name: "owner", Extra: true,
		Get: func(r client.AdminInboxRequest) string { return cli.Printable(r.Owner) }},
	{Name: "job_type", Extra: true,
		Get: func(r client.AdminInboxRequest) string { return cli.Printable(r.JobType) }},
	{Name: "finished_at", Time: true, Extra: true, Get: func(r client.AdminInboxRequest) string {
		return cli.FormatTimePtr(r.FinishedAt)
	}},
	{Name: "error", Text: true,
		Get:  func(r client.AdminInboxRequest) string { return cli.Printable(r.Error) },
		Tone: func(client.AdminInboxRequest) cli.Tone { return cli.ToneBad }},
}

// Command is `millrace inbox`. Each of its commands gets a connection from operator.
func Command(p cli.Process, operator func() *cli.Operator) *cobra.Command {
	c := cli.Group("inbox",
		"List, retry and discard what producers have submitted by SQL, as an operator")
	c.AddCommand(listCommand(p, operator()), showCommand(p, operator()),
		retryCommand(p, operator()), discardCommand(p, operator()))
	return c
}

// listCommand is `millrace inbox list` (TX-003).
func listCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	var f client.AdminInboxFilter
	c := &cobra.Command{
		Use:   "list",
		Short: "List the requests in the inbox, the newest first",
		Long: `List what producers have submitted by SQL in their own transactions, the newest
first: what waits, what was refused, and what was submitted lately.`,
	}
	c.Flags().StringVar(&f.State, "state", "", "only requests in this state: waiting, submitted or "+
		"refused")
	c.Flags().StringVar(&f.Contract, "contract", "", "only requests to this contract")
	cli.CompleteWords(c, "state", client.AdminInboxWaiting, client.AdminInboxSubmitted,
		client.AdminInboxRefused)
	return cli.List[client.AdminInboxRequest]{
		Columns: columns,
		Items: func(ctx context.Context, server *client.Admin,
			pageSize int) iter.Seq2[client.AdminInboxRequest, error] {
			f.PageSize = pageSize
			return server.Inbox(ctx, f)
		},
	}.Command(p, operator, c)
}

// showCommand is `millrace inbox show`. Its document has the request itself.
func showCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	all := make([]cli.Column[client.AdminInboxDetail], len(columns), len(columns)+1)
	for i, c := range columns {
		all[i] = cli.Column[client.AdminInboxDetail]{Name: c.Name, Time: c.Time, Text: c.Text,
			Get: func(d client.AdminInboxDetail) string { return c.Get(d.AdminInboxRequest) }}
	}
	all = append(all, cli.Column[client.AdminInboxDetail]{Name: "request", Text: true,
		Get: func(d client.AdminInboxDetail) string { return cli.Printable(string(d.Request)) }})
	c := &cobra.Command{Use: "show ID", Short: "Print a request in the inbox"}
	return cli.Show[client.AdminInboxDetail]{
		Columns: all,
		Get: func(ctx context.Context, server *client.Admin,
			id string) (client.AdminInboxDetail, error) {
			return server.InboxRequest(ctx, id)
		},
	}.Command(p, operator, c)
}

// retryCommand is `millrace inbox retry` (TX-003).
func retryCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	c := &cobra.Command{
		Use:   "retry ID...",
		Short: "Let requests that were refused be submitted again",
		Long: `Let requests that were refused be submitted again: once their contract takes them,
as after a change of a setting.`,
	}
	return cli.Each[client.AdminInboxDetail]{
		Do: func(ctx context.Context, server *client.Admin,
			id string) (client.AdminInboxDetail, error) {
			return server.RetryInboxRequest(ctx, id)
		},
		Done: func(id string, r client.AdminInboxDetail) string {
			return "request " + cli.Printable(id) + " is " + r.State
		},
	}.Command(p, operator, c)
}

// discarded is what --json prints of a request that is gone.
type discarded struct {
	ID string `json:"id"`
}

// discardCommand is `millrace inbox discard` (TX-003).
func discardCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	c := &cobra.Command{
		Use:   "discard ID...",
		Short: "Delete requests that wait or were refused",
		Long:  "Delete requests that wait, which are not submitted then, or that were refused.",
	}
	return cli.Each[discarded]{
		Do: func(ctx context.Context, server *client.Admin, id string) (discarded, error) {
			return discarded{id}, server.DiscardInboxRequest(ctx, id)
		},
		Done: func(id string, _ discarded) string {
			return "request " + cli.Printable(id) + " is gone"
		},
	}.Command(p, operator, c)
}
