package pgtx_test

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/client/pgtx"
)

// A handler ends its run beside what it writes itself.
func ExampleCompleteTx() {
	var pool *sql.DB // of the worker, on the PostgreSQL of the server
	pay := func(ctx context.Context, run *client.JobRun) (json.RawMessage, error) {
		return nil, run.FinishWith(ctx, func(ctx context.Context) error {
			tx, err := pool.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			_, err = tx.ExecContext(ctx, "UPDATE bills SET paid = true WHERE id = $1", run.Job.ID)
			if err != nil {
				return err
			}
			if err := pgtx.CompleteTx(ctx, pgtx.SQL(tx), run.Job.RunID, nil); err != nil {
				return err // a run that was lost cannot commit
			}
			return tx.Commit()
		})
	}
	_ = &client.JobWorker{Handlers: map[string]client.JobHandler{"bills": pay}}
}
