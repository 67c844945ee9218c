package engine_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// The same seeded operations go to the model and to engines on all databases, one of which runs
// every update twice. After each operation the answers are compared, after every 50 and at the end
// everything that is stored. MILLRACE_TEST_SEED runs one seed, MILLRACE_TEST_STEPS makes it longer.
func TestSameOperationsSameHistories(t *testing.T) {
	t.Parallel()
	seeds, steps := []uint64{1, 2, 3, 4}, 600
	if slow {
		seeds, steps = seeds[:2], 120
	}
	if text := os.Getenv("MILLRACE_TEST_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	}
	if text := os.Getenv("MILLRACE_TEST_STEPS"); text != "" {
		steps, _ = strconv.Atoi(text)
	}
	for _, seed := range seeds {
		for _, databases := range [][]string{{"memory", "twice", "file"}, {"memory", "postgres"}} {
			t.Run(fmt.Sprint("seed=", seed, ",", databases[1]), func(t *testing.T) {
				t.Parallel()
				newLockstep(t, seed, databases...).run(steps)
			})
		}
	}
}

type lockstep struct {
	*testing.T
	random   *rand.Rand
	jobTypes []engine.JobType
	model    *model
	sides    []*side
	log      []string
	keys     int // of jobs with relatives, each of which is new
	// compareAnswer, if not nil, compares the answers of an operation in place of same.
	compareAnswer func(op, want string, got func(*side) string)
}

// side is one database with the runs that its engine gave for the handles of the model.
type side struct {
	name string
	*world
	runs   map[int]engine.Run
	bodies []string
}

func newLockstep(t *testing.T, seed uint64, databases ...string) *lockstep {
	jobTypes := testJobTypesWith("part", func(c *engine.JobType) { c.MaxRunning = 4 })
	l := &lockstep{T: t, random: rand.New(rand.NewPCG(seed, 1)), jobTypes: jobTypes,
		model: newModel(jobTypes, testkit.StartTime)}
	for _, database := range databases {
		real := strings.Replace(database, "twice", "memory", 1)
		w := newWorld(t, real, jobTypes)
		if database == "twice" {
			w.engine = testkit.NewEngine(t, rerunStore{w.store}, w.clock, jobTypes...)
		}
		l.sides = append(l.sides, &side{name: database, world: w, runs: map[int]engine.Run{}})
	}
	return l
}

func (l *lockstep) run(steps int) {
	for i := range steps {
		l.step()
		if i%50 == 49 {
			l.compare()
		}
	}
	l.compare()
	if l.Failed() {
		return
	}
	kinds := map[string]int{}
	for _, line := range l.log {
		kinds[strings.Fields(line)[0]]++
	}
	l.Log(kinds, len(l.model.jobs), "jobs at the end")
}

// step makes one operation on the model and on every store.
func (l *lockstep) step() {
	ops := []struct {
		weight int
		op     func()
	}{{20, l.submit}, {18, l.claim}, {4, l.claimJob}, {24, l.finish}, {5, l.heartbeat},
		{4, l.requeue}, {3, l.cancel}, {5, l.retry}, {4, l.remove},
		{3, l.replace}, {4, l.sweep}, {12, l.advance}, {2, l.setQueue}, {2, l.publish},
		{1, l.prune}, {1, l.restart}}
	total := 0
	for _, o := range ops {
		total += o.weight
	}
	draw := l.random.IntN(total)
	for _, o := range ops {
		if draw -= o.weight; draw < 0 {
			o.op()
			return
		}
	}
}

// same compares the answers of an operation.
func (l *lockstep) same(op, want string, got func(*side) string) {
	l.Helper()
	want = strings.TrimPrefix(want, "!")
	if l.compareAnswer != nil {
		l.compareAnswer(op, want, got)
		return
	}
	l.log = append(l.log, op+" → "+want)
	for _, s := range l.sides {
		if answer := got(s); answer != want {
			l.Fatalf("%s answers %s, the model %s, to\n%s", s.name, answer, want,
				strings.Join(l.log[max(0, len(l.log)-40):], "\n"))
		}
	}
}

func outcome(err error, good string) string {
	if err != nil {
		return job.KindOf(err).String()
	}
	return good
}

func (l *lockstep) compare() {
	l.Helper()
	for _, s := range l.sides {
		want := l.model.snapshot(s.world)
		if got := strings.Join(sorted(strings.Split(s.snapshot(), "\n")), "\n"); got != want {
			l.Fatalf("%s is\n%s\nthe model is\n%s\nafter\n%s", s.name, got, want,
				strings.Join(l.log, "\n"))
		}
		s.checkInvariants()
	}
}

func pick[T any](l *lockstep, all ...T) T { return all[l.random.IntN(len(all))] }

func (l *lockstep) id() job.ID {
	jobType := pick(l, "phased", "graph", "family", "part", "locked", "brief", "brief")
	if seqs := l.model.seqs(); len(seqs) > 0 && l.random.IntN(3) > 0 {
		return l.model.jobs[pick(l, seqs...)].ID
	}
	return job.ID{JobType: jobType, Key: strconv.Itoa(l.random.IntN(12))}
}

func (l *lockstep) batch(jobType string) (batch []engine.Submission) {
	for range 1 + l.random.IntN(4) {
		s := sub(jobType+"/"+strconv.Itoa(l.random.IntN(12)), in(pick(l, "q", "r")),
			limit(l.random.IntN(4)), priority(l.random.IntN(3)-1))
		if l.random.IntN(4) == 0 {
			s.Job.DueAt = l.model.now.Add(time.Duration(l.random.IntN(40)-10) * time.Second)
		}
		if l.random.IntN(10) == 0 {
			s.Job.Lease = 0
		}
		if l.random.IntN(4) == 0 {
			s.Job.Retry = job.RetryPolicy{Strategy: pick(l, job.Fixed, job.Linear, job.Exponential),
				Base: pick(l, 0, 5*time.Second), Max: time.Minute,
				FailedBefore: l.random.IntN(2)}
		}
		if l.random.IntN(8) == 0 {
			s.Job.Payload = []byte(strings.Repeat(name(s.Job.ID), 1200)) // kept apart
		}
		batch = append(batch, s)
	}
	return batch
}

// relatives makes a batch of new jobs that depend on each other and on others, or a parent with
// children, or children of one that is there.
func (l *lockstep) relatives() (batch []engine.Submission) {
	key := func(jobType string) string { l.keys++; return fmt.Sprintf("%s/n%d", jobType, l.keys) }
	existing := func(jobType string) (there []string) {
		for _, seq := range l.model.seqs() {
			if id := l.model.jobs[seq].ID; id.JobType == jobType {
				there = append(there, name(id))
			}
		}
		return append(there, jobType+"/none")
	}
	if l.random.IntN(2) == 0 {
		known := existing("graph")
		for range 1 + l.random.IntN(4) {
			s := sub(key("graph"), limit(1+l.random.IntN(2)))
			for range l.random.IntN(3) {
				after(pick(l, known...))(&s)
			}
			batch = append(batch, s)
			known = append(known, name(s.Job.ID), name(s.Job.ID))
		}
		l.random.Shuffle(len(batch), func(i, k int) { batch[i], batch[k] = batch[k], batch[i] })
		return batch
	}
	parent := pick(l, existing("family")...)
	if l.random.IntN(2) == 0 {
		parent = key("family")
		batch = subs(sub(parent))
	}
	for range 1 + l.random.IntN(3) {
		batch = append(batch, sub(key("part"), childOf(parent), limit(1+l.random.IntN(2)),
			in(pick(l, "q", "r"))))
	}
	return batch
}

func (l *lockstep) submit() {
	jobType := pick(l, "phased", "graph", "family", "part", "locked", "brief", "brief")
	mode := pick(l, engine.Unique, engine.Ignore, engine.Replace)
	batch := l.batch(jobType)
	if l.random.IntN(3) == 0 {
		mode, batch = engine.Unique, l.relatives()
	} else if jobType == "graph" && mode == engine.Replace {
		mode = engine.Ignore // a machine that lets a job be replaced as it runs is for Change
	}
	want := l.model.atomically(func() string { return l.model.submit(mode, batch) })
	l.same(fmt.Sprint("submit ", mode, " ", describe(batch)), want, func(s *side) string {
		return receipt(s.engine.Submit(s.ctx, mode, batch))
	})
}

func describe(batch []engine.Submission) (text string) {
	for _, s := range batch {
		text += fmt.Sprintf("%s(%s limit=%d prio=%d", name(s.Job.ID), s.Job.Queue,
			s.Job.MaxAttempts, s.Job.Priority)
		for _, d := range s.DependsOn {
			text += " after " + name(d)
		}
		if s.Parent != (job.ID{}) {
			text += " of " + name(s.Parent)
		}
		if !s.Job.DueAt.IsZero() {
			text += " due " + s.Job.DueAt.Sub(testkit.StartTime).String()
		}
		text += ") "
	}
	return text
}

func (l *lockstep) claim() {
	jobType := pick(l, "phased", "graph", "family", "part", "locked", "brief")
	queues := pick(l, nil, []string{"q"}, []string{"r", "q"})
	n := 1 + l.random.IntN(5)
	seqs := l.model.claim(jobType, queues, n)
	want := ""
	for _, seq := range seqs {
		want += name(l.model.jobs[seq].ID) + " "
	}
	l.same(fmt.Sprint("claim ", jobType, queues, n), want, func(s *side) string {
		jobs, err := s.engine.Claim(s.ctx, engine.ClaimRequest{JobType: jobType,
			Queues: queues, Max: n, Worker: "worker"})
		got := outcome(err, "")
		for i, j := range jobs {
			got += name(j.ID) + " "
			if i < len(seqs) {
				s.runs[l.model.jobs[seqs[i]].handle] = engine.Run{ID: j.ID, Run: j.Run}
			}
		}
		return got
	})
}

func (l *lockstep) claimJob() {
	id := l.id()
	want := l.model.atomically(func() string { return l.model.claimJob(id) })
	l.same("claimJob "+name(id), want, func(s *side) string {
		j, err := s.engine.ClaimJob(s.ctx, id, "w")
		if err == nil {
			s.runs[l.model.handle] = engine.Run{ID: j.ID, Run: j.Run}
		}
		return outcome(err, "claimed")
	})
}

// handleOf returns the handle of a run that a worker knows, in most cases a current one; 0 is a run
// that never was.
func (l *lockstep) handleOf() int {
	var current []int
	for _, seq := range l.model.seqs() {
		if h := l.model.jobs[seq].handle; l.isKnown(h) {
			current = append(current, h)
		}
	}
	if len(current) > 0 && l.random.IntN(6) > 0 {
		return pick(l, current...)
	}
	if h := l.random.IntN(l.model.handle + 1); l.isKnown(h) {
		return h
	}
	return 0
}

// isKnown reports whether a worker got the answer to the claim of a run.
func (l *lockstep) isKnown(handle int) bool {
	_, known := l.sides[0].runs[handle]
	return known
}

func (l *lockstep) finish() {
	var handles []int
	var outcomes []engine.Outcome
	want, op := "", "finish"
	for range 1 + l.random.IntN(4) {
		h := l.handleOf()
		o := engine.Outcome{On: pick(l, job.Started, job.Started, job.Succeeded, job.Succeeded,
			job.Failed, job.FailedForGood, job.Released, job.Canceled)}
		if o.On != job.Started && l.random.IntN(3) == 0 {
			o.Result = []byte(fmt.Sprint("result of ", h))
		}
		handles, outcomes = append(handles, h), append(outcomes, o)
		want += l.model.finish(h, o.On, o.Result) + ", "
		op += fmt.Sprintf(" %d %s", h, o.On)
	}
	l.same(op, want, func(s *side) string {
		requests := make([]engine.FinishRequest, len(handles))
		for i, h := range handles {
			requests[i] = engine.FinishRequest{Run: s.runs[h], Outcome: outcomes[i]}
		}
		got := ""
		for _, e := range s.engine.FinishAll(s.ctx, requests) {
			if e.Err != nil {
				got += job.KindOf(e.Err).String() + ", "
			} else {
				got += string(e.Job.State) + ", "
			}
		}
		return got
	})
}

func (l *lockstep) heartbeat() {
	h := l.handleOf()
	progress := pick(l, nil, []byte("half"), []byte(strings.Repeat("much", 3000)))
	seq := l.model.currentJob(h)
	id := l.model.jobs[seq].ID
	byID := seq != 0 && l.random.IntN(2) == 0
	lease := l.model.jobs[seq].Lease
	l.same(fmt.Sprint("heartbeat ", h), l.model.heartbeat(seq, progress), func(s *side) string {
		if byID {
			return outcome(s.engine.HeartbeatJob(s.ctx, id, progress), "until "+lease.String())
		}
		until, err := s.engine.Heartbeat(s.ctx, s.runs[h], progress)
		return outcome(err, "until "+until.Sub(s.clock.Now()).String())
	})
}

func (l *lockstep) requeue() {
	h := l.handleOf()
	seq := l.model.currentJob(h)
	id := l.model.jobs[seq].ID
	mode, batch := pick(l, engine.Unique, engine.Ignore, engine.Replace), l.batch("brief")
	want := l.model.atomically(func() string { return l.model.requeue(seq, mode, batch) })
	if !strings.HasPrefix(want, "!") {
		want = "requeued"
	}
	byID := seq != 0 && l.random.IntN(2) == 0
	l.same(fmt.Sprint("requeue ", h, " ", mode, " ", describe(batch)), want, func(s *side) string {
		if byID {
			return outcome(s.engine.RequeueJob(s.ctx, id, mode, batch), "requeued")
		}
		return outcome(s.engine.Requeue(s.ctx, s.runs[h], mode, batch), "requeued")
	})
}

func (l *lockstep) change(op string, on job.Cause, edit func(*job.Job),
	do func(*side, job.ID) (*job.Job, error)) {
	id := l.id()
	want := l.model.atomically(func() string { return l.model.change(id, on, edit) })
	l.same(op+" "+name(id), want, func(s *side) string {
		j, err := do(s, id)
		if err != nil {
			return outcome(err, "")
		}
		return string(j.State)
	})
}

func (l *lockstep) cancel() {
	l.change("cancel", job.Canceled, func(*job.Job) {}, func(s *side, id job.ID) (*job.Job, error) {
		return s.engine.Cancel(s.ctx, id)
	})
}

func (l *lockstep) retry() {
	delay := pick(l, 0, 10*time.Second)
	l.change("retry", job.Retried, func(j *job.Job) { j.DueAt = l.model.now.Add(delay) },
		func(s *side, id job.ID) (*job.Job, error) { return s.engine.Retry(s.ctx, id, delay) })
}

func (l *lockstep) remove() {
	l.change("remove", job.Removed, func(*job.Job) {}, func(s *side, id job.ID) (*job.Job, error) {
		return &job.Job{}, s.engine.Remove(s.ctx, id)
	})
}

func (l *lockstep) replace() {
	p, q, body := l.random.IntN(3), pick(l, "q", "r"),
		[]byte(strings.Repeat("new", pick(l, 1, 4000)))
	edit := func(j *job.Job) { j.Priority, j.Queue, j.Payload = p, q, body }
	l.change("replace", job.Replaced, edit, func(s *side, id job.ID) (*job.Job, error) {
		return s.engine.Change(s.ctx, id, job.Replaced, func(j *job.Job, _ time.Time) error {
			edit(j)
			return nil
		})
	})
}

func (l *lockstep) sweep() {
	if l.random.IntN(2) == 0 {
		l.same("expire", strconv.Itoa(l.model.expire(nil)), func(s *side) string {
			n, err := s.engine.Expire(s.ctx)
			return outcome(err, strconv.Itoa(n))
		})
		return
	}
	l.same("promote", strconv.Itoa(l.model.promoteDue()), func(s *side) string {
		n, err := s.engine.Promote(s.ctx)
		return outcome(err, strconv.Itoa(n))
	})
}

func (l *lockstep) advance() {
	d := pick(l, 100*time.Millisecond, time.Second, 5*time.Second, 15*time.Second, 31*time.Second,
		2*time.Minute)
	if l.random.IntN(30) == 0 {
		d = 61 * time.Minute
	}
	l.model.now = l.model.now.Add(d)
	l.same("advance "+d.String(), "", func(s *side) string { s.clock.Advance(d); return "" })
}

func (l *lockstep) setQueue() {
	jobType := pick(l, "brief", "part", "graph")
	q := job.QueueSettings{JobType: jobType, Queue: pick(l, "q", "r"),
		Paused: l.random.IntN(4) == 0, MaxRunning: l.random.IntN(4)}
	l.model.paused[jobType+" "+q.Queue], l.model.limits[jobType+" "+q.Queue] = q.Paused,
		q.MaxRunning
	l.same(fmt.Sprintf("setQueue %+v", q), "", func(s *side) string {
		return outcome(s.engine.SetQueue(s.ctx, q), "")
	})
}

// byJob sorts messages by their job, and leaves those of the same job in their order.
func byJob(all []string) []string {
	slices.SortStableFunc(all, func(a, b string) int {
		return strings.Compare(strings.Fields(a)[0], strings.Fields(b)[0])
	})
	return all
}

// publish empties the outbox, in which only the messages of the same job have an order.
func (l *lockstep) publish() {
	text := func(all []string) string { return strings.Join(byJob(all), "\n") }
	want := text(l.model.out)
	l.model.out = nil
	l.same("publish", want, func(s *side) string {
		var got []string
		s.bodies = nil
		for n, err := 1, error(nil); n > 0; {
			n, err = s.engine.Publish(s.ctx, func(_ context.Context, batch []job.Message) error {
				for _, m := range batch {
					line := fmt.Sprintf("%s %s %s>%s", name(m.JobID), m.Cause, m.Prev, m.Next)
					got, s.bodies = append(got, line), append(s.bodies, line+" "+string(m.Body))
				}
				return nil
			})
			s.noError(err)
		}
		if text(s.bodies) != text(l.sides[0].bodies) {
			return "other bodies: " + text(s.bodies) + "\nthan\n" + text(l.sides[0].bodies)
		}
		return text(got)
	})
}

func (l *lockstep) prune() {
	l.model.prune()
	l.same("prune", "", func(s *side) string {
		for {
			if n, err := s.engine.Prune(s.ctx); n == 0 || err != nil {
				return outcome(err, "")
			}
		}
	})
}

// restart replaces each engine, and its store unless that is in memory.
func (l *lockstep) restart() {
	l.same("restart", "", func(s *side) string {
		if s.name == "twice" {
			return ""
		}
		s.noError(s.engine.ReleaseLeadership(s.ctx))
		s.reopen()
		return outcome(s.engine.LoadQueues(s.ctx), "")
	})
	for _, s := range l.sides { // runs of before are as good as ever
		if len(s.runs) != len(l.sides[0].runs) {
			l.Fatal(slices.Collect(maps.Keys(s.runs)))
		}
	}
}
