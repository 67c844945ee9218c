package engine

import (
	"context"
	"time"
)

// Elect makes this node the one that does a duty for a term, unless another node is and
// its term has not ended.
func (e *Engine) Elect(ctx context.Context, duty string, term time.Duration) (
	elected bool, err error) {
	err = e.update(ctx, func(u *unit) error {
		elected, err = u.tx.Elect(duty, e.node, u.now.Add(term))
		return err
	})
	if err != nil {
		return false, err
	}
	return elected, nil
}

// EndTerms ends the terms of a node that is over, so that nobody waits for their ends.
func (e *Engine) EndTerms(ctx context.Context, former string) error {
	return e.update(ctx, func(u *unit) error { return u.tx.EndTerms(former) })
}
