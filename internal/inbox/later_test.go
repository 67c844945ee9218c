package inbox_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// TX-002, TX-003: a request that cannot be submitted yet waits and says why, as do those behind it
// in its transaction, and other transactions go on. It is tried again after a second, and then less
// often; when it is submitted the requests have the order of the transaction.
func TestLater(t *testing.T) {
	t.Parallel()
	for _, why := range []*job.Error{
		{Kind: job.Unavailable, Msg: "the store of objects is unavailable"},
		{Kind: job.Full, Msg: "the queue is full"},
		{Kind: job.Timeout, Msg: "it took too long"},
	} {
		t.Run(why.Kind.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var unavailable atomic.Bool
			var tries atomic.Int64
			w.node = w.newNode(nodeConfig{relay: func(submit submitFunc) submitFunc {
				return func(ctx context.Context, r contract.Request) (*job.Job, error) {
					if unavailable.Load() && strings.Contains(string(r.Body), "b2") {
						tries.Add(1)
						return nil, why
					}
					return submit(ctx, r)
				}
			}})
			unavailable.Store(true)
			tx := w.begin()
			var ids []string
			for _, name := range []string{"b1", "b2", "b3"} {
				ids = append(ids, w.submit(tx, "relay", fmt.Sprintf(relayJob, name)))
			}
			w.must(tx.Commit())
			w.submit(w.db, "relay", fmt.Sprintf(relayJob, "a"))
			w.run(w)
			if got := w.jobs("relay"); len(got) != 2 || !slices.Contains(got, "a") ||
				!slices.Contains(got, "b1") {
				t.Errorf("TX-002 the jobs are %v", got)
			}
			if s := w.see(ids[1]); s.state != "waiting" || !strings.Contains(s.reason, why.Msg) {
				t.Errorf("TX-003 what waits is %+v", s)
			}
			if s := w.see(ids[2]); s != (seen{"waiting", "relay", "", ""}) {
				t.Errorf("TX-002 what is behind it is %+v", s)
			}
			for i, after := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
				w.clock.Advance(after - time.Millisecond)
				w.run(w)
				if n := tries.Load(); n != int64(i+1) {
					t.Errorf("TX-003 %d tries before %v, want %d", n, after, i+1)
				}
				w.clock.Advance(time.Millisecond)
				w.run(w)
			}
			unavailable.Store(false)
			w.clock.Advance(30 * time.Second)
			w.run(w)
			made := slices.DeleteFunc(w.jobs("relay"), func(id string) bool { return id == "a" })
			if !slices.Equal(made, []string{"b1", "b2", "b3"}) {
				t.Errorf("TX-002 the jobs are %v", made)
			}
			if s := w.see(ids[1]); s != (seen{"submitted", "relay", "b2", ""}) {
				t.Errorf("TX-003 what has waited is %+v", s)
			}
		})
	}
}

// updates is a store that changes what comes of its updates.
type updates struct {
	store.Store
	do func(update func() error) error
}

func (u *updates) Update(ctx context.Context, fn func(store.Tx) error) error {
	return u.do(func() error { return u.Store.Update(ctx, fn) })
}

var errUnavailable = &job.Error{Kind: job.Unavailable, Op: "test", Msg: "the store is unavailable"}

