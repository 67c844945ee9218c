package tally

import "github.com/millrace/millrace/internal/engine"

// onTransitions counts the texts that were counted. The engine calls it after the commit, and only
// for the causes in ReportedCauses: a count that was rolled back is never seen here.
func (t *Tally) onTransitions(transitions []engine.Transitioned) {
	t.metrics.counted.Add(float64(len(transitions)))
}
