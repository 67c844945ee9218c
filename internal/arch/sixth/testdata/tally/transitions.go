package tally

import "github.com/millrace/millrace/internal/engine"

// onTransitions counts the texts that were counted.
func (t *Tally) onTransitions(moves []engine.Moved) {
	t.metrics.counted.Add(float64(len(moves)))
}