// TX-001: wherever the store fails, or the answer of a commit is lost, everything is submitted and
// once: Relay is asked for its jobs at the end of each try, and they are ended, so that a second
// submission would be a second job. One between them has a transaction of its own.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{false, true} {
		for failing := range 7 {
			t.Run(fmt.Sprintf("update %d, kept %v", failing, kept), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				n := 0
				var mu sync.Mutex
				fail := func(update func() error) error {
					mu.Lock()
					defer mu.Unlock()
					if n++; n-1 != failing {
						return update()
					}
					if kept {
						_ = update()
					}
					return errUnavailable
				}
				first := w.submit(w.db, "taskflow", taskJob)
				w.run(w)
				bad := w.newNode(nodeConfig{store: &updates{w.open(), fail}})
				tx := w.begin()
				want := []string{"1", "2", "3"}
				for i, name := range want {
					w.submit(tx, "relay", fmt.Sprintf(relayJob, name))
					if i == 0 {
						w.submit(tx, "taskflow", fmt.Sprintf(`{"name":"n","queue":"q","payload":"x",
							"dependencies":[%q]}`, w.see(first).jobID))
					}
				}
				w.submit(tx, "relay", "{}") // which is refused
				w.must(tx.Commit())
				var got []string
				for range 4 {
					bad.runUntilItFails()
					got = append(got, w.endJobs()...)
				}
				for range 3 {
					w.clock.Advance(time.Minute)
					w.run(w)
					got = append(got, w.endJobs()...)
				}
				if !slices.Equal(got, want) {
					t.Errorf("TX-001 the jobs were %v, want %v", got, want)
				}
				if n := len(w.jobs("taskflow")); n != 2 {
					t.Errorf("TX-001 there are %d jobs of TaskFlow, want 2", n)
				}
				var left int
				w.must(w.db.QueryRow("SELECT (SELECT count(*) FROM inbox WHERE state='waiting')+" +
					"(SELECT count(*) FROM inbox_transactions)").Scan(&left))
				if left != 0 {
					t.Errorf("TX-001 %d rows are left", left)
				}
			})
		}
	}
}

// endJobs ends all jobs of Relay that are there, which removes them, and returns their ids.
func (w *world) endJobs() (ids []string) {
	w.Helper()
	ctx := context.Background()
	jobs, err := w.engine.Claim(ctx, engine.ClaimRequest{JobType: "relay", Max: 100, Worker: "w"})
	w.must(err)
	for _, j := range jobs {
		_, err := w.engine.Finish(ctx, engine.Run{ID: j.ID, Run: j.Run},
			engine.Outcome{On: job.Succeeded})
		w.must(err)
		ids = append(ids, j.ID.Key)
	}
	return ids
}

// TX-002: what a node has taken that was killed is taken by another one when the lease has ended,
// and not before.
func TestNodeIsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(w.db, "relay", fmt.Sprintf(relayJob, "1"))
	if taken, err := w.engine.ClaimInbox(context.Background(), 10, inbox.Lease, nil,
		0); err != nil ||
		len(taken) != 1 {
		t.Fatalf("took %v: %v", taken, err)
	}
	w.clock.Advance(inbox.Lease - time.Millisecond)
	w.run(w)
	if got := w.jobs("relay"); len(got) != 0 {
		t.Errorf("TX-002 %v was submitted within the lease of another node", got)
	}
	w.clock.Advance(time.Millisecond)
	w.run(w)
	if got := w.jobs("relay"); !slices.Equal(got, []string{"1"}) {
		t.Errorf("TX-002 the jobs are %v", got)
	}
}

// TX-001, TX-002: a node that stalls until its lease has ended and another node has done its work
// does nothing twice.
func TestNodeStalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stalled, goOn := make(chan struct{}), make(chan struct{})
	slow := w.newNode(nodeConfig{relay: func(submit submitFunc) submitFunc {
		var once sync.Once
		return func(ctx context.Context, r contract.Request) (*job.Job, error) {
			once.Do(func() { close(stalled); <-goOn })
			return submit(ctx, r)
		}
	}})
	tx := w.begin()
	want := []string{"1", "2", "3"}
	for _, name := range want {
		w.submit(tx, "relay", fmt.Sprintf(relayJob, name))
	}
	w.must(tx.Commit())
	var running sync.WaitGroup
	defer running.Wait()
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	running.Go(func() { _, _ = slow.Step(context.Background()) })
	testkit.Receive(t, "the node to stall", stalled)
	w.clock.Advance(inbox.Lease)
	w.run(w)
	got := w.endJobs()
	release()
	running.Wait()
	slow.run(w)
	w.run(w)
	if got = append(got, w.endJobs()...); !slices.Equal(got, want) {
		t.Errorf("TX-001 the jobs were %v, want %v", got, want)
	}
}

