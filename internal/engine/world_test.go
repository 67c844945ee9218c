package engine_test

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// world is a database at a fixed clock with an engine on it.
type world struct {
	testing.TB
	clock  *testkit.Clock
	store  store.Store
	engine *engine.Engine
	ctx    context.Context
	watch  *watchedStore         // what store is
	reopen func()                // replaces store and engine, as a restart does
	server func() *engine.Engine // makes one more engine, with a store of its own
}

// databases are the databases every test of a verb runs on.
var databases = map[string]func(testing.TB, func() time.Time) func(testing.TB) store.Store{
	"memory": func(tb testing.TB, now func() time.Time) func(testing.TB) store.Store {
		s := testkit.MemoryStore(tb, now)
		return func(testing.TB) store.Store { return s } // gone when it is closed
	},
	"file": func(tb testing.TB, now func() time.Time) func(testing.TB) store.Store {
		path := filepath.Join(tb.TempDir(), "m.db")
		return func(tb testing.TB) store.Store { return openFile(tb, path, now) }
	},
	"postgres": func(tb testing.TB, now func() time.Time) func(testing.TB) store.Store {
		url := pgtest.URL(tb)
		return func(tb testing.TB) store.Store { return openPostgresURL(tb, url, now) }
	},
}

func openFile(tb testing.TB, path string, now func() time.Time) store.Store {
	tb.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: path, Now: now})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// onEveryStore runs a test on every database, at once.
func onEveryStore(t *testing.T, jobTypes []engine.JobType, test func(w *world)) {
	t.Helper()
	t.Parallel()
	for name := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newWorld(t, name, jobTypes))
		})
	}
}

func newWorld(tb testing.TB, database string, jobTypes []engine.JobType) *world {
	tb.Helper()
	return newWorldOn(tb, databases[database], database != "memory", jobTypes)
}

// newWorldOn is newWorld for a database that makes stores by itself.
func newWorldOn(tb testing.TB,
	database func(testing.TB, func() time.Time) func(testing.TB) store.Store, reopens bool,
	jobTypes []engine.JobType) *world {
	tb.Helper()
	w := &world{TB: tb, clock: testkit.NewClock()}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	tb.Cleanup(cancel)
	w.ctx = ctx
	openStore := database(tb, w.clock.Now)
	open := func(tb testing.TB) store.Store {
		w.watch = newWatchedStore(tb, openStore(tb))
		return w.watch
	}
	w.store = open(tb)
	w.engine = testkit.NewEngine(tb, w.store, w.clock, jobTypes...)
	w.reopen = func() {
		w.engine.Close()
		if reopens {
			w.store.Close()
			w.store = open(tb)
		}
		w.engine = testkit.NewEngine(tb, w.store, w.clock, jobTypes...)
	}
	w.server = func() *engine.Engine {
		return testkit.NewEngine(tb, newWatchedStore(tb, openStore(tb)), w.clock, jobTypes...)
	}
	return w
}

// node makes one more engine on the same database.
func (w *world) node(jobTypes []engine.JobType) *engine.Engine {
	w.Helper()
	return testkit.NewEngine(w, w.store, w.clock, jobTypes...)
}

// ids are written job type/key; the scope is made of the key's part before a colon.
func id(text string) job.ID {
	jobType, key, ok := strings.Cut(text, "/")
	if !ok {
		panic(text)
	}
	scope, rest, scoped := strings.Cut(key, ":")
	if !scoped {
		scope, rest = "", key
	}
	return job.ID{JobType: jobType, Scope: scope, Key: rest}
}

func name(id job.ID) string {
	if id.Scope != "" {
		return id.JobType + "/" + id.Scope + ":" + id.Key
	}
	return id.JobType + "/" + id.Key
}

// sub is a submission to queue q with a lease of 30 s.
func sub(text string, with ...func(*engine.Submission)) engine.Submission {
	s := engine.Submission{Job: job.Job{ID: id(text), Queue: "q", Lease: 30 * time.Second,
		Retry: perFailure[id(text).JobType], Payload: []byte(text)}}
	for _, f := range with {
		f(&s)
	}
	return s
}

func subs(all ...engine.Submission) []engine.Submission { return all }

func after(texts ...string) func(*engine.Submission) {
	return func(s *engine.Submission) {
		for _, t := range texts {
			s.DependsOn = append(s.DependsOn, id(t))
		}
	}
}

func childOf(text string) func(*engine.Submission) {
	return func(s *engine.Submission) { s.Parent = id(text) }
}

func in(queue string) func(*engine.Submission) {
	return func(s *engine.Submission) { s.Job.Queue = queue }
}

