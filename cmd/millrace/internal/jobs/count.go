package jobs

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// countFields are what jobs can be counted by.
var countFields = []string{"contract", "queue", "phase", "state", "kind", "worker"}

// countColumns are the columns of counts.
var countColumns = []cli.Column[client.AdminCount]{
	{Name: "contract", Keep: true,
		Get: func(n client.AdminCount) string { return cli.Format(n.Contract) }},
	{Name: "value", Keep: true, Get: func(n client.AdminCount) string {
		for _, value := range []*string{n.Queue, n.Phase, n.State, n.Kind, n.Worker} {
			if value != nil {
				return *value
			}
		}
		return ""
	}},
	{Name: "jobs", Keep: true, Right: true, Get: func(n client.AdminCount) string {
		if n.AtLeast != nil {
			return strconv.FormatInt(*n.AtLeast, 10) + "+"
		}
		return cli.Format(n.Count)
	}},
}

// countCommand is `millrace jobs count` (AD-018).
func countCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	var q client.AdminCountQuery
	c := &cobra.Command{
		Use:   "count",
		Short: "Count the jobs of every contract by state, queue or another field",
		Long: `Count the jobs that are stored, by contract, queue, phase, state, kind or worker. By state,
kind and worker jobs are counted one by one: a number with a + may be larger.`,
	}
	cli.QueueVar(c.Flags(), &q.Contract, &q.Queue, "jobs of this ")
	c.Flags().StringVar(&q.By, "by", "state", "what to count by: "+strings.Join(countFields, ", "))
	cli.CompleteWords(c, "by", countFields...)
	return cli.List[client.AdminCount]{
		Columns: countColumns,
		Check: func() error {
			if !slices.Contains(countFields, q.By) {
				return cli.UsageError("--by must be one of %s", strings.Join(countFields, ", "))
			}
			return nil
		},
		Items: func(ctx context.Context, server *client.Admin,
			pageSize int) iter.Seq2[client.AdminCount, error] {
			q.PageSize = pageSize
			return ofContract(q.Contract, server.Counts(ctx, q))
		},
	}.Command(p, operator, c)
}

// ofContract adds to counts the contract that was asked for, which those of phases do not have.
func ofContract(contract string,
	all iter.Seq2[client.AdminCount, error]) iter.Seq2[client.AdminCount, error] {
	return func(yield func(client.AdminCount, error) bool) {
		for n, err := range all {
			if n.Contract == nil && contract != "" {
				n.Contract = &contract
			}
			if !yield(n, err) {
				return
			}
		}
	}
}