// TX-002: a transaction whose requests take long does not hold up others of its node, and is left
// to the node for as long as it works on it.
func TestSlowTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	slow, release := w.newSlowNode()
	defer release()
	step := func() {
		if more, err := slow.Step(context.Background()); !more || err != nil {
			t.Fatalf("TX-002 a step beside the slow transaction says %v: %v", more, err)
		}
	}
	w.submit(w.db, "relay", fmt.Sprintf(relayJob, "slow"))
	step()
	// The lease has ended by a clock that was set forward. The node takes the transaction again.
	_, err := w.db.Exec("UPDATE inbox_transactions SET due_at=0")
	w.must(err)
	step()
	want := []string{"slow"}
	for i := range 3 { // and longer than a lease
		name := fmt.Sprint(i)
		w.submit(w.db, "relay", fmt.Sprintf(relayJob, name))
		testkit.WaitUntil(t, "the transaction behind the slow one", func() bool {
			step()
			return slices.Contains(w.jobs("relay"), name)
		})
		want = append(want, name)
		w.clock.Advance(inbox.Lease * 2 / 3)
		step()
		w.run(w)
	}
	release()
	slow.run(w)
	got := w.endJobs()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("TX-002 the jobs were %v, want %v", got, want)
	}
}

// TX-002: a node leaves requests to contracts that it does not serve to those that do, also in the
// middle of a transaction, whose order is kept.
func TestNodesOfSomeContracts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	onlyRelay := w.newNode(nodeConfig{serves: "relay"})
	onlyTasks := w.newNode(nodeConfig{serves: "taskflow"})
	const task = `{"name":"n","queue":"q","payload":"%s"}`
	tx := w.begin()
	w.submit(tx, "relay", fmt.Sprintf(relayJob, "1"))
	second := w.submit(tx, "taskflow", fmt.Sprintf(task, "2"))
	w.submit(tx, "relay", fmt.Sprintf(relayJob, "3"))
	w.must(tx.Commit())
	none := w.submit(w.db, "forgerun", "{}")
	onlyTasks.run(w)
	if len(w.jobs("taskflow")) != 0 {
		t.Error("TX-002 the second request was submitted before the first")
	}
	onlyRelay.run(w)
	if got := w.jobs("relay"); !slices.Equal(got, []string{"1"}) {
		t.Errorf("TX-002 the first node has made %v", got)
	}
	onlyTasks.run(w) // at once: there is no pause for what another node serves
	if w.see(second).state != "submitted" {
		t.Errorf("TX-002 the second request is %+v", w.see(second))
	}
	onlyRelay.run(w)
	if got := w.jobs("relay"); !slices.Equal(got, []string{"1", "3"}) {
		t.Errorf("TX-002 the first node has made %v", got)
	}
	if s := w.see(none); s.state != "waiting" {
		t.Errorf("TX-002 a request to a contract that no node serves is %+v", s)
	}
}

// TX-002: a node that stops gives back what it has taken, so that others need not wait.
func TestNodeStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, stop := context.WithCancel(context.Background())
	stopping := w.newNode(nodeConfig{relay: func(submit submitFunc) submitFunc {
		return func(ctx context.Context, r contract.Request) (*job.Job, error) {
			if strings.Contains(string(r.Body), "2") {
				stop()
				<-ctx.Done()
			}
			return submit(ctx, r)
		}
	}})
	tx := w.begin()
	for _, name := range []string{"1", "2", "3"} {
		w.submit(tx, "relay", fmt.Sprintf(relayJob, name))
	}
	w.must(tx.Commit())
	w.must(stopping.engine.Refresh(ctx)) // which finds that there is something to do
	stopping.Run(ctx)
	w.run(w)
	if got := w.jobs("relay"); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("TX-002 the jobs are %v", got)
	}
}
