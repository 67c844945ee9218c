// Package nodes is `millrace nodes` and `millrace workers`: how operators see who executes jobs,
// and how they drain nodes and workers.
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
	{Name: "store", Get: func(n client.AdminNode) string { return n.Store.State }},
	{Name: "contracts", Extra: true,
		Get: func(n client.AdminNode) string { return strings.Join(n.Contracts, ",") }},
	{Name: "duties", Extra: true,
		Get: func(n client.AdminNode) string { return strings.Join(n.LeaderRoles, ",") }},
	{Name: "memory", Extra: true, Right: true,
		Get: func(n client.AdminNode) string { return strconv.FormatInt(n.Memory, 10) }},
	{Name: "goroutines", Extra: true, Right: true,
		Get: func(n client.AdminNode) string { return strconv.Itoa(n.Goroutines) }},
	{Name: "open_files", Extra: true, Right: true,
		Get: func(n client.AdminNode) string { return cli.Format(n.OpenFiles) }},
}

// draining says that nothing more is given to a node or a worker.
func draining(is bool) string {
	if is {
		return "draining"
	}
	return ""
}

// Command is `millrace nodes`. Each of its commands gets a connection from operator.
func Command(p cli.Process, operator func() *cli.Operator) *cobra.Command {
	c := cli.Group("nodes", "List and drain the servers that share a store, as an operator")
	list := &cobra.Command{
		Use:   "list",
		Short: "List the nodes, by name",
	}
	c.AddCommand(
		cli.List[client.AdminNode]{
			Columns: nodeColumns,
			Items: func(ctx context.Context, server *client.Admin,
				_ int) iter.Seq2[client.AdminNode, error] {
				return server.Nodes(ctx)
			},
		}.Command(p, operator(), list),
		drainCommand(true, (*client.Admin).DrainNode).Command(p, operator(), &cobra.Command{
			Use:   "drain NODE...",
			Short: "Take nodes out of service",
			Long: `Take nodes out of service, within two seconds: they are not ready any more, and
their own workers start no further jobs. Running jobs go on.`,
		}),
		drainCommand(false, (*client.Admin).ResumeNode).Command(p, operator(), &cobra.Command{
			Use:   "resume NODE...",
			Short: "Put drained nodes into service again",
		}))
	return c
}

// change is what became of a node or a worker.
type change struct {
	Name     string `json:"name"`
	Draining bool   `json:"draining"`
}

// drainCommand begins or ends the drain of each of its arguments (AD-041, AD-042).
func drainCommand(value bool,
	do func(a *client.Admin, ctx context.Context, name string) error) cli.Each[change] {
	return cli.Each[change]{
		Do: func(ctx context.Context, server *client.Admin, argument string) (change, error) {
			return change{argument, value}, do(server, ctx, argument)
		},
		Done: func(_ string, c change) string {
			if c.Draining {
				return fmt.Sprintf("%s is draining", cli.Printable(c.Name))
			}
			return fmt.Sprintf("%s is not draining", cli.Printable(c.Name))
		},
	}
}
