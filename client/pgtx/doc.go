// Package pgtx uses Millrace in transactions of the caller's own, on the PostgreSQL that the server
// has as its store. What the caller writes in such a transaction, and the request for a job or the
// end of a run, are committed together or not at all.
//
// A producer submits jobs beside its own writes with [SubmitTx]:
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if err := order(ctx, tx, id); err != nil {
//			return err
//		}
//		_, err := pgtx.SubmitTx(ctx, pgtx.PGX(tx), pgtx.Submission{Contract: "relay", Request: job})
//		return err
//	})
//
// A worker ends its run beside its own writes with [CompleteTx] or [FailTx]. When the run is not
// its job's current one any longer, both fail with [ErrRunLost], and the transaction cannot commit:
// another run may have the job. That holds for the outermost transaction: a savepoint that is
// rolled back, such as the Begin of a pgx.Tx makes, takes the error with it. A handler of
// [client.JobWorker] or [client.Worker] does it in [client.JobRun.FinishWith] or
// [client.Run.FinishWith], which keep the worker from sending anything about the run afterwards:
//
//	func handle(ctx context.Context, run *client.JobRun) (json.RawMessage, error) {
//		return nil, run.FinishWith(ctx, func(ctx context.Context) error {
//			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//				if err := charge(ctx, tx, run.Job.Payload); err != nil {
//					return err
//				}
//				return pgtx.CompleteTx(ctx, pgtx.PGX(tx), run.Job.RunID, nil)
//			})
//		})
//	}
//
// # Transactions
//
// [PGX] takes a transaction of pgx and [SQL] one of database/sql. The package imports neither pgx
// nor a driver, and each function is one statement, which docs/transactions.md has for other
// languages. That page also says which promises are exact and on what they rest, such as what to do
// when the answer to a commit is lost.
//
// The connection of a producer needs the role millrace_producer and that of a worker the role
// millrace_worker, and nothing else of Millrace. Where the tables of the store are not in the
// schema public, the functions are in the schema of the tables: [Tx.InSchema] says so.
package pgtx
