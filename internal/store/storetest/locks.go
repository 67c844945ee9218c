package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// lockTests prove what the port promises of each method that locks rows: which rows it selects, in
// which order and with which bodies. That locked rows are skipped or waited for is proved by
// crowdTests. The file also has the reads that follow the same indexes: NextDue, Edges and
// Dependencies.
var lockTests = []test{
	{"lock returns those that exist by number", lockOrder},
	{"a view locks no jobs", viewLocksNothing},
	{"ready jobs come in claim order", readyOrder},
	{"ready jobs of one queue only", readyOfQueue},
	{"ready jobs come with bodies", readyBodies},
	{"due jobs come earliest first", dueOrder},
	{"expired leases", expired},
	{"expired leases after a jump of the clock", expiredAfterJump},
	{"next due", nextDue},
	{"edges", edges},
}

// lockOrder proves that Load with Lock returns its jobs by Seq ascending, however the selector
// orders them, which is what keeps such loads free of deadlocks. A job that is named twice comes
// once, and what does not exist is left out.
func lockOrder(w *world) {
	var jobs []*job.Job
	for i := range 40 {
		jobs = append(jobs, newJob(fmt.Sprint(i)))
	}
	w.insert(jobs...)
	want := keys(jobs)
	// An identity and two numbers that are not stored stand among the others.
	ids := []job.ID{{JobType: "relay", Scope: "q", Key: "none"}}
	numbers := []int64{-1, 1 << 50}
	for _, j := range jobs {
		ids, numbers = append(ids, j.ID), append(numbers, j.Seq)
	}
	rand.Shuffle(len(ids), func(i, k int) { ids[i], ids[k] = ids[k], ids[i] })
	rand.Shuffle(len(numbers), func(i, k int) { numbers[i], numbers[k] = numbers[k], numbers[i] })
	equal(w, "by id", keys(change(w, func(tx store.Tx) ([]*job.Job, error) {
		return tx.Load(store.Selector{IDs: append(ids, ids[0]), Lock: true})
	})), want)
	equal(w, "by number", keys(change(w, func(tx store.Tx) ([]*job.Job, error) {
		return tx.Load(store.Selector{Seqs: append(numbers, numbers[0]), Lock: true})
	})), want)
	for name, s := range map[string]store.Selector{"free ones": {SkipLocked: true},
		"for their leases": {LeaseOnly: true}} {
		s.Seqs, s.Lock = numbers, true
		equal(w, name, keys(change(w, func(tx store.Tx) ([]*job.Job, error) {
			return tx.Load(s)
		})), want)
	}
	for name, s := range map[string]store.Selector{"nothing": {Lock: true},
		"of recorded ends": {RecordedEnds: 9}} {
		equal(w, name, len(change(w, func(tx store.Tx) ([]*job.Job, error) {
			return tx.Load(s)
		})), 0)
	}
}

// viewLocksNothing proves that a Load with Lock in a view is Internal, a defect of the caller, and
// that the store goes on.
func viewLocksNothing(w *world) {
	j := newJob("a")
	w.insert(j)
	err := w.store.View(w.context(), func(r store.Reader) error {
		_, err := r.Load(locked(j))
		return err
	})
	if !job.IsKind(err, job.Internal) {
		w.Errorf("got %v", err)
	}
	equal(w, "ping", w.store.Ping(w.context()), error(nil))
}

// readyOrder proves that LockReady returns the first n jobs in the order of job.CompareClaim:
// priority, order time, number, with many ties of each and with a job that has no order time.
func readyOrder(w *world) {
	var jobs []*job.Job
	for i := range 60 {
		jobs = append(jobs, newJob(fmt.Sprint(i), func(j *job.Job) {
			j.Priority = rand.IntN(3) - 1
			j.OrderTime = start.Add(time.Duration(rand.IntN(4)-2) * time.Microsecond)
		}))
	}
	// The zero time is before all others in the order of the index too.
	jobs[0].OrderTime = time.Time{}
	w.insert(jobs...)
	want := slices.Clone(jobs)
	slices.SortFunc(want, job.CompareClaim)
	ready := func(n int) []string {
		return keys(change(w, func(tx store.Tx) ([]*job.Job, error) {
			return tx.LockReady("relay", "q", n)
		}))
	}
	equal(w, "all", ready(100), keys(want))
	equal(w, "five", ready(5), keys(want[:5]))
	equal(w, "none", ready(0), []string{})
}

