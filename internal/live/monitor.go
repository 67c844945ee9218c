package live

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/store"
)

const (
	// interval is how often the store is read while somebody watches.
	interval = time.Second
	// maxOperations bounds the bulk operations that are watched: the newest.
	maxOperations = 100
	// maxEmptied bounds the queues without jobs that are kept so that watches learn of them.
	maxEmptied = 1000
	// jobBatch bounds the jobs of one read.
	jobBatch = 500
)

// Config configures a Monitor. Engine, Bulk and Items are required.
type Config struct {
	Engine *engine.Engine
	Bulk   *bulk.Bulk
	// Items returns the items of jobs, in their order. They have their definition and failure,
	// which the monitor does not keep. Two items are the same if they are deeply equal.
	Items func(context.Context, []*job.Job) ([]any, error)
	// Sessions returns which of some sessions are in force. Nil: no watch is of a session.
	Sessions func(ctx context.Context, keys []string) (map[string]bool, error)
	Log      *slog.Logger // nil logs nothing
	Timer    clock.Timer  // nil is real time
}

// Monitor reads the store for all who watch on a node. Its methods are safe for concurrent use.
type Monitor struct {
	Config
	wanted  chan struct{} // somebody watches
	reading sync.Mutex    // held by Read

	mu      sync.Mutex
	started uint64        // readings
	ended   uint64        // the last reading that has succeeded
	changed uint64        // the last reading that has found a change
	floor   uint64        // queues that were emptied up to this reading are forgotten
	read    chan struct{} // closed by the end of a reading
	closed  bool
	watches int
	numbers map[int64]int // how many watch a job
	// sessions has how many watches are of a session, and inForce those of them that were in force
	// at the last reading.
	sessions map[string]int
	inForce  map[string]bool

	counts     table[queueKey, job.QueueCount]
	jobs       table[int64, Job]
	operations table[string, *bulk.Operation]
}

type queueKey struct{ contract, queue string }

// Job is a job that is watched. Item is nil when there is none of the number, or none any more.
type Job struct {
	Number int64
	Item   any // of Config.Items
}

// New makes the monitor of a node.
func New(c Config) (*Monitor, error) {
	if c.Engine == nil || c.Bulk == nil || c.Items == nil {
		return nil, errors.New("live: Engine, Bulk and Items are required")
	}
	return &Monitor{Config: c, wanted: make(chan struct{}, 1), read: make(chan struct{}),
		numbers: map[int64]int{}, sessions: map[string]int{},
		counts: newTable[queueKey](func(a, b job.QueueCount) bool { return a == b }),
		jobs: newTable[int64](func(a, b Job) bool {
			return reflect.DeepEqual(a, b)
		}),
		operations: newTable[string](func(a, b *bulk.Operation) bool {
			return reflect.DeepEqual(a, b)
		})}, nil
}

// Run reads the store once a second while somebody watches, until ctx ends. It then ends all
// watches.
func (m *Monitor) Run(ctx context.Context) {
	defer m.close()
	loop := outage.Loop{Log: m.Log, Name: "live events"}
	for m.awaitWatch(ctx) {
		loop.Report(ctx, m.Read(ctx))
		if !m.Timer.Wait(ctx, interval) {
			return
		}
	}
}

