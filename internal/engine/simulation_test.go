package engine_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// A simulation runs engines, their store, clients, workers and sweeps in virtual time, one step
// after the other. The seed chooses each step: who acts, on what, what the store does to it, and
// how the clocks go. After each step what is stored has to be what the model has.
//
//	step ─▶ a node and a verb, or a clock, or a crash
//	          │ the model carries it out
//	          ▼
//	        engine ─▶ simulatedStore: refused, rolled back, answer lost, delayed ─▶ SQLite
//	          │
//	          ▼
//	        compare the answer, and the whole state, with the model
//
// A verb whose commit has an unknown outcome has happened or not: the caller only sees an error,
// and what is stored shows which of both.
//
// MILLRACE_TEST_SIM_SEEDS is how many seeds are run, from MILLRACE_TEST_SIM_SEED on, each for
// MILLRACE_TEST_SIM_HOURS of virtual time, on MILLRACE_TEST_SIM_STORE (memory, file or postgres).
func TestSimulation(t *testing.T) {
	t.Parallel()
	seeds, first, hours := envNumber(t, "MILLRACE_TEST_SIM_SEEDS", 2),
		envNumber(t, "MILLRACE_TEST_SIM_SEED", 1), envNumber(t, "MILLRACE_TEST_SIM_HOURS", 15)
	if slow {
		hours = min(hours, 5)
	}
	for seed := first; seed < first+seeds; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			database := os.Getenv("MILLRACE_TEST_SIM_STORE")
			if database == "" {
				database = []string{"memory", "file"}[seed%2]
			}
			s := newSimulation(t, uint64(seed), database)
			s.run(time.Duration(hours) * time.Hour)
			t.Log(s.summary())
		})
	}
}

// The same seed makes the same steps, with the same answers and states.
func TestSimulationRepeats(t *testing.T) {
	t.Parallel()
	var traces []string
	for range 2 {
		s := newSimulation(t, 7, "memory")
		s.run(4 * time.Hour)
		traces = append(traces, s.hash())
	}
	if traces[0] != traces[1] {
		t.Errorf("the traces of two runs are %s and %s", traces[0], traces[1])
	}
	other := newSimulation(t, 8, "memory")
	other.run(4 * time.Hour)
	if other.hash() == traces[0] {
		t.Error("another seed has the same trace")
	}
}

func envNumber(tb testing.TB, name string, otherwise int) int {
	tb.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatal(name, err)
	}
	return n
}

// simulation is the one scheduler. Its lockstep has one side, whose engine is that of the node
// which acts.
type simulation struct {
	*lockstep
	seed     uint64
	hours    time.Duration // to run for
	database string
	clock    *testkit.Clock
	opens    func() store.Store // opens the database once more; nil: it is gone when it is closed
	store    *simulatedStore
	side     *side
	nodes    []*simulatedNode
	node     *simulatedNode // that acts
	born     int            // nodes, so far
	before   model          // the state before the verb
	trace    hash.Hash
	number   int // of the step
	faults   map[string]int
	once     []onceRequest
	known    map[int64]knownHistory
	sent     map[int64]string // messages that were delivered, by their ID
}

// simulatedNode is a process with an engine. Its monotonic clock is behind the time that has passed
// by lag, as of a machine that was suspended.
type simulatedNode struct {
	name   string
	engine *engine.Engine
	model  *modelNode
	lag    time.Duration
}