func due(d time.Duration) func(*engine.Submission) {
	return func(s *engine.Submission) { s.Job.DueAt = testkit.StartTime.Add(d) }
}

func limit(n int) func(*engine.Submission) {
	return func(s *engine.Submission) { s.Job.MaxAttempts = n }
}

func priority(n int) func(*engine.Submission) {
	return func(s *engine.Submission) { s.Job.Priority = n }
}

func with(change func(*job.Job)) func(*engine.Submission) {
	return func(s *engine.Submission) { change(&s.Job) }
}

// submit stores a batch in mode unique.
func (w *world) submit(batch ...engine.Submission) {
	w.Helper()
	if r, err := w.engine.Submit(w.ctx, engine.Unique, batch); err != nil ||
		r.Stored != len(batch) {
		w.Fatalf("submit: %+v, %v", r, err)
	}
}

// claim claims up to n jobs of the queues and returns them.
func (w *world) claim(jobType string, n int, queues ...string) []*job.Job {
	w.Helper()
	jobs, err := w.engine.Claim(w.ctx, engine.ClaimRequest{JobType: jobType, Queues: queues,
		Max: n, Worker: "worker"})
	if err != nil {
		w.Fatalf("claim: %v", err)
	}
	return jobs
}

// run claims the only ready job, which must be text, and returns its run.
func (w *world) run(text string) engine.Run {
	w.Helper()
	jobs := w.claim(id(text).JobType, 1)
	if len(jobs) != 1 || name(jobs[0].ID) != text {
		w.Fatalf("claimed %v, want %s", names(jobs), text)
	}
	return engine.Run{ID: jobs[0].ID, Run: jobs[0].Run}
}

func names(jobs []*job.Job) []string {
	all := make([]string, len(jobs))
	for i, j := range jobs {
		all[i] = name(j.ID)
	}
	return all
}

// finish ends a run, which must be possible.
func (w *world) finish(r engine.Run, on job.Cause) *job.Job {
	w.Helper()
	j, err := w.engine.Finish(w.ctx, r, engine.Outcome{On: on})
	if err != nil {
		w.Fatalf("finish %s: %v", on, err)
	}
	return j
}

// wantKind checks the kind of an error.
func (w *world) wantKind(err error, kind job.Kind) {
	w.Helper()
	if !job.IsKind(err, kind) {
		w.Fatalf("got error %v, want kind %s", err, kind)
	}
}

func (w *world) noError(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) get(text string) *job.Job {
	w.Helper()
	j, err := w.engine.Get(w.ctx, id(text))
	if err != nil {
		w.Fatal(err)
	}
	return j
}

