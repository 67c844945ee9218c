package relay

import (
	"strconv"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// The routes about several runs do for each entry what the route of one run does, all in one
// transaction (G-RL-32). A run that is lost does no harm to the others: its entry of the answer has
// known false. An error of the store fails the whole request.

// POST /v2/queues/completions deletes the jobs of runs that have succeeded. Entries count in their
// order, so of a run that is named twice the second one is lost. With the parameter next it claims
// up to so many jobs of their queue in the same transaction, and answers as the route next does
// (G-RL-35).
func (r *Relay) completeAll(c *httpapi.Call) error {
	next, err := r.numJobs(c, "next", 0)
	if err != nil {
		return err
	}
	entries, err := readRuns(c)
	if err != nil {
		return err
	}
	requests := make([]engine.FinishRequest, len(entries))
	for i, entry := range entries {
		requests[i] = engine.FinishRequest{Run: entry.run, Outcome: succeeded}
	}
	if next > 0 {
		return r.completeAndClaim(c, requests, next)
	}
	results := r.Engine.FinishAll(c.Context(), requests)
	return answerRuns(c, entries, func(i int) error { return results[i].Err },
		func(i int) { r.metrics.countCompleted(results[i].Job) })
}

// completeAndClaim ends runs of one queue and claims up to n of its jobs. The claim is served also
// where runs are lost: their worker is free. It does not wait. An answer that is lost leaves the
// jobs to their leases, as that of a poll (G-RL-20).
func (r *Relay) completeAndClaim(c *httpapi.Call, requests []engine.FinishRequest, n int) error {
	queue, err := queueOfRuns(requests)
	if err != nil {
		return err
	}
	request, err := claimRequest(c, queue, n)
	if err != nil {
		return err
	}
	results, jobs, draining := r.Engine.FinishAllRemote(c.Context(), requests, request,
		c.Request.UserAgent())
	var lost []int
	for i := range results {
		switch err := results[i].Err; {
		case job.IsKind(err, job.RunLost):
			lost = append(lost, i)
		case err != nil:
			return err
		default:
			r.metrics.countCompleted(results[i].Job)
		}
	}
	setLostRuns(c, lost...)
	r.answerClaimed(c, queue, jobs, draining, appendJob)
	return nil
}

// maxLostRuns is how many lost runs the header of an answer names, the first ones: clients limit
// the size of headers.
const maxLostRuns = 1000

// setLostRuns names the entries of a request whose runs are lost, in the header of an answer that
// does not say so otherwise (G-RL-36).
func setLostRuns(c *httpapi.Call, entries ...int) {
	if len(entries) == 0 {
		return
	}
	var list []byte
	for i, entry := range entries[:min(len(entries), maxLostRuns)] {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, int64(entry), 10)
	}
	c.Header().Set("Millrace-Lost-Runs", string(list))
}

// queueOfRuns returns the queue that all runs of requests are of.
func queueOfRuns(requests []engine.FinishRequest) (string, error) {
	if len(requests) == 0 {
		return "", malformed("with next there must be a run: its queue is the one to claim from")
	}
	queue := requests[0].Run.ID.Scope
	for i := range requests {
		if requests[i].Run.ID.Scope != queue {
			return "", malformed("run %d: its queue is another than that of run 0; with next all "+
				"must be of one", i)
		}
	}
	return queue, nil
}

// POST /v2/queues/heartbeats extends the leases of runs. An entry may have a state, which is stored
// as the body of a single heartbeat is, and an error: its run has failed, and its lease is not
// extended (G-RL-37).
func (r *Relay) heartbeatAll(c *httpapi.Call) error {
	entries, err := readRuns(c)
	if err != nil {
		return err
	}
	requests := make([]engine.HeartbeatRequest, len(entries))
	for i := range entries {
		entry := &entries[i]
		failure, err := entry.readFailure()
		if err != nil {
			return indexError(err, "run", i)
		}
		requests[i] = engine.HeartbeatRequest{Run: entry.run, Progress: entry.state,
			Failure: failure}
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
