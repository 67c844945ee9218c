package engine_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// 32 pollers on two servers of one PostgreSQL, or one of SQLite, take 10,000 jobs while enqueuing
// goes on: each job is claimed exactly once and ends once. MILLRACE_TEST_CROWD is another number of
// jobs; with the race detector there are 2,000 at most. Claims that were open for a queue at the
// same time, of which one has taken jobs of it, are counted as a race of two.
func TestCrowdTakesEachJobOnce(t *testing.T) {
	for database, nodes := range map[string]int{"file": 1, "postgres": 2} {
		t.Run(database, func(t *testing.T) {
			w := newWorld(t, database, testJobTypes())
			engines := []*engine.Engine{w.engine}
			if nodes > 1 { // a server of its own has a store of its own
				engines = append(engines, w.server())
			}
			c := &crowd{w: w, engines: engines, open: map[string]int{},
				total: envNumber(t, "MILLRACE_TEST_CROWD", 10_000)}
			if slow {
				c.total = min(c.total, 2_000)
			}
			c.run()
			t.Logf("%d jobs were taken by %d claims in %d races of two", c.total, c.won, c.races)
			if c.races == 0 {
				t.Error("no claim had another one beside it")
			}
		})
	}
}

// crowd submits and takes jobs at the same time.
type crowd struct {
	w       *world
	engines []*engine.Engine
	total   int

	claimed  sync.Map // key to true
	finished atomic.Int64

	mu    sync.Mutex
	open  map[string]int // claims by queue
	won   int            // claims that have taken jobs
	races int
}

// openClaim counts a claim of queues among those that are open.
func (c *crowd) openClaim(queues []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, queue := range queues {
		c.open[queue]++
	}
}

// closeClaim ends a claim, which has taken jobs. It has won against each claim that is still open
// for one of their queues: the most of one queue are counted, as one may be open for both.
func (c *crowd) closeClaim(queues []string, taken []*job.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, queue := range queues {
		c.open[queue]--
	}
	if len(taken) == 0 {
		return
	}
	others := 0
	for _, j := range taken {
		others = max(others, c.open[j.Queue])
	}
	c.won++
	c.races += others
}

func (c *crowd) run() {
	const submitters, batch = 4, 50
	var wg sync.WaitGroup
	var next atomic.Int64
	for i := range submitters {
		wg.Go(func() {
			for from := int(next.Add(batch)) - batch; from < c.total; from = int(
				next.Add(batch)) - batch {
				subs := make([]engine.Submission, batch)
				for k := range subs {
					subs[k] = sub(fmt.Sprintf("brief/%05d", from+k), in(fmt.Sprint("q", k%2)))
				}
				if _, err := c.engines[i%len(c.engines)].Submit(c.w.ctx, engine.Unique,
					subs); err != nil {
					c.w.Error(err)
				}
			}
		})
	}
	for i := range 32 {
		wg.Go(func() { c.poll(i) })
	}
	wg.Wait()
	if n := c.finished.Load(); n != int64(c.total) {
		c.w.Errorf("%d of %d jobs were finished", n, c.total)
	}
	c.w.wantSnapshot("")
}

func (c *crowd) poll(i int) {
	queues := [][]string{{"q0"}, {"q1"}, {"q0", "q1"}, nil}[i%4]
	competing := queues
	if queues == nil {
		competing = []string{"q0", "q1"}
	}
	for c.finished.Load() < int64(c.total) && !c.w.Failed() {
		c.openClaim(competing)
		jobs, err := c.engines[i%len(c.engines)].Claim(c.w.ctx,
			engine.ClaimRequest{JobType: "brief", Queues: queues, Max: 1 + i, Worker: "w",
				Wait: 100 * time.Millisecond})
		c.closeClaim(competing, jobs)
		if err != nil {
			c.w.Error(err)
			return
		}
		requests := make([]engine.FinishRequest, len(jobs))
		for k, j := range jobs {
			if _, twice := c.claimed.LoadOrStore(j.ID.Key, true); twice {
				c.w.Errorf("%s was claimed twice", j.ID.Key)
			}
			requests[k] = engine.FinishRequest{Run: engine.Run{ID: j.ID, Run: j.Run},
				Outcome: engine.Outcome{On: job.Succeeded}}
		}
		for _, e := range c.engines[(i+1)%len(c.engines)].FinishAll(c.w.ctx, requests) {
			if e.Err != nil {
				c.w.Error(e.Err)
			}
			c.finished.Add(1)
		}
	}
}
