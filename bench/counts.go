package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// The subcommand counts says what a job costs each database: not in time, but in what is done for
// it. It puts jobs through the engine in this process, one caller and one verb at a time, with no
// maintenance beside it, and divides what each verb did by its jobs:
//
//	kind of job ─┐
//	batch size  ─┼─▶ countJobs: rounds of the verbs ─▶ verbCost ─▶ table
//	database    ─┘                 │
//	                               └─ meter: statements (the store's observer), allocations,
//	                                         and what the database's probe finds

// countsUsage is the text of counts --help.
const countsUsage = `usage: go run . counts [flags]

Prints for SQLite and PostgreSQL what enqueue, claim, end, publish and prune of a job cost, by kind
of job and size of the batch: statements, rows, index entries, bytes of the log, allocations.
`

// countedRounds is how many rounds are measured unless -rounds says another number.
const countedRounds = 3

// lateAfter is more than the two seconds after which a job becomes ready late.
const lateAfter = 3 * time.Second

// countedBatches are the sizes of batches.
var countedBatches = []int{1, 100, 1000}

// transactionsOf returns how many batches of a size make a round: enough for a mean, and few enough
// that SQLite's log does not begin again in each.
func (k jobKind) transactionsOf(size int) int {
	if k.hasWebhook { // each job has three deliveries
		return min(max(200/size, 1), 40)
	}
	return min(max(1000/size, 2), 40)
}

// jobKind is a kind of job whose cost is counted.
type jobKind struct {
	name       string
	jobType    func(*engine.Engine) (engine.JobType, error)
	kept       bool // until it is pruned
	waits      bool // each job waits for one that was enqueued in the round before
	hasWebhook bool // a webhook wants its events
}

var jobKinds = []jobKind{
	{name: "removed", jobType: ownJobType(engine.JobType{Machine: machineDeleting})},
	{name: "kept, events", kept: true, jobType: ownJobType(engine.JobType{
		Machine: machineKeeping, History: true})},
	{name: "kept, events, outbox", kept: true,
		jobType: ownJobType(engine.JobType{Machine: machineKeeping, History: true,
			Publish: true})},
	{name: "Relay, webhook", jobType: webhookJobType, hasWebhook: true},
	{name: "TaskFlow, one dependency", kept: true, jobType: flowJobType, waits: true},
}

// ownJobType returns a job type of the bench.
func ownJobType(c engine.JobType) func(*engine.Engine) (engine.JobType, error) {
	c.Name = "bench"
	return func(*engine.Engine) (engine.JobType, error) { return c, nil }
}

// figure is one number of a cost.
type figure int

// The figures. HOT updates, locked rows and removed index entries are counted for one database
// only.
const (
	figStatements figure = iota
	figInserted
	figUpdated
	figHot // of the updates those that wrote no index entry
	figLocked
	figDeleted
	figEntries
	figEntriesRemoved
	figLog
	figAllocations
	figHeap
	figures
)

// cost is what a verb did, for all of its jobs or, divided, for one.
type cost [figures]float64

// verbCost is what a verb cost a job, and the statements of its last transaction.
type verbCost struct {
	verb          string
	cost          cost
	inTransaction float64 // statements
	statements    []string
}

// probe looks beneath a store. End adds what was written since Begin to a cost.
type probe interface {
	Begin(ctx context.Context) error
	End(ctx context.Context, c *cost) error
	Close() error
}

// opener opens an empty store with a probe on it. The store calls observe.
type opener func(ctx context.Context, observe sqlstore.Observer) (store.Store, probe, error)

// countJobs takes jobs of a kind through a new store, in batches of a size, and returns what each
// verb cost: the median of a number of rounds, after a first one that is not measured.
func countJobs(ctx context.Context, open opener, kind jobKind, size, rounds int) (
	costs []verbCost, err error) {
	transactions := kind.transactionsOf(size)
	m := &meter{jobs: size * transactions, transactions: transactions}
	s, p, err := open(ctx, m.observe)
	if err != nil {
		return nil, err
	}
	m.probe = p
	defer func() { err = errors.Join(err, p.Close(), s.Close()) }()
	e, err := newEngine(s)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	jobType, err := kind.jobType(e)
	if err != nil {
		return nil, err
	}
	if kind.kept { // all that is done may be pruned
		jobType.Retention = time.Microsecond
	}
	if err := e.Register(jobType); err != nil {
		return nil, err
	}
	l := &countedLoad{engine: e, kind: kind, jobType: jobType.Name, size: size,
		transactions: transactions}
	if kind.hasWebhook {
		if l.webhook, err = newCountedWebhook(ctx, e); err != nil {
			return nil, err
		}
	}
	if kind.waits {
		if err := l.enqueue(ctx, l.nextLayer()); err != nil {
			return nil, err
		}
	}
	all := make([][]verbCost, 1+rounds)
	for i := range all {
		if all[i], err = m.round(ctx, l); err != nil {
			return nil, err
		}
	}
	return medianCosts(all[1:]), nil
}