// wantSnapshot compares all that is stored with a text: a line for each job with its history, and
// for each count and dead letter. Lines of want are trimmed.
func (w *world) wantSnapshot(want string) {
	w.Helper()
	lines := strings.Split(strings.TrimSpace(want), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	if got, want := w.snapshot(), strings.Join(lines, "\n"); got != want {
		w.Fatalf("the store has\n%s\nwant\n%s", got, want)
	}
	w.checkInvariants()
}

func (w *world) snapshot() string {
	w.Helper()
	return w.snapshotBy(func(r store.Reader, j *job.Job) ([]job.Event, error) {
		return r.Events(j.Seq, 0)
	})
}

// snapshotBy is snapshot with the histories that eventsOf returns.
func (w *world) snapshotBy(eventsOf func(store.Reader, *job.Job) ([]job.Event, error)) string {
	w.Helper()
	var lines []string
	w.noError(w.store.View(w.ctx, func(r store.Reader) error {
		page, err := r.List(store.Filter{})
		if err != nil {
			return err
		}
		jobs := page.Jobs
		slices.SortStableFunc(jobs, func(a, b *job.Job) int {
			return strings.Compare(name(a.ID), name(b.ID))
		})
		for _, j := range jobs {
			events, err := eventsOf(r, j)
			if err != nil {
				return err
			}
			lines = append(lines, w.line(j)+history(events))
		}
		more, err := countsAndDeadLetters(r)
		lines = append(lines, more...)
		return err
	}))
	return strings.Join(lines, "\n")
}

func countsAndDeadLetters(r store.Reader) (lines []string, err error) {
	counts, err := r.Counts(store.QueueSelector{})
	for _, c := range counts {
		if c.Jobs() != 0 {
			lines = append(lines, fmt.Sprintf("%s %s: %d waiting %d ready %d leased", c.JobType,
				c.Queue, c.Waiting+c.Delayed, c.Ready, c.Leased))
		}
	}
	slices.Sort(lines) // the store has no order of counts
	for _, c := range testJobTypes() {
		deadLetters, err := r.DeadLetters(store.DeadLetterSelector{JobType: c.Name, Limit: 10_000})
		if err != nil {
			return nil, err
		}
		for _, l := range deadLetters {
			line := fmt.Sprintf("dead %s %s payload=%s failure=%s", name(l.Job.ID), l.Cause,
				short(l.Job.Payload), short(l.Job.Failure))
			if !l.IsOpen() {
				line += " replayed"
			}
			lines = append(lines, line)
		}
	}
	return lines, err
}

// line is a job as a text, without what is as in a new one.
func (w *world) line(j *job.Job) string {
	text := fmt.Sprintf("%s: %s %s", name(j.ID), j.State, j.Phase)
	number := func(label string, n int) {
		if n != 0 {
			text += fmt.Sprintf(" %s=%d", label, n)
		}
	}
	number("priority", j.Priority)
	number("runs", j.Attempts)
	number("failures", j.FailedAttempts)
	number("lost", j.LostAttempts)
	if j.Phase != job.Done { // what is done waits for nothing, whatever it waited for
		number("open", j.OpenDeps)
	}
	number("bad", j.FailedDeps)
	number("children", j.Children)
	now := w.clock.Now()
	if j.DueAt.After(now) {
		text += " due=" + j.DueAt.Sub(now).String()
	}
	if j.Phase == job.Leased {
		text += " until=" + j.LeaseUntil.Sub(now).String()
	}
	for _, p := range []struct {
		label string
		data  []byte
	}{{"progress", j.Progress}, {"result", j.Result}, {"failure", j.Failure}} {
		if p.data != nil {
			text += " " + p.label + "=" + short(p.data)
		}
	}
	return text
}

func history(events []job.Event) string {
	if len(events) == 0 {
		return ""
	}
	steps := make([]string, len(events))
	for i, ev := range events {
		steps[i] = fmt.Sprintf("%s>%s", ev.Cause, ev.Next)
	}
	return " [" + strings.Join(steps, " ") + "]"
}

func short(b []byte) string {
	if len(b) > 40 {
		return fmt.Sprintf("%s…%d", b[:8], len(b))
	}
	return string(b)
}

// messages reads the outbox and removes nothing.
func (w *world) messages() (all []string) {
	w.Helper()
	w.noError(w.store.Update(w.ctx, func(tx store.Tx) error {
		var messages []job.Message
		for _, c := range testJobTypes() {
			own, err := tx.Messages([]string{c.Name}, 10_000)
			if err != nil {
				return err
			}
			messages = append(messages, own...)
		}
		slices.SortFunc(messages, func(a, b job.Message) int { return cmp.Compare(a.ID, b.ID) })
		all = nil
		for _, m := range messages {
			all = append(all, fmt.Sprintf("%s %s %s>%s %s", name(m.JobID), m.Cause, m.Prev, m.Next,
				m.Body))
		}
		return nil
	}))
	return all
}

// checkInvariants checks what must hold in any state: see invariants.
func (w *world) checkInvariants() {
	w.Helper()
	w.noError(w.store.View(w.ctx, func(r store.Reader) error {
		page, err := r.List(store.Filter{})
		if err != nil {
			return err
		}
		jobs := page.Jobs
		counts, err := r.Counts(store.QueueSelector{WithDone: true})
		if err != nil {
			return err
		}
		events := map[int64][]job.Event{}
		for _, j := range jobs {
			if events[j.Seq], err = r.Events(j.Seq, 0); err != nil {
				return err
			}
		}
		open, err := openDeadLetters(r)
		if err != nil {
			return err
		}
		if wrong := invariants(jobs, counts, events, open); len(wrong) > 0 {
			return fmt.Errorf("broken: %s", strings.Join(wrong, "; "))
		}
		return nil
	}))
}

// openDeadLetters counts the open dead letters of each queue.
func openDeadLetters(r store.Reader) (map[string]job.QueueCount, error) {
	open := map[string]job.QueueCount{}
	for _, c := range testJobTypes() {
		deadLetters, err := r.DeadLetters(store.DeadLetterSelector{JobType: c.Name, Limit: 10_000})
		if err != nil {
			return nil, err
		}
		for _, l := range deadLetters {
			if l.IsOpen() {
				key := l.Job.ID.JobType + " " + l.Job.Queue
				open[key] = open[key].Plus(job.QueueCount{Dead: 1})
			}
		}
	}
	return open, nil
}

// invariants checks that states, phases, runs, counters and histories of jobs agree, and that
// counts agree with the jobs. It returns what does not hold.
func invariants(jobs []*job.Job, counts []job.QueueCount,
	events map[int64][]job.Event, truth map[string]job.QueueCount) (wrong []string) {
	machines := map[string]engine.JobType{}
	for _, c := range testJobTypes() {
		machines[c.Name] = c
	}
	for _, j := range jobs {
		c := machines[j.ID.JobType]
		bad := func(what string) { wrong = append(wrong, name(j.ID)+" "+what) }
		if phase := c.Machine.Phase(j.State); phase != j.Phase &&
			(phase != job.Ready || j.Phase != job.Waiting) {
			bad("is " + string(j.State) + " but " + j.Phase.String())
		}
		if leased := j.Phase == job.Leased; leased == j.Run.IsZero() ||
			leased == j.LeaseUntil.IsZero() || (leased && j.Run.Seq() != j.Seq) {
			bad("has a run without being leased, or the other way round")
		}
		if (j.Phase == job.Done) == j.FinishedAt.IsZero() {
			bad("has a wrong time of settlement")
		}
		retries := 0 // each is worth one failure more
		for _, ev := range events[j.Seq] {
			if ev.Cause == job.Retried {
				retries++
			}
		}
		if (j.MaxAttempts > 0 && j.FailedAttempts > j.MaxAttempts+retries) ||
			j.FailedAttempts+j.LostAttempts > j.Attempts || j.OpenDeps < 0 || j.FailedDeps < 0 {
			bad("has a counter out of range")
		}
		if c.History {
			wrong = append(wrong, checkHistory(j, c.Machine, events[j.Seq])...)
		} else if len(events[j.Seq]) > 0 {
			bad("has a history")
		}
		key := j.ID.JobType + " " + j.Queue
		t := truth[key]
		switch j.Phase {
		case job.Waiting:
			if c.Machine.Phase(j.State) == job.Ready {
				t.Delayed++
			} else {
				t.Waiting++
			}
		case job.Ready:
			t.Ready++
		case job.Leased:
			t.Leased++
		case job.Done:
			t.Done++
		}
		truth[key] = t
	}
	for _, c := range counts {
		key := c.JobType + " " + c.Queue
		if t := truth[key]; c != (job.QueueCount{JobType: c.JobType, Queue: c.Queue}).Plus(t) {
			wrong = append(wrong, fmt.Sprintf("%s counts %+v, is %+v", key, c, t))
		}
		delete(truth, key)
	}
	for key, t := range truth {
		if t != (job.QueueCount{}) {
			wrong = append(wrong, key+" is not counted")
		}
	}
	return wrong
}

// checkHistory checks a history: it begins with StateNone, each event is a transition of the
// machine from where the one before led, times do not go back, it ends where the job is.
func checkHistory(j *job.Job, m *job.Machine, events []job.Event) (wrong []string) {
	at, state := time.Time{}, job.StateNone
	var runs []job.RunID
	for _, ev := range events {
		tr, ok := m.Next(ev.Prev, ev.Cause)
		if !ok || ev.Prev != state || tr.To != ev.Next || !ev.At.After(at) {
			wrong = append(wrong, fmt.Sprintf("%s has the event %+v after %s", name(j.ID), ev,
				state))
		}
		at, state = ev.At, ev.Next
		if ev.Cause == job.Claimed {
			if slices.Contains(runs, ev.Run) {
				wrong = append(wrong, name(j.ID)+" was claimed twice under one run")
			}
			runs = append(runs, ev.Run)
		}
		if m.Phase(ev.Prev) == job.Leased && (len(runs) == 0 || ev.Run != runs[len(runs)-1]) {
			wrong = append(wrong,
				fmt.Sprintf("%s has an event of a run that is not its current one: %+v", name(j.ID),
					ev))
		}
	}
	if state != j.State || len(runs) != j.Attempts {
		wrong = append(wrong, fmt.Sprintf("%s is %s after %d runs, its history says %s after %d",
			name(j.ID), j.State, j.Attempts, state, len(runs)))
	}
	return wrong
}

func sorted[T cmp.Ordered](all []T) []T { slices.Sort(all); return all }

// running returns limits of running jobs, by queue.
func running(limits map[string]int) map[string]job.QueueLimits {
	all := map[string]job.QueueLimits{}
	for queue, n := range limits {
		all[queue] = job.QueueLimits{MaxRunning: n}
	}
	return all
}

// deadLettersOf returns the first dead letters of a job type behind an ID.
func (w *world) deadLettersOf(jobType string, after int64) ([]job.DeadLetter, error) {
	lists, err := w.engine.DeadLetters(w.ctx, store.DeadLetterSelector{JobType: jobType,
		After: after, Limit: 9})
	if err != nil {
		return nil, err
	}
	return lists[0], nil
}