func newSimulation(t *testing.T, seed uint64, database string) *simulation {
	jobTypes := testJobTypesWith("part", func(c *engine.JobType) { c.MaxRunning = 4 })
	for i := range jobTypes {
		if c := &jobTypes[i]; c.Name != "part" && c.Retention == 0 {
			c.Retention, c.DeadLetterRetention = 24*time.Hour, 36*time.Hour
		}
	}
	l := &lockstep{T: t, random: rand.New(rand.NewPCG(seed, 20)), jobTypes: jobTypes,
		model: newModel(jobTypes, testkit.StartTime)}
	s := &simulation{lockstep: l, seed: seed, database: database, clock: testkit.NewClock(),
		trace: sha256.New(), faults: map[string]int{}, sent: map[int64]string{},
		known: map[int64]knownHistory{}}
	open := databases[database](t, s.clock.Now)
	s.opens = func() store.Store { return open(t) }
	s.store = &simulatedStore{Store: s.opens(), wait: func(d time.Duration) { s.clock.Advance(d) }}
	w := &world{TB: t, clock: s.clock, ctx: context.Background(), store: s.store.Store}
	s.side = &side{name: "engine", world: w, runs: map[int]engine.Run{}}
	l.sides, l.compareAnswer = []*side{s.side}, s.compareAnswer
	t.Cleanup(s.explain)
	for range 2 {
		s.nodes = append(s.nodes, s.newNode())
	}
	return s
}

// newNode starts a process. Whatever it makes at random follows from the seed.
func (s *simulation) newNode() *simulatedNode {
	s.born++
	n := &simulatedNode{name: fmt.Sprint("node", s.born), model: &modelNode{}}
	random := rand.New(rand.NewPCG(s.seed, uint64(1000+s.born)))
	e, err := engine.New(engine.Config{Store: s.store, Node: n.name,
		Random: func() (b [16]byte) {
			binary.LittleEndian.PutUint64(b[:], random.Uint64())
			binary.LittleEndian.PutUint64(b[8:], random.Uint64())
			return b
		},
		Monotonic: func() time.Duration { return s.monotonic(n) }})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(e.Close)
	testkit.Register(s.T, e, s.jobTypes...)
	n.engine = e
	return n
}

func (s *simulation) monotonic(n *simulatedNode) time.Duration {
	return s.clock.Monotonic() - n.lag
}

// run makes steps until so much virtual time has passed.
func (s *simulation) run(hours time.Duration) {
	s.hours = hours
	for s.clock.Monotonic() < hours {
		s.step()
	}
	s.finishAll()
}

func (s *simulation) hash() string { return fmt.Sprintf("%x", s.trace.Sum(nil)[:8]) }

func (s *simulation) summary() string {
	return fmt.Sprintf("seed %d on %s: %.0f virtual hours, %d steps, %d jobs, %d runs, %v, trace %s",
		s.seed, s.database, s.hours.Hours(), s.number, s.model.seq, s.model.handle, s.faults,
		s.hash())
}

// step lets one actor act, and compares.
func (s *simulation) step() {
	s.number++
	s.heal()
	s.node = s.nodes[s.random.IntN(len(s.nodes))]
	s.side.engine, s.model.node = s.node.engine, s.node.model
	ops := []struct {
		weight int
		verb   bool // of one update
		op     func()
	}{{14, true, s.submit}, {10, true, s.submitOnce}, {20, true, s.claim}, {4, true, s.claimJob},
		{26, true, s.finish}, {6, true, s.heartbeat}, {4, true, s.requeue}, {3, true, s.cancel},
		{4, true, s.retry}, {4, true, s.remove}, {3, true, s.replace}, {5, false, s.expire},
		{5, true, s.promote}, {2, true, s.setQueue}, {4, false, s.publish}, {2, false, s.prune},
		{16, false, s.pass}, {2, false, s.jump}, {1, false, s.suspend}, {1, false, s.crash},
		{1, false, s.stop}}
	total := 0
	for _, o := range ops {
		total += o.weight
	}
	draw := s.random.IntN(total)
	for _, o := range ops {
		if draw -= o.weight; draw >= 0 {
			continue
		}
		s.store.plan(fault{})
		if o.verb {
			s.begin()
		}
		o.op()
		break
	}
	if s.store.hit && s.store.fault.crashes {
		s.restart(s.node)
	}
	s.compareState()
}

