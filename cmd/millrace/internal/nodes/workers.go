package nodes

import (
	"context"
	"iter"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// Workers are of a node, or they are remote ones that a node has seen. A drain of a worker is
// known by its name on all nodes, so the commands need no node.

// workerColumns are the columns of the table of workers.
var workerColumns = []cli.Column[client.AdminWorker]{
	{Name: "name", Keep: true,
		Get: func(w client.AdminWorker) string { return cli.Printable(w.Name) }},
	{Name: "kind", Get: func(w client.AdminWorker) string { return w.Kind }},
	{Name: "contract", Get: func(w client.AdminWorker) string { return w.Contract }},
	{Name: "queues", Text: true, Get: func(w client.AdminWorker) string {
		return cli.Printable(strings.Join(w.Queues, ","))
	}},
	{Name: "running", Right: true,
		Get: func(w client.AdminWorker) string { return strconv.Itoa(len(w.Running)) }},
	{Name: "slots", Right: true,
		Get: func(w client.AdminWorker) string { return cli.Format(w.Concurrency) }},
	{Name: "succeeded", Right: true,
		Get: func(w client.AdminWorker) string { return strconv.FormatInt(w.Succeeded, 10) }},
	{Name: "failed", Right: true,
		Get: func(w client.AdminWorker) string { return strconv.FormatInt(w.Failed, 10) }},
	{Name: "last_seen", Time: true,
		Get: func(w client.AdminWorker) string { return cli.FormatTime(w.LastSeen) }},
	{Name: "draining", Get: func(w client.AdminWorker) string { return draining(w.Draining) },
		Tone: func(client.AdminWorker) cli.Tone { return cli.ToneWarn }},
	{Name: "gone", Get: func(w client.AdminWorker) string { return gone(w.Gone) },
		Tone: func(client.AdminWorker) cli.Tone { return cli.ToneBad }},
	{Name: "node", Extra: true,
		Get: func(w client.AdminWorker) string { return cli.Printable(w.Node) }},
	{Name: "first_seen", Time: true, Extra: true,
		Get: func(w client.AdminWorker) string { return cli.FormatTime(w.FirstSeen) }},
	{Name: "version", Extra: true,
		Get: func(w client.AdminWorker) string { return cli.Printable(w.Version) }},
}

// WorkersCommand is `millrace workers`. Each of its commands gets a connection from operator.
func WorkersCommand(p cli.Process, operator func() *cli.Operator) *cobra.Command {
	c := cli.Group("workers", "List and drain the workers of every contract, as an operator")
	list := &cobra.Command{
		Use:   "list",
		Short: "List the workers, by name",
		Long: `List the workers, by name: those of the nodes, and the others that have asked for
jobs or sent a heartbeat within the last five minutes. One that ends is not listed
any more; one that has sent no request for a minute, and that runs nothing, is
listed as gone.`,
	}
	drain := drainCommand(true, workerServes, (*client.Admin).DrainWorker)
	resume := drainCommand(false, workerServes, (*client.Admin).ResumeWorker)
	c.AddCommand(
		cli.List[client.AdminWorker]{
			Columns: workerColumns,
			Items: func(ctx context.Context, server *client.Admin,
				_ int) iter.Seq2[client.AdminWorker, error] {
				return server.Workers(ctx)
			},
		}.Command(p, operator(), list),
		drain.Command(p, operator(), &cobra.Command{
			Use:   "drain WORKER...",
			Short: "Drain workers: they get no further jobs",
			Long: `Give workers no further jobs, on all nodes within two seconds, until they are
resumed or for 24 hours. 'millrace work' and the workers of the Go client finish the
jobs that they have, and end.`,
		}),
		resume.Command(p, operator(), &cobra.Command{
			Use:   "resume WORKER...",
			Short: "Give drained workers jobs again",
		}))
	return c
}
