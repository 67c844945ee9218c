package inbox_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

const taskJob = `{"name":"n","queue":"q","payload":"x"}`

// chain submits requests in one transaction: those named task to TaskFlow, others to Relay.
func (w *world) chain(names ...string) (ids []string) {
	w.Helper()
	tx := w.begin()
	for _, name := range names {
		if name == "task" {
			ids = append(ids, w.submit(tx, "taskflow", taskJob))
			continue
		}
		ids = append(ids, w.submit(tx, "relay", fmt.Sprintf(relayJob, name)))
	}
	w.must(tx.Commit())
	return ids
}

// states returns the states of requests.
func (w *world) states(ids []string) (all []string) {
	w.Helper()
	for _, id := range ids {
		all = append(all, w.see(id).state)
	}
	return all
}

// tries returns how often transactions could not be submitted.
func (w *world) tries() (n int) {
	w.Helper()
	w.must(w.db.QueryRow("SELECT coalesce(sum(tries),0) FROM inbox_transactions").Scan(&n))
	return n
}

// TX-002, TX-003: what comes before a request whose contract no node serves is submitted. The
// request says what it waits for, is tried again ever less often, and is submitted once a node
// serves its contract, before those behind it.
func TestServedNowhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nodes := []*node{w.newNode(nodeConfig{serves: "relay"}), w.newNode(nodeConfig{serves: "relay"})}
	run := func() {
		t.Helper()
		for range 3 {
			for _, n := range nodes {
				n.run(w) // it ends, so nothing is taken and given back again and again
			}
		}
	}
	var chains [][]string
	for i := range 3 {
		chains = append(chains, w.chain(fmt.Sprint("b", i), fmt.Sprint("c", i), "task",
			fmt.Sprint("d", i)))
	}
	run()
	for _, ids := range chains {
		if got := w.states(ids); !slices.Equal(got, []string{"submitted", "submitted", "waiting",
			"waiting"}) {
			t.Errorf("TX-002 the requests of a transaction are %v", got)
		}
	}
	if n := w.tries(); n != 0 {
		t.Errorf("TX-002 %d tries before others have had the time to serve it", n)
	}
	for i, after := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second} {
		w.clock.Advance(after + inbox.SkipTimeout - time.Millisecond)
		run()
		if n := w.tries(); n != 3*i {
			t.Errorf("TX-003 %d tries before %v, want %d", n, after, 3*i)
		}
		w.clock.Advance(time.Millisecond)
		run()
		if n := w.tries(); n != 3*(i+1) {
			t.Errorf("TX-003 %d tries after %v, want %d", n, after, 3*(i+1))
		}
	}
	for _, ids := range chains {
		want := seen{"waiting", "taskflow", "", "no node serves the contract taskflow"}
		if s := w.see(ids[2]); s != want {
			t.Errorf("TX-003 what waits is %+v", s)
		}
		if s := w.see(ids[3]); s != (seen{"waiting", "relay", "", ""}) {
			t.Errorf("TX-003 what is behind it is %+v", s)
		}
	}
	log := nodes[0].log.String() + nodes[1].log.String()
	if n := strings.Count(log, "no node serves their contract"); n != 1 {
		t.Errorf("TX-003 %d chains in the log: %s", n, log)
	}
	w.clock.Advance(30 * time.Second)
	w.run(w) // by a node that serves both
	for _, ids := range chains {
		if s := w.see(ids[2]); s.state != "submitted" || s.reason != "" ||
			w.see(ids[3]).state != "submitted" {
			t.Errorf("TX-002 what has waited is %+v, and %+v is behind it", s, w.see(ids[3]))
		}
	}
}

