// Package cli holds what every command of millrace shares: the [Process] it runs in, the flags of
// commands that talk to a server, output, exit codes, progress, and child processes of the same
// binary.
//
// A command touches nothing of the operating system but through its Process, so that a test runs
// the same command with buffers in the place of files. It returns an error that carries its exit
// code (see [WithCode]); main alone writes the error and ends the process.
//
// # Commands for operators
//
// There are three kinds, each a value that completes a [cobra.Command]: it adds the flags of the
// connection and the output, and runs the command. Flags of the command's own are added by the
// caller, with the names of the API's filters.
//
// [List] prints a list, as a table, as one JSON document (--json) or as a line for each item
// (--jsonl), again and again with --watch:
//
//	func listCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
//		var f client.AdminQueueFilter
//		c := &cobra.Command{Use: "list", Short: "List the queues"}
//		c.Flags().StringVar(&f.Contract, "contract", "", "only queues of this contract")
//		return cli.List[client.AdminQueue]{
//			Columns: []cli.Column[client.AdminQueue]{
//				{Name: "queue", Get: queueName},
//				{Name: "ready", Right: true, Get: ready},
//			},
//			Items: func(ctx context.Context, api *client.Admin,
//				pageSize int) iter.Seq2[client.AdminQueue, error] {
//				f.PageSize = pageSize
//				return api.Queues(ctx, f)
//			},
//		}.Command(p, operator, c)
//	}
//
// [Show] prints one thing, a line for each member or, with --json, the document. [Each] does the
// same to each of its arguments and prints what came of it. A command that changes more than its
// arguments name asks before, with a [Confirmation].
//
// Names of queues are "contract/queue" (see [ParseQueue]), and jobs are named by their number (see
// [ParseNumber]).
package cli