// readyOfQueue proves that LockReady returns ready jobs of one queue of one job type and of no
// other phase, though names of queues and job types repeat.
func readyOfQueue(w *world) {
	w.insert(newJob("a", in("x", "q")), newJob("b", in("y", "q")), newJob("c", in("x", "r")),
		newJob("waiting", in("x", "q"), waiting(start.Add(-time.Hour), 0)),
		newJob("leased", in("x", "q"), leased(start, start)),
		newJob("done", in("x", "q"), func(j *job.Job) { j.Phase = job.Done }))
	for queue, want := range map[[2]string][]string{{"x", "q"}: {"a"}, {"y", "q"}: {"b"},
		{"x", "r"}: {"c"}, {"y", "r"}: {}} {
		got := change(w, func(tx store.Tx) ([]*job.Job, error) {
			return tx.LockReady(queue[0], queue[1], 10)
		})
		equal(w, fmt.Sprint(queue), keys(got), want)
	}
}

// readyBodies proves that LockReady returns jobs with all their bodies, those out of line too.
func readyBodies(w *world) {
	var jobs []*job.Job
	for i, n := range sizes {
		jobs = append(jobs, newJob(fmt.Sprint(i), func(j *job.Job) {
			j.Definition, j.Payload = bytesOf(n), bytesOf(n)
		}))
	}
	w.insert(jobs...)
	got := change(w, func(tx store.Tx) ([]*job.Job, error) {
		return tx.LockReady("relay", "q", 100)
	})
	equal(w, "ready", keys(got), keys(jobs))
	for i := range got {
		w.sameBodies(jobs[i].ID.Key, got[i], jobs[i])
	}
}

// dueOrder proves that LockDue returns the waiting jobs that are due by the store's clock, earliest
// first, a job without a due time before all. It leaves out jobs with an open dependency, jobs that
// are not waiting, and those in one of the states given, each of which is a state of one job type.
func dueOrder(w *world) {
	w.insert(
		newJob("later", waiting(start.Add(time.Microsecond), 0)), newJob("now", waiting(start, 0)),
		newJob("long ago", waiting(start.Add(-time.Hour), 0)),
		newJob("no time", waiting(time.Time{}, 0)),
		newJob("open", waiting(start.Add(-time.Hour), 1)), newJob("ready"))
	due := func(n int, except ...string) []string {
		return keys(change(w, func(tx store.Tx) ([]*job.Job, error) {
			return tx.LockDue(n, except)
		}))
	}
	equal(w, "due", due(10), []string{"no time", "long ago", "now"})
	equal(w, "two", due(2), []string{"no time", "long ago"})
	w.insert(newJob("of another", waiting(start, 0), in("another", "queue")))
	equal(w, "but of one contract", due(10, "another waiting", "another queued"),
		[]string{"no time", "long ago", "now"})
	equal(w, "of none", due(10, "another waiting", newJob("").ID.JobType+" waiting"), []string{})
	w.update(func(tx store.Tx) error {
		another := job.ID{JobType: "another", Scope: "queue", Key: "of another"}
		locked, err := tx.Load(store.Selector{IDs: []job.ID{another}, Lock: true})
		if err != nil {
			return err
		}
		return tx.Apply(store.Changes{Delete: locked})
	})
	w.at(time.Microsecond)
	equal(w, "due later", due(10), []string{"no time", "long ago", "now", "later"})
}

// expired returns the keys of the jobs that LockExpired returns, in alphabetical order.
func (w *world) expired(jumped time.Time, n int) []string {
	w.Helper()
	all := keys(change(w, func(tx store.Tx) ([]*job.Job, error) {
		return tx.LockExpired(jumped, n)
	}))
	slices.Sort(all)
	return all
}

