package wordcount

import "github.com/millrace/millrace/internal/engine"

// onTransitions counts the texts that were counted. The engine calls it after the commit, and only
// for the causes in ReportedCauses: a count that was rolled back is never seen here.
func (w *WordCount) onTransitions(transitions []engine.Transitioned) {
	for i := range transitions {
		w.metrics.observeTransition(&transitions[i])
	}
}
