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
// same time, of which one has taken jobs of it, are counted as a race of two; those of one engine
// may be served in one transaction.
func TestCrowdTakesEachJobOnce(t *testing.T) {
	for database, nodes := range map[string]int{"file": 1, "postgres": 2} {
		t.Run(database, func(t *testing.T) {
			w := newWorld(t, database, testJobTypes())
			engines := []*engine.Engine{w.engine}
			if nodes > 1 { // a server of its own has a store of its own
				engines = append(engines, w.server())
			}
			c := &crowd{w: w, engines: engines, open: map[place]int{},
				total: envNumber(t, "MILLRACE_TEST_CROWD", 10_000)}
			if slow {
				c.total = min(c.total, 2_000)
			}
			c.run()
			t.Logf("%d jobs were taken by %d claims in %d races of two, %d of them of two engines",
				c.total, c.won, c.races, c.between)
			if c.races == 0 || (c.between == 0) != (nodes == 1) {
				t.Error("no claim had another one beside it, or none of the other engine")
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

	mu      sync.Mutex
	open    map[place]int // claims
	won     int           // claims that have taken jobs
	races   int
	between int // of the races, those with a claim of another engine
}

// place is a queue at an engine.
type place struct {
	engine int
	queue  string
}

// openClaim counts a claim of queues among those that are open.
func (c *crowd) openClaim(at int, queues []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, queue := range queues {
		c.open[place{at, queue}]++
	}
}

// closeClaim ends a claim, which has taken jobs. It has won against each claim that is still open
// for one of their queues: the most of one queue are counted, as one may be open for both.
func (c *crowd) closeClaim(at int, queues []string, taken []*job.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, queue := range queues {
		c.open[place{at, queue}]--
	}
	if len(taken) == 0 {
		return
	}
	others, elsewhere := 0, 0
	for _, j := range taken {
		far := 0
		for i := range c.engines {
			if i != at {
				far += c.open[place{i, j.Queue}]
			}
		}
		others = max(others, far+c.open[place{at, j.Queue}])
		elsewhere = max(elsewhere, far)
	}
	c.won++
	c.races += others
	c.between += elsewhere
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
	at := (i / 4) % len(c.engines)
	competing := queues
	if queues == nil {
		competing = []string{"q0", "q1"}
	}
	for c.finished.Load() < int64(c.total) && !c.w.Failed() {
		c.openClaim(at, competing)
		jobs, err := c.engines[at].Claim(c.w.ctx,
			engine.ClaimRequest{JobType: "brief", Queues: queues, Max: 1 + i, Worker: "w",
				Wait: 100 * time.Millisecond})
		c.closeClaim(at, competing, jobs)
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
		for _, e := range c.engines[(at+1)%len(c.engines)].FinishAll(c.w.ctx, requests) {
			if e.Err != nil {
				c.w.Error(e.Err)
			}
			c.finished.Add(1)
		}
	}
}