// expired proves that LockExpired returns leased jobs whose lease has ended, that moment included,
// the longest ended first, and no job of another phase, whatever its lease_until says.
func expired(w *world) {
	ago := start.Add(-time.Hour)
	w.insert(newJob("expired", leased(ago, start)),
		newJob("long expired", leased(ago, start.Add(-time.Minute))),
		newJob("running", leased(ago, start.Add(time.Microsecond))),
		newJob("ready", func(j *job.Job) { j.LeaseUntil = start.Add(-time.Minute) }))
	equal(w, "expired", w.expired(time.Time{}, 10), []string{"expired", "long expired"})
	for n, want := range map[int][]string{1: {"long expired"}, 2: {"long expired", "expired"}} {
		lapsed := change(w, func(tx store.Tx) ([]*job.Job, error) {
			return tx.LockExpired(time.Time{}, n)
		})
		equal(w, "longest first", keys(lapsed), want)
	}
	w.at(time.Microsecond)
	equal(w, "expired", w.expired(time.Time{}, 10), []string{"expired", "long expired", "running"})
}

// expiredAfterJump proves that attempts whose last heartbeat is from before a jump of the clock get
// one lease from the jump on, each of its own length, and that leases which a later heartbeat has
// extended end at their own time.
func expiredAfterJump(w *world) {
	// The clock jumped from an hour ago to start:
	//
	//	before   last heartbeat before the jump, lease of a minute
	//	short    last heartbeat before the jump, lease of a second
	//	after    a heartbeat at the jump and none since, lease of 20 seconds
	//	lately   a heartbeat 30 seconds after the jump, lease of a minute
	before := start.Add(-time.Hour)
	w.insert(
		newJob("before", leased(before, before.Add(time.Minute))),
		newJob("short", leased(before, before.Add(time.Second)), func(j *job.Job) {
			j.Lease = time.Second
		}),
		newJob("after", leased(start, start.Add(20*time.Second)), func(j *job.Job) {
			j.Lease = 20 * time.Second
		}),
		newJob("lately", leased(start.Add(30*time.Second), start.Add(90*time.Second))))
	for _, tt := range []struct {
		at   time.Duration
		want []string
	}{
		{0, []string{}},
		{time.Second - time.Microsecond, []string{}},
		{time.Second, []string{"short"}},
		{20 * time.Second, []string{"after", "short"}},
		{time.Minute - time.Microsecond, []string{"after", "short"}},
		{time.Minute, []string{"after", "before", "short"}},
		{90 * time.Second, []string{"after", "before", "lately", "short"}},
	} {
		w.at(tt.at)
		equal(w, "with the jump, after "+tt.at.String(), w.expired(start, 10), tt.want)
	}
	w.at(0)
	equal(w, "without the jump", w.expired(time.Time{}, 10), []string{"before", "short"})
}

// nextDue proves that NextDue returns the earliest due time and the earliest end of a lease, the
// zero time where there is none until then; that a job with an open dependency is not due; and that
// a job without a due time is due now.
func nextDue(w *world) {
	nextUntil := func(until, wantDue, wantLease time.Time) {
		w.Helper()
		w.view(func(r store.Reader) error {
			next, err := r.NextDue(until)
			equal(w, "due", next, store.Due{Waiting: wantDue, Lease: wantLease})
			return err
		})
	}
	next := func(due, lease time.Time) {
		w.Helper()
		nextUntil(start.Add(time.Hour), due, lease)
	}
	w.insert(newJob("ready"), newJob("open", waiting(start, 1)))
	// A ready job has no due time ahead of it, and "open" waits for a dependency.
	next(time.Time{}, time.Time{})
	w.insert(newJob("soon", waiting(start.Add(time.Second), 0)),
		newJob("later", waiting(start.Add(time.Minute), 0)))
	next(start.Add(time.Second), time.Time{})
	w.insert(newJob("leased", leased(start, start.Add(time.Hour))),
		newJob("leased too", leased(start, start.Add(time.Minute))))
	next(start.Add(time.Second), start.Add(time.Minute))
	nextUntil(start.Add(time.Second), start.Add(time.Second), time.Time{})
	nextUntil(start, time.Time{}, time.Time{})
	w.insert(newJob("no time", waiting(time.Time{}, 0))) // is due at once
	next(start, start.Add(time.Minute))
}

