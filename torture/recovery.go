package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// What a recovery has to reach: how long a node may take until it is ready, and how late after the
// end of its lease a job may be claimed again.
const (
	readyGoal   = 2 * time.Second
	reclaimGoal = time.Second
)

const (
	backlogQueue   = "backlog"   // of the jobs that are queued in all rounds
	abandonedQueue = "abandoned" // of the jobs whose worker is gone
	abandonedJobs  = 300
	fillBatch      = 500 // jobs of a request that fills backlogQueue
	fillers        = 4   // connections over which it is filled
	reclaimers     = 4   // workers that wait for the jobs of abandonedQueue
	// reclaimTimeout is how long the jobs of a round may take to be claimed again.
	reclaimTimeout = time.Minute
)

// recovery is a run that measures, in place of a load, how a node comes back after a kill while
// many jobs are queued, and how soon the jobs of a worker that is gone are claimed again.
type recovery struct {
	*run
	mu        sync.Mutex
	ends      map[string]time.Time // of the leases of a round, not later than they are
	ready     []time.Duration      // from the start of a process to its first ready answer
	first     []time.Duration      // the same to its first job
	processor []time.Duration      // that the processes had used when they were ready
	reclaimed []time.Duration      // from the end of a lease to the next run of its job
}

// measureRecovery carries out the rounds of a plan, each with another node, and writes what they
// took. It is not good where one of them misses a goal.
func measureRecovery(ctx context.Context, p *plan, output io.Writer) (good bool, err error) {
	temporary, err := p.makeReady(output)
	if err != nil {
		return false, err
	}
	r := &recovery{run: &run{plan: p, output: output, client: &http.Client{}}}
	if err := errors.Join(r.measure(ctx), r.close()); err != nil {
		return false, err
	}
	good = r.write(output)
	if temporary {
		err = os.RemoveAll(p.Dir)
	}
	return good, err
}

// measure fills the queue and carries out the rounds.
func (r *recovery) measure(ctx context.Context) error {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := r.fill(ctx); err != nil {
		return err
	}
	r.log("%d jobs queued in %s", r.plan.Recovery, time.Since(began).Round(time.Millisecond))
	for i := range r.plan.Rounds {
		if err := r.recover(ctx, i); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		r.log("round %d: node %d ready after %s, its first job after %s, the last one claimed again "+
			"%s after its lease", i+1, i%len(r.nodes), r.ready[i], r.first[i],
			r.reclaimed[len(r.reclaimed)-1])
	}
	return nil
}

// fill queues the jobs of the plan.
func (r *recovery) fill(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	starts := make(chan int)
	var senders sync.WaitGroup
	for i := range fillers {
		senders.Go(func() {
			for from := range starts {
				n := min(fillBatch, r.plan.Recovery-from)
				err := r.submit(ctx, r.nodes[i%len(r.nodes)], backlogQueue, from, n)
				if err != nil {
					stop(err)
				}
			}
		})
	}
	for from := 0; from < r.plan.Recovery; from += fillBatch {
		starts <- from
	}
	close(starts)
	senders.Wait()
	return context.Cause(ctx)
}

// submit queues jobs that are named by numbers.
func (r *recovery) submit(ctx context.Context, n *node, queue string, from, count int) error {
	batch := make([]relayJob, count)
	for i := range batch {
		name := strconv.Itoa(from + i)
		batch[i] = relayJob{Queue: queue, ID: name, Timeout: int(lease.Seconds()),
			Payload: encode(map[string]string{"of": name})}
	}
	_, err := r.send(ctx, n, request{method: http.MethodPost,
		path: "/v2/queues/jobs?mode=unique", body: encode(batch)})
	return err
}

// recover is one round. A worker claims jobs from a node and does nothing more, as the node is
// killed. Others wait for these jobs, at another node where there is one.
func (r *recovery) recover(ctx context.Context, round int) error {
	n := r.nodes[round%len(r.nodes)]
	other := r.nodes[(round+1)%len(r.nodes)]
	if err := r.submit(ctx, n, abandonedQueue, round*abandonedJobs, abandonedJobs); err != nil {
		return err
	}
	r.ends = map[string]time.Time{}
	for len(r.ends) < abandonedJobs {
		asked := time.Now()
		jobs, err := r.claim(ctx, n, abandonedQueue)
		if err != nil {
			return err
		}
		for _, j := range jobs {
			r.ends[j.ID] = asked.Add(lease)
		}
	}
	n.kill()
	started := time.Now()
	if err := n.start(); err != nil {
		return err
	}
	waiting, stop := context.WithTimeout(ctx, reclaimTimeout)
	defer stop()
	var workers sync.WaitGroup
	defer workers.Wait()
	for range reclaimers {
		workers.Go(func() { r.reclaim(waiting, stop, other) })
	}
	if err := n.becomeReady(ctx); err != nil {
		return err
	}
	r.ready = append(r.ready, time.Since(started))
	used, err := processorTime(n.cmd.Process.Pid)
	if err != nil {
		return err
	}
	r.processor = append(r.processor, used)
	if _, err := r.claim(ctx, n, backlogQueue); err != nil {
		return err
	}
	r.first = append(r.first, time.Since(started))
	<-waiting.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ends) > 0 {
		return fmt.Errorf("%d jobs were not claimed again within %s", len(r.ends), reclaimTimeout)
	}
	return nil
}

