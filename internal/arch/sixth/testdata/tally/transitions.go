package tally

import "github.com/millrace/millrace/internal/engine"

// onTransitions counts the texts that were counted. The engine calls it after the commit, and only
// for the causes in MovedOn: a count that was rolled back is never seen here.
func (t *Tally) onTransitions(moves []engine.Moved) {
	t.metrics.counted.Add(float64(len(moves)))
}