// edges proves that Edges returns the edges from jobs, to jobs within a limit, and all that a job
// depends on transitively, each once; that an edge that exists is stored once; and that a
// dependency cycle, which the engine refuses, does not keep the query from ending. Dependencies
// names the same by identity.
func edges(w *world) {
	var all []*job.Job
	for i := range 6 {
		all = append(all, newJob(fmt.Sprint(i)))
	}
	w.insert(all...)
	edge := func(from, to int) job.Edge {
		return job.Edge{Dependent: all[from].Seq, Dependency: all[to].Seq}
	}
	// Arrows lead from a dependent to its dependency; 4 ─▶ 0 is added below:
	//
	//	3 ─▶ 1 ─▶ 0
	//	3 ─▶ 2 ─▶ 0
	//	5 ─▶ 4 ─▶ 0
	add := []job.Edge{edge(1, 0), edge(2, 0), edge(3, 1), edge(3, 2), edge(5, 4)}
	w.apply(store.Changes{Edges: add})
	w.apply(store.Changes{Edges: []job.Edge{edge(3, 2), edge(1, 0), edge(4, 0), edge(4, 0)}})
	// The order of edges is the store's own, so the test compares them sorted.
	inOrder := func(edges []job.Edge, err error) ([]job.Edge, error) {
		slices.SortFunc(edges, func(a, b job.Edge) int {
			return cmp.Or(cmp.Compare(a.Dependent, b.Dependent),
				cmp.Compare(a.Dependency, b.Dependency))
		})
		return edges, err
	}
	from := func(seqs ...int64) []job.Edge {
		return read(w, func(r store.Reader) ([]job.Edge, error) {
			return inOrder(r.Edges(store.EdgeSelector{From: seqs}))
		})
	}
	to := func(n int, seqs ...int64) []job.Edge {
		return read(w, func(r store.Reader) ([]job.Edge, error) {
			return inOrder(r.Edges(store.EdgeSelector{To: seqs, Limit: n}))
		})
	}
	above := func(seqs ...int64) []job.Edge {
		return read(w, func(r store.Reader) ([]job.Edge, error) {
			return inOrder(r.Edges(store.EdgeSelector{From: seqs, Transitive: true}))
		})
	}
	equal(w, "from 3", from(all[3].Seq), []job.Edge{edge(3, 1), edge(3, 2)})
	equal(w, "from 0 and 1", from(seqs(all[0], all[1])...), []job.Edge{edge(1, 0)})
	equal(w, "to 1", to(0, all[1].Seq), []job.Edge{edge(3, 1)})
	equal(w, "to 0 and 1", to(0, seqs(all[0], all[1])...),
		[]job.Edge{edge(1, 0), edge(2, 0), edge(3, 1), edge(4, 0)})
	equal(w, "two to 0", len(to(2, all[0].Seq)), 2)
	equal(w, "above 3", above(all[3].Seq),
		[]job.Edge{edge(1, 0), edge(2, 0), edge(3, 1), edge(3, 2)})
	equal(w, "above 2 and 5", above(seqs(all[2], all[5])...),
		[]job.Edge{edge(2, 0), edge(4, 0), edge(5, 4)})
	for _, none := range [][]job.Edge{from(), to(0), above(), above(all[0].Seq)} {
		equal(w, "of none", none, []job.Edge(nil))
	}
	// A dependency cycle, which the engine refuses to store.
	w.apply(store.Changes{Edges: []job.Edge{edge(0, 3)}})
	equal(w, "around", above(all[1].Seq),
		[]job.Edge{edge(0, 3), edge(1, 0), edge(2, 0), edge(3, 1), edge(3, 2)})
	w.apply(store.Changes{DeleteEdges: seqs(all[0])})

	listed := read(w, func(r store.Reader) (map[job.ID][]job.ID, error) {
		return r.Dependencies([]job.ID{all[0].ID, all[3].ID, all[5].ID, {Key: "unknown"}})
	})
	if len(listed[all[3].ID]) == 2 && listed[all[3].ID][0] == all[2].ID {
		slices.Reverse(listed[all[3].ID])
	}
	equal(w, "dependencies of 3", listed[all[3].ID], []job.ID{all[1].ID, all[2].ID})
	equal(w, "dependencies of 5", listed[all[5].ID], []job.ID{all[4].ID})
	equal(w, "jobs with dependencies", len(listed), 2)

	w.apply(store.Changes{DeleteEdges: seqs(all[3], all[5])})
	equal(w, "after drop", from(seqs(all...)...), []job.Edge{edge(1, 0), edge(2, 0), edge(4, 0)})
}
