package engine_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// waiter is a verb that waits for the transaction of a worker.
type waiter struct {
	verb verb
	run  engine.Run
	tx   *sql.Tx
	done chan error
}

// wantOpen checks that the verb waits.
func (w *workerWorld) wantOpen(v *waiter) {
	w.Helper()
	select {
	case err := <-v.done:
		w.Errorf("%s did not wait: %v", v.verb.name, err)
	default:
	}
}

// openMany opens so many transactions that have each ended a run, and calls a verb for each.
func (w *workerWorld) openMany(n int) (all []*waiter) {
	w.Helper()
	waiting := slices.DeleteFunc(slices.Clone(verbs), func(v verb) bool {
		return !v.waits || strings.HasSuffix(v.name, "after the lease") ||
			v.name == "submit and end" // a schedule has no workers
	})
	for i := range n {
		v := &waiter{verb: waiting[i%len(waiting)], tx: w.begin(), done: make(chan error, 1)}
		text := fmt.Sprint("graph/", i)
		w.submit(sub(text, with(func(j *job.Job) { j.Retry = job.RetryPolicy{} })))
		j, err := w.engine.ClaimJob(w.ctx, id(text), "w")
		w.noError(err)
		v.run = engine.Run{ID: j.ID, Run: j.Run}
		w.complete(v.tx, v.run)
		all = append(all, v)
	}
	w.log.Take()
	for _, v := range all {
		go func() { v.done <- v.verb.do(w, v.run) }()
	}
	tries := 0
	testkit.WaitUntil(w, "every verb to meet the lock", func() bool {
		for _, name := range w.log.Take() {
			if strings.HasPrefix(name, "lock_") {
				tries++
			}
		}
		return tries >= n
	})
	return all
}

// TX-006: while more transactions of workers are open than a node has connections, and a verb waits
// for each of them, everything else goes on: submissions, claims, ends of other runs, heartbeats,
// sweeps and the readiness of the node. The verbs end as they do one by one.
func TestMoreOpenTransactionsThanConnections(t *testing.T) {
	t.Parallel()
	newWorkerWorld(t, func(c *engine.JobType) {
		if c.Name == "graph" {
			c.Machine, c.Graph = everything, false
		}
	}, func(w *workerWorld) {
		const rounds = 20
		all := w.openMany(3 * w.store.Writers())
		for i := range rounds {
			ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
			text := fmt.Sprint("brief/other", i)
			w.noError(errOf(w.engine.Submit(ctx, engine.Unique, subs(sub(text)))))
			jobs, err := w.engine.Claim(ctx, engine.ClaimRequest{JobType: "brief", Max: 1})
			if err != nil || len(jobs) != 1 {
				w.Fatalf("claimed %v, %v", jobs, err)
			}
			r := engine.Run{ID: jobs[0].ID, Run: jobs[0].Run}
			w.noError(errOf(w.engine.Heartbeat(ctx, r, nil)))
			w.noError(w.engine.HeartbeatJob(ctx, all[i].run.ID, nil))
			w.noError(errOf(w.engine.Finish(ctx, r, engine.Outcome{On: job.Succeeded})))
			w.noError(errOf(w.engine.Expire(ctx)))
			w.noError(errOf(w.engine.CarryOutEnds(ctx)))
			w.noError(w.engine.Ping(ctx))
			cancel()
		}
		for _, v := range all {
			w.wantOpen(v)
		}
		for i, v := range all {
			want, end := v.verb.ended, v.tx.Commit
			if i%2 == 1 {
				want, end = v.verb.open, v.tx.Rollback
			}
			w.noError(end())
			err := testkit.Receive(w, v.verb.name, v.done)
			if got := job.KindOf(err); got != want || (err != nil) != (want != none) {
				w.Errorf("%s of transaction %d: got error %v, want kind %s", v.verb.name, i, err, want)
			}
		}
		w.engine.CarryOutEnds(w.ctx)
		if n := len(w.ended); n != len(all)/2 {
			w.Errorf("%d ends were carried out, want %d", n, len(all)/2)
		}
	})
}