// begin draws the fault of a verb of one update, and has the node read the clock as that will.
func (s *simulation) begin() {
	f := fault{at: 1}
	if draw := s.random.IntN(100); draw < 12 {
		f.kind = []faultKind{refused, rolledBack, answerLost, delayed}[draw%4]
		f.delay = pick(s.lockstep, 200*time.Millisecond, 3*time.Second, 45*time.Second)
		f.crashes = f.kind != refused && f.kind != delayed && s.random.IntN(4) == 0
	}
	s.store.plan(f)
	if s.store.isDown {
		s.store.fault = fault{kind: refused, at: 1}
	}
	s.before = s.model.clone()
	if s.store.fault.kind == refused {
		return
	}
	since := s.monotonic(s.node)
	if f.kind == delayed {
		s.model.now = s.model.now.Add(f.delay)
		s.before.now = s.model.now
		s.node.model.sees(s.model.now, since, since+f.delay)
		return
	}
	s.node.model.sees(s.model.now, since, since)
}

// compareAnswer compares the answer to a verb, or where a fault has hit it takes the state of the
// model that the fault leads to.
func (s *simulation) compareAnswer(op, want string, got func(*side) string) {
	answer := got(s.side)
	kind := s.store.fault.kind
	switch {
	case s.store.hit:
		s.faults[string(kind)]++
		if kind != answerLost {
			*s.model = s.before
		}
		if kind == refused {
			s.node.model.refuses(s.monotonic(s.node))
		}
		s.note("%s: %s → %s, %s", s.node.name, op, kind, answer)
		if !strings.Contains(answer, job.Unavailable.String()) {
			s.fail("the engine answers %q although the store has failed", answer)
		}
	default:
		s.note("%s: %s %s→ %s", s.node.name, op, kind, answer)
		if answer != want {
			s.fail("the engine answers %q, the model %q", answer, want)
		}
	}
}

func (s *simulation) note(format string, args ...any) {
	line := fmt.Sprintf("%6d %s %s ", s.number, s.clock.Monotonic(),
		s.model.now.Format(time.StampMilli)) + fmt.Sprintf(format, args...)
	s.log = append(s.log, line)
	fmt.Fprintln(s.trace, line)
}

func (s *simulation) fail(format string, args ...any) {
	s.Helper()
	s.Fatalf(format, args...)
}

// explain logs, where the simulation has failed, what is needed to repeat it.
func (s *simulation) explain() {
	if !s.Failed() {
		return
	}
	s.Logf("seed %d, step %d, after %s of virtual time; repeat with\n"+
		"MILLRACE_TEST_SIM_STORE=%s MILLRACE_TEST_SIM_SEED=%d MILLRACE_TEST_SIM_SEEDS=1 "+
		"MILLRACE_TEST_SIM_HOURS=%.0f go test ./internal/engine -run TestSimulation$ -count=1 -v\n"+
		"The last steps:\n%s", s.seed, s.number, s.clock.Monotonic(), s.database, s.seed,
		s.hours.Hours(), strings.Join(s.log[max(0, len(s.log)-30):], "\n"))
}

// compareState compares all that is stored with the model.
func (s *simulation) compareState() {
	s.Helper()
	want := strings.Split(s.model.snapshot(s.side.world), "\n")
	got := sorted(strings.Split(s.side.snapshotBy(s.eventsOf), "\n"))
	fmt.Fprintln(s.trace, got)
	if !slices.Equal(got, want) {
		s.fail("only the engine has\n%s\nonly the model has\n%s", missing(got, want),
			missing(want, got))
	}
	if s.number%25 == 0 {
		s.side.checkInvariants()
	}
}

// knownHistory is the history of a job as it was read when the job was last changed.
type knownHistory struct {
	updated time.Time
	state   job.State
	events  []job.Event
}

// eventsOf reads the history of a job that has changed since it was last read, and every 25 steps
// of each.
func (s *simulation) eventsOf(r store.Reader, j *job.Job) ([]job.Event, error) {
	k, known := s.known[j.Seq]
	if known && k.updated.Equal(j.UpdatedAt) && k.state == j.State && s.number%25 != 0 {
		return k.events, nil
	}
	events, err := r.Events(j.Seq, 0)
	s.known[j.Seq] = knownHistory{j.UpdatedAt, j.State, events}
	return events, err
}

// missing returns the lines that others lack.
func missing(lines, others []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return slices.Contains(others, line)
	}), "\n")
}