// medianCosts returns the median of each figure over the rounds that have it.
func medianCosts(rounds [][]verbCost) []verbCost {
	costs := slices.Clone(rounds[len(rounds)-1])
	for v := range costs {
		over := func(value func(*verbCost) float64) float64 {
			var values []float64
			for _, r := range rounds {
				if x := value(&r[v]); !math.IsNaN(x) {
					values = append(values, x)
				}
			}
			return median(values)
		}
		costs[v].inTransaction = over(func(c *verbCost) float64 { return c.inTransaction })
		for f := range figures {
			costs[v].cost[f] = over(func(c *verbCost) float64 { return c.cost[f] })
		}
	}
	return costs
}

// meter measures one verb after another.
type meter struct {
	jobs, transactions int
	probe              probe

	mu    sync.Mutex
	names []string // of the statements since the verb began
}

// observe is the store's observer. Announcements to other nodes are left out: they go out beside
// the transactions, several in one.
func (m *meter) observe(statement string, _ time.Duration, _ error) {
	if statement == "NOTIFY" {
		return
	}
	m.mu.Lock()
	m.names = append(m.names, statement)
	m.mu.Unlock()
}

// round measures each verb once. What their requests are made of is prepared outside.
func (m *meter) round(ctx context.Context, l *countedLoad) ([]verbCost, error) {
	batches := l.nextLayer()
	l.enqueuedAt = time.Now()
	enqueue, err := m.measure(ctx, "enqueue", func() error { return l.enqueue(ctx, batches) })
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	var claimed [][]*job.Job
	claim, err := m.measure(ctx, "claim", func() (err error) {
		claimed, err = l.claim(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	finishes := l.finishesOf(claimed)
	if err := l.awaitLate(ctx); err != nil {
		return nil, err
	}
	end, err := m.measure(ctx, "end", func() error { return l.end(ctx, finishes) })
	if err != nil {
		return nil, fmt.Errorf("end: %w", err)
	}
	costs := []verbCost{enqueue, claim, end}
	if l.webhook != nil {
		publish, err := m.publish(ctx, l)
		if err != nil {
			return nil, fmt.Errorf("publish: %w", err)
		}
		costs = append(costs, publish)
	}
	if l.kind.kept {
		prune, err := m.prune(ctx, l)
		if err != nil {
			return nil, fmt.Errorf("prune: %w", err)
		}
		costs = append(costs, prune)
	}
	return costs, nil
}

// prune measures what deletes the jobs that have ended, in batches of the engine's own size. Its
// transactions are of two kinds: the first deletes jobs, the second what else has expired, which
// is nothing here. The cost is that of all, the statements are those of the first.
func (m *meter) prune(ctx context.Context, l *countedLoad) (verbCost, error) {
	c, err := m.measure(ctx, "prune", func() error { return l.prune(ctx) })
	if at := slices.Index(m.names, "COMMIT"); at >= 0 {
		c.statements = m.names[:at+1]
	}
	c.inTransaction = float64(len(c.statements))
	return c, err
}

// measure runs a verb for all jobs of a round and answers what it cost each of them.
func (m *meter) measure(ctx context.Context, name string, verb func() error) (verbCost, error) {
	c := verbCost{verb: name}
	if err := m.probe.Begin(ctx); err != nil {
		return c, err
	}
	m.mu.Lock()
	m.names = make([]string, 0, 100*m.transactions)
	m.mu.Unlock()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := verb(); err != nil {
		return c, err
	}
	runtime.ReadMemStats(&after)
	m.mu.Lock()
	defer m.mu.Unlock()
	c.statements = lastTransaction(m.names)
	c.inTransaction = float64(len(m.names)) / float64(m.transactions)
	c.cost[figStatements] = float64(len(m.names))
	c.cost[figAllocations] = float64(after.Mallocs - before.Mallocs)
	c.cost[figHeap] = float64(after.TotalAlloc - before.TotalAlloc)
	if err := m.probe.End(ctx, &c.cost); err != nil {
		return c, err
	}
	for f := range c.cost {
		c.cost[f] /= float64(m.jobs)
	}
	return c, nil
}

// countedLoad makes the calls of a round. The jobs of a layer are enqueued in one round. Where jobs
// wait for others, those of a layer wait for those of the layer before, which are claimed and ended
// in the same round.
type countedLoad struct {
	engine             *engine.Engine
	kind               jobKind
	jobType            string
	size, transactions int
	layers             int
	enqueuedAt         time.Time       // the jobs of the last layer, or a moment before
	webhook            *countedWebhook // nil without
}

// nextLayer returns the batches of the next layer.
func (l *countedLoad) nextLayer() [][]engine.Submission {
	n := l.size * l.transactions
	first := l.layers * n
	l.layers++
	id := func(i int) job.ID {
		return job.ID{JobType: l.jobType, Scope: l.scope(), Key: strconv.Itoa(i)}
	}
	var all [][]engine.Submission
	for _, cut := range batches(n, l.size) {
		var batch []engine.Submission
		for i := first + cut[0]; i < first+cut[1]; i++ {
			s := engine.Submission{Job: job.Job{ID: id(i), Queue: "default", Lease: time.Hour,
				Payload: appendPayload(nil, i)}}
			if l.jobType == taskflow.Name {
				s.Job.Retry, s.Job.Priority, s.Job.MaxAttempts = flowRetry, 5, 3
				s.Job.Definition = []byte(`{"name":"job","dependencies":[]}`)
			}
			if l.kind.waits && first > 0 {
				s.DependsOn = []job.ID{id(i - n)}
			}
			batch = append(batch, s)
		}
		all = append(all, batch)
	}
	return all
}

// scope is the scope of the jobs: TaskFlow's have none.
func (l *countedLoad) scope() string {
	if l.jobType == taskflow.Name {
		return ""
	}
	return "default"
}

func (l *countedLoad) enqueue(ctx context.Context, batches [][]engine.Submission) error {
	for _, b := range batches {
		if _, err := l.engine.Submit(ctx, engine.Unique, b); err != nil {
			return err
		}
	}
	return nil
}

func (l *countedLoad) claim(ctx context.Context) ([][]*job.Job, error) {
	claimed := make([][]*job.Job, l.transactions)
	for i := range claimed {
		jobs, err := l.engine.Claim(ctx, engine.ClaimRequest{JobType: l.jobType,
			Queues: []string{"default"}, Max: l.size, Worker: "bench"})
		if err != nil {
			return nil, err
		}
		if len(jobs) != l.size {
			return nil, fmt.Errorf("%d jobs of %d", len(jobs), l.size)
		}
		claimed[i] = jobs
	}
	return claimed, nil
}

// awaitLate waits until jobs that become ready now have waited for so long that PostgreSQL has them
// in its index of late ones (decision 0046), as those of a graph of some size are. Without it the
// speed of the machine would decide.
func (l *countedLoad) awaitLate(ctx context.Context) error {
	if !l.kind.waits {
		return nil
	}
	clock.Sleep(ctx, time.Until(l.enqueuedAt.Add(lateAfter)))
	return ctx.Err()
}

func (l *countedLoad) finishesOf(claimed [][]*job.Job) [][]engine.FinishRequest {
	all := make([][]engine.FinishRequest, len(claimed))
	for i, jobs := range claimed {
		for _, j := range jobs {
			r := engine.FinishRequest{Run: engine.Run{Run: j.Run},
				Outcome: engine.Outcome{On: job.Succeeded}}
			if l.jobType == taskflow.Name {
				r.Outcome.Result = []byte("{}")
			}
			all[i] = append(all[i], r)
		}
	}
	return all
}

func (l *countedLoad) end(ctx context.Context, finishes [][]engine.FinishRequest) error {
	for _, requests := range finishes {
		for _, ended := range l.engine.FinishAll(ctx, requests) {
			if ended.Err != nil {
				return ended.Err
			}
		}
	}
	return nil
}

// prune deletes the jobs of a round and nothing else.
func (l *countedLoad) prune(ctx context.Context) error {
	sum := 0
	for {
		n, err := l.engine.Prune(ctx)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		sum += n
	}
	if sum != l.size*l.transactions {
		return fmt.Errorf("%d jobs of %d", sum, l.size*l.transactions)
	}
	return nil
}

// runCounts is the subcommand. It answers the exit code as run does; a database that is not there
// is skipped.
func runCounts(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f := newFlags("counts", countsUsage, stderr)
	dir := f.String("dir", "",
		"folder for the files of SQLite (default the system's temporary folder)")
	batch := f.Int("batch", 0, "only batches of this size (default 1, 100 and 1000)")
	rounds := f.Int("rounds", countedRounds, "measured rounds")
	if err := f.Parse(args); err != nil {
		return usageCode(err)
	}
	if f.NArg() > 0 || *batch < 0 || *batch > 10_000 || *rounds < 1 || *rounds > 1000 {
		f.Usage()
		return 2
	}
	sizes := countedBatches
	if *batch > 0 {
		sizes = []int{*batch}
	}
	env, err := newEnv(*dir, 1, Tuning{}, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		if err := env.Close(ctx); err != nil {
			fmt.Fprintln(stderr, "bench: clean up:", err)
		}
	}()
	for _, db := range countedDatabases {
		var skip skipError
		switch err := db.writeTo(ctx, env, sizes, *rounds, stdout); {
		case errors.As(err, &skip):
			fmt.Fprintf(stdout, "%s: skipped: %v\n\n", db.name, err)
		case err != nil:
			fmt.Fprintf(stderr, "bench: %s: %v\n", db.name, err)
			return 1
		}
	}
	return 0
}
