package relay

import (
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// The routes about several runs do for each entry what the route of one run does, all in one
// transaction (G-RL-32). A run that is lost does no harm to the others: its entry of the answer has
// known false. An error of the store is that of the whole request.

// POST /v2/queues/completions deletes the jobs of runs that have succeeded. Entries count in their
// order, so of a run that is named twice the second one is lost.
func (r *Relay) completeAll(c *httpapi.Call) error {
	entries, err := readRuns(c)
	if err != nil {
		return err
	}
	requests := make([]engine.FinishRequest, len(entries))
	for i, entry := range entries {
		requests[i] = engine.FinishRequest{Run: entry.run, Outcome: succeeded}
	}
	results := r.Engine.FinishAll(c.Context(), requests)
	return answerRuns(c, entries, func(i int) error { return results[i].Err },
		func(i int) { r.metrics.countCompleted(results[i].Job) })
}

// POST /v2/queues/heartbeats extends the leases of runs. An entry may have a state, which is stored
// as the body of a single heartbeat is.
func (r *Relay) heartbeatAll(c *httpapi.Call) error {
	entries, err := readRuns(c)
	if err != nil {
		return err
	}
	requests := make([]engine.HeartbeatRequest, len(entries))
	for i, entry := range entries {
		requests[i] = engine.HeartbeatRequest{Run: entry.run, Progress: entry.state}
	}
	results := r.Engine.HeartbeatAll(c.Context(), requests)
	return answerRuns(c, entries, func(i int) error { return results[i].Err },
		func(i int) { r.metrics.existingQueue(entries[i].run.ID.Scope).heartbeats.Inc() })
}

// answerRuns answers which runs were known, unless one of them has an error of the store. It counts
// those that were. errOf returns the error of an entry.
func answerRuns(c *httpapi.Call, entries []runEntry, errOf func(i int) error,
	count func(i int)) error {
	known := make([]bool, len(entries))
	for i := range entries {
		switch err := errOf(i); {
		case job.IsKind(err, job.RunLost):
		case err != nil:
			return err
		default:
			known[i] = true
			count(i)
		}
	}
	sendRuns(c, entries, known)
	return nil
}