// reclaim claims what comes back of the jobs of a round and completes it. It calls done when none
// is left. A node that is down is asked again.
func (r *recovery) reclaim(ctx context.Context, done func(), n *node) {
	for ctx.Err() == nil {
		jobs, err := r.claim(ctx, n, abandonedQueue)
		if err != nil {
			sleep(ctx, 5*time.Millisecond)
			continue
		}
		if r.note(jobs) == 0 {
			done()
		}
		for _, j := range jobs { // one that is not completed comes back, and is not counted again
			_, _ = r.send(context.WithoutCancel(ctx), n, request{method: http.MethodDelete,
				path: runPath(claimedJob{Queue: j.Queue, Job: j.ID, Run: j.Run})})
		}
	}
}

// note notes how late jobs were claimed again, and returns how many are left.
func (r *recovery) note(jobs []relayJob) (left int) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range jobs {
		if end, ok := r.ends[j.ID]; ok {
			r.reclaimed = append(r.reclaimed, now.Sub(end))
			delete(r.ends, j.ID)
		}
	}
	return len(r.ends)
}

// claim claims up to a hundred jobs of a queue, and waits up to a second for the first.
func (r *recovery) claim(ctx context.Context, n *node, queue string) (jobs []relayJob, err error) {
	body, err := r.send(ctx, n, request{method: http.MethodGet,
		path:   "/v2/queues/" + queue + "/jobs?num_jobs=100",
		header: map[string]string{"Prefer": "wait=1"}})
	if err != nil || len(body) == 0 {
		return nil, err
	}
	return jobs, json.Unmarshal(body, &jobs)
}

// send sends a request to a node and returns the answer, which has to be 2xx.
func (r *recovery) send(ctx context.Context, n *node, q request) ([]byte, error) {
	o := &op{Contract: relay, Node: n.number}
	answer, err := (&actor{run: r.run}).ask(ctx, o, q)
	if err != nil {
		return nil, err
	}
	if o.Class != classOK {
		return nil, fmt.Errorf("%s %s: %d %s", q.method, q.path, o.Status, answer)
	}
	return answer, nil
}

// processorTime is how long a process has run on processors. The system counts it in hundredths.
func processorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, err := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err, err2)
}

// write writes the figures and reports whether all are within their goals.
func (r *recovery) write(w io.Writer) (good bool) {
	fmt.Fprintf(w, "%s with %d node(s), %d jobs queued, %d kills of a node, each with %d leases of "+
		"%s\n", r.plan.Store, len(r.nodes), r.plan.Recovery, len(r.ready), abandonedJobs, lease)
	for _, line := range []struct {
		what string
		all  []time.Duration
	}{
		{"ready after the start (goal " + readyGoal.String() + ")", r.ready},
		{"processor time of a node until it was ready", r.processor},
		{"first job after the start", r.first},
		{"claimed again after the end of the lease (goal " + reclaimGoal.String() + ")", r.reclaimed},
	} {
		fmt.Fprintf(w, "%s: %s (median), %s (slowest) of %d\n", line.what,
			median(line.all).Round(time.Millisecond), slices.Max(line.all).Round(time.Millisecond),
			len(line.all))
	}
	fmt.Fprintf(w, "%d times a node kept all leases for one more, as the store had stalled\n",
		r.countStalls())
	return slices.Max(r.ready) <= readyGoal && slices.Max(r.reclaimed) <= reclaimGoal
}

// countStalls counts how often the nodes have logged that leases end later than they would have: on
// a machine that is busy with other things that happens, and is no failure of the recovery.
func (r *recovery) countStalls() (n int) {
	for _, node := range r.nodes {
		text, err := os.ReadFile(node.log.Name())
		if err != nil {
			continue
		}
		n += strings.Count(string(text), "kept for one more lease")
	}
	return n
}