// awaitWatch waits until somebody watches, and reports whether ctx has not ended.
func (m *Monitor) awaitWatch(ctx context.Context) bool {
	for m.Watches() == 0 {
		select {
		case <-m.wanted:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// Watches returns how many watch.
func (m *Monitor) Watches() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.watches
}

// close ends all watches.
func (m *Monitor) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.wake()
}

// wake lets all watches look again. The caller holds mu.
func (m *Monitor) wake() {
	close(m.read)
	m.read = make(chan struct{})
}

// Read reads the store once for all who watch.
func (m *Monitor) Read(ctx context.Context) error {
	m.reading.Lock()
	defer m.reading.Unlock()
	m.mu.Lock()
	m.started++
	numbers := slices.Sorted(maps.Keys(m.numbers))
	sessions := slices.Sorted(maps.Keys(m.sessions))
	m.mu.Unlock()
	counts, err := m.Engine.Queues(ctx, "")
	if err != nil {
		return err
	}
	operations, err := m.Bulk.List(ctx, "", maxOperations)
	if err != nil {
		return err
	}
	jobs, err := m.readJobs(ctx, numbers)
	if err != nil {
		return err
	}
	var inForce map[string]bool
	if len(sessions) > 0 {
		if inForce, err = m.Sessions(ctx, sessions); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	changes := []bool{m.setCounts(counts), m.setOperations(operations), m.setJobs(numbers, jobs)}
	if slices.Contains(changes, true) {
		m.changed = m.started
	}
	m.ended, m.inForce = m.started, inForce
	m.wake()
	return nil
}

// readJobs reads the jobs with the numbers, of which there may be none.
func (m *Monitor) readJobs(ctx context.Context, numbers []int64) (jobs []Job, err error) {
	for batch := range slices.Chunk(numbers, jobBatch) {
		found, err := m.Engine.GetBySeqs(ctx, batch, store.FailureOnly)
		if err != nil {
			return nil, err
		}
		items, err := m.Items(ctx, found)
		if err != nil {
			return nil, err
		}
		for i, j := range found {
			jobs = append(jobs, Job{j.Seq, items[i]})
		}
	}
	return jobs, nil
}

// setCounts sets the counts of queues. One that has none any more has zeros.
func (m *Monitor) setCounts(counts []job.QueueCount) (changed bool) {
	present := map[queueKey]bool{}
	for _, c := range counts {
		key := queueKey{c.JobType, c.Queue}
		present[key] = true
		changed = m.counts.set(key, c, m.started) || changed
	}
	var emptied []queueKey
	for key := range m.counts.rows {
		if present[key] {
			continue
		}
		emptied = append(emptied, key)
		none := job.QueueCount{JobType: key.contract, Queue: key.queue}
		changed = m.counts.set(key, none, m.started) || changed
	}
	if len(emptied) > maxEmptied {
		for _, key := range emptied {
			delete(m.counts.rows, key)
		}
		m.floor, changed = m.started, true
	}
	return changed
}

// setOperations sets the newest bulk operations. Those that are not among them are forgotten.
func (m *Monitor) setOperations(operations []*bulk.Operation) (changed bool) {
	present := map[string]bool{}
	for _, o := range operations {
		present[o.ID] = true
		changed = m.operations.set(o.ID, o, m.started) || changed
	}
	maps.DeleteFunc(m.operations.rows, func(id string, _ row[*bulk.Operation]) bool {
		return !present[id]
	})
	return changed
}

// setJobs sets the jobs that were read. Those that nobody watches any more are forgotten.
func (m *Monitor) setJobs(numbers []int64, jobs []Job) (changed bool) {
	present := map[int64]Job{}
	for _, j := range jobs {
		present[j.Number] = j
	}
	for _, number := range numbers {
		j := present[number]
		j.Number = number
		changed = m.jobs.set(number, j, m.started) || changed
	}
	maps.DeleteFunc(m.jobs.rows, func(number int64, _ row[Job]) bool {
		return m.numbers[number] == 0
	})
	return changed
}

// table keeps values by key, each with the reading in which it has changed last.
type table[K comparable, V any] struct {
	rows map[K]row[V]
	same func(a, b V) bool
}

type row[V any] struct {
	value   V
	reading uint64
}

func newTable[K comparable, V any](same func(a, b V) bool) table[K, V] {
	return table[K, V]{map[K]row[V]{}, same}
}

// set sets the value of a key in a reading and reports whether it is another than before.
func (t *table[K, V]) set(key K, value V, reading uint64) bool {
	if old, known := t.rows[key]; known && t.same(old.value, value) {
		return false
	}
	t.rows[key] = row[V]{value, reading}
	return true
}

// since returns the values that have changed after a reading, in no order.
func (t *table[K, V]) since(reading uint64) (changed []V) {
	for _, r := range t.rows {
		if r.reading > reading {
			changed = append(changed, r.value)
		}
	}
	return changed
}
