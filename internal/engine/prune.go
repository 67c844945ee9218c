package engine

import (
	"context"
)

// pruneBatch keeps transactions of the pruner short: it never makes anybody
// wait long.
const pruneBatch = 200

// Prune removes a batch of what each contract need not keep any longer and of
// records whose time is over, and tidies counters. It reports how much was removed; call it again while that is
// not nothing.
func (e *Engine) Prune(ctx context.Context) (removed int, err error) {
	for _, name := range e.names {
		c := e.contracts[name]
		if c.Retention <= 0 && c.DeadRetention <= 0 {
			continue
		}
		var n, dead int
		err := e.update(ctx, func(u *unit) (err error) {
			n, dead = 0, 0
			if c.Retention > 0 {
				if n, err = u.tx.PruneSettled(name, u.now.Add(-c.Retention), pruneBatch); err != nil {
					return err
				}
			}
			if c.DeadRetention > 0 {
				dead, err = u.tx.PruneDeadLetters(name, u.now.Add(-c.DeadRetention), pruneBatch)
			}
			return err
		})
		if err != nil {
			return removed, err
		}
		removed += n + dead
	}
	var records int
	err = e.update(ctx, func(u *unit) (err error) {
		if records, err = u.tx.PruneRecords(pruneBatch); err != nil {
			return err
		}
		return u.tx.FoldCounts(pruneBatch)
	})
	return removed + records, err
}
