// Package nodes is `millrace nodes` and `millrace workers`: how operators see who executes jobs,
// and how they drain nodes and workers.
//
// A drain is known on all nodes within two seconds, whichever of them is asked. What runs goes on,
// and nothing more is begun. That of a node is for its local workers and for what sends requests to
// it, as the node is not ready any more.
package nodes

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// nodeColumns are the columns of the table of nodes.
var nodeColumns = []cli.Column[client.AdminNode]{
	{Name: "name", Keep: true,
		Get: func(n client.AdminNode) string { return cli.Printable(n.Name) }},
	{Name: "address", Get: func(n client.AdminNode) string { return cli.Printable(n.Address) }},
	{Name: "version", Get: func(n client.AdminNode) string { return cli.Printable(n.Version) }},
	{Name: "started_at", Time: true,
		Get: func(n client.AdminNode) string { return cli.FormatTime(n.StartedAt) }},
	{Name: "last_seen", Time: true,
		Get: func(n client.AdminNode) string { return cli.FormatTime(n.LastSeen) }},
	{Name: "draining", Get: func(n client.AdminNode) string { return draining(n.Draining) },
		Tone: func(client.AdminNode) cli.Tone { return cli.ToneWarn }},
	{Name: "gone", Get: func(n client.AdminNode) string { return gone(n.Gone) },
		Tone: func(client.AdminNode) cli.Tone { return cli.ToneBad }},
	{Name: "store", Get: func(n client.AdminNode) string { return n.Store.State }},
	{Name: "pool", Extra: true, Right: true,
		Get: func(n client.AdminNode) string { return poolText(n.Store.Connections) }},
	{Name: "contracts", Extra: true,
		Get: func(n client.AdminNode) string { return strings.Join(n.Contracts, ",") }},
	{Name: "duties", Extra: true,
		Get: func(n client.AdminNode) string { return strings.Join(n.LeaderRoles, ",") }},
	{Name: "memory", Extra: true, Right: true,
		Get: func(n client.AdminNode) string { return strconv.FormatInt(n.MemoryBytes, 10) }},
	{Name: "goroutines", Extra: true, Right: true,
		Get: func(n client.AdminNode) string { return strconv.Itoa(n.Goroutines) }},
	{Name: "open_files", Extra: true, Right: true,
		Get: func(n client.AdminNode) string { return cli.Format(n.OpenFiles) }},
}

// poolText says how many of the connections to the store are in use, such as 3/16.
func poolText(p *client.AdminConnectionPool) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%d/%d", p.InUse, p.Max)
}

// draining says that nothing more is given to a node or a worker.
func draining(is bool) string {
	if is {
		return "draining"
	}
	return ""
}

// gone says that a node or a worker has most likely ended.
func gone(is bool) string {
	if is {
		return "gone"
	}
	return ""
}

// Command is `millrace nodes`. Each of its commands gets a connection from operator.
func Command(p cli.Process, operator func() *cli.Operator) *cobra.Command {
	c := cli.Group("nodes", "List and drain the servers that share a store, as an operator")
	list := &cobra.Command{
		Use:   "list",
		Short: "List the nodes, by name",
		Long: `List the nodes, by name. One that has written nothing for 15 seconds is gone: the
rest of its line is as it wrote it last, for five minutes.`,
	}
	drain := drainCommand(true, nodeServes, (*client.Admin).DrainNode)
	resume := drainCommand(false, nodeServes, (*client.Admin).ResumeNode)
	c.AddCommand(
		cli.List[client.AdminNode]{
			Columns: nodeColumns,
			Items: func(ctx context.Context, server *client.Admin,
				_ int) iter.Seq2[client.AdminNode, error] {
				return server.Nodes(ctx)
			},
		}.Command(p, operator(), list),
		drain.Command(p, operator(), &cobra.Command{
			Use:   "drain NODE...",
			Short: "Take nodes out of service",
			Long: `Take nodes out of service, within two seconds: they are not ready any more, and
their own workers start no further jobs. Running jobs go on.`,
		}),
		resume.Command(p, operator(), &cobra.Command{
			Use:   "resume NODE...",
			Short: "Put drained nodes into service again",
		}))
	return c
}

// change is what became of a node or a worker.
type change struct {
	Name     string `json:"name"`
	Draining bool   `json:"draining"`
	was      bool
}

// drainCommand begins or ends the drain of each of its arguments (AD-041, AD-042). serves reports
// whether a node or worker is listed as one that is not drained.
func drainCommand(value bool, serves func(context.Context, *client.Admin, string) (bool, error),
	do func(a *client.Admin, ctx context.Context, name string) error) cli.Each[change] {
	return cli.Each[change]{
		Do: func(ctx context.Context, server *client.Admin, argument string) (change, error) {
			is, err := serves(ctx, server, argument)
			if err != nil {
				return change{}, err
			}
			return change{argument, value, !is}, do(server, ctx, argument)
		},
		Done: func(_ string, c change) string {
			switch {
			case c.Draining:
				return fmt.Sprintf("%s is draining", cli.Printable(c.Name))
			case c.was:
				return fmt.Sprintf("%s is resumed", cli.Printable(c.Name))
			}
			return fmt.Sprintf("%s was not draining: nothing changed", cli.Printable(c.Name))
		},
	}
}

// nodeServes reports whether a node is listed that is not drained.
func nodeServes(ctx context.Context, server *client.Admin, name string) (bool, error) {
	for n, err := range server.Nodes(ctx) {
		if err != nil || n.Name == name {
			return !n.Draining, err
		}
	}
	return false, nil
}

// workerServes reports whether a worker is listed that is not drained.
func workerServes(ctx context.Context, server *client.Admin, name string) (bool, error) {
	for w, err := range server.Workers(ctx) {
		if err != nil || w.Name == name {
			return !w.Draining, err
		}
	}
	return false, nil
}