// TX-002: nodes of different contracts hand a transaction over to each other at once, in whatever
// order it has their contracts. The clock stands still, and nothing but notifications wakes them.
func TestHandedOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	application := rand.Text()
	w.url += "&application_name=" + application
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for _, serves := range []string{"relay", "taskflow"} {
		n := w.newNode(nodeConfig{serves: serves})
		running.Go(func() { n.engine.Listen(ctx) })
		running.Go(func() { n.Run(ctx) })
	}
	testkit.WaitUntil(t, "the nodes to listen", func() bool {
		var n int
		w.must(w.db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE application_name=$1
			AND query='LISTEN millrace' AND state='idle'`, application).Scan(&n))
		return n == 2
	})
	for _, names := range [][]string{{"1", "task"}, {"task", "2"}, {"task", "3", "task", "4"}} {
		ids := w.chain(names...)
		testkit.WaitUntil(t, fmt.Sprint(names, " to be submitted"), func() bool {
			return !slices.Contains(w.states(ids), "waiting")
		})
		var jobs []int64
		for _, id := range ids {
			jobs = append(jobs, w.request(id).Job)
		}
		if !slices.IsSorted(jobs) || jobs[0] == 0 {
			t.Errorf("TX-002 the jobs of %v are %v", names, jobs)
		}
	}
}

// TX-002, TX-003: a node that must not take submissions of a contract leaves them to others, after
// it has submitted what comes before. Where there is no other one, the contract says why.
func TestRefusedByANode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	refusing := w.newNode(nodeConfig{refuses: &job.Error{Kind: job.Unavailable, Op: "test",
		Msg: "this node uses other objects"}})
	check := func(ids []string, want ...string) {
		t.Helper()
		if got := w.states(ids); !slices.Equal(got, want) {
			t.Errorf("TX-002 the requests are %v, want %v", got, want)
		}
	}
	ids := w.chain("1", "task", "2")
	refusing.run(w)
	check(ids, "submitted", "waiting", "waiting")
	w.run(w) // at once
	check(ids, "submitted", "submitted", "submitted")
	ids = w.chain("3", "task")
	refusing.run(w)
	w.clock.Advance(inbox.SkipTimeout)
	refusing.run(w)
	check(ids, "submitted", "waiting")
	if s := w.see(ids[1]); !strings.Contains(s.reason, "this node uses other objects") ||
		w.tries() != 1 {
		t.Errorf("TX-003 what waits is %+v after %d tries", s, w.tries())
	}
	w.clock.Advance(time.Second)
	w.run(w)
	check(ids, "submitted", "submitted")
	ids = w.chain("task") // which no node has taken when that time is over
	_, err := w.db.Exec("UPDATE inbox_transactions SET began=0")
	w.must(err)
	refusing.run(w)
	if n := w.tries(); n != 0 {
		t.Errorf("TX-002 %d tries before others have had the time to serve it", n)
	}
	w.clock.Advance(inbox.SkipTimeout)
	refusing.run(w)
	if s := w.see(ids[0]); s.reason == "" || w.tries() != 1 {
		t.Errorf("TX-003 what waits is %+v after %d tries", s, w.tries())
	}
}

// TX-002: a request that cannot be submitted before one that this node does not serve is tried
// again after a pause, as any other.
func TestWaitsBeforeAnotherNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	updates, calls := updates{Store: w.open()}, 0
	updates.do = func(update func() error) error {
		mu.Lock()
		calls++
		fails := calls == 2 // after the one that takes the transaction
		mu.Unlock()
		if fails {
			return errUnavailable
		}
		return update()
	}
	n := w.newNode(nodeConfig{store: &updates, serves: "relay"})
	ids := w.chain("1", "task")
	n.run(w)
	if s := w.see(ids[0]); s.state != "waiting" || s.reason == "" || w.tries() != 1 {
		t.Errorf("TX-003 what waits is %+v after %d tries", s, w.tries())
	}
	w.clock.Advance(time.Second)
	n.run(w)
	if got := w.states(ids); !slices.Equal(got, []string{"submitted", "waiting"}) {
		t.Errorf("TX-002 the requests are %v", got)
	}
}
