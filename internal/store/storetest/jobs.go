package storetest

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

var jobTests = []test{
	{"every field comes back", everyField},
	{"times from year 1 to 9999", extremeTimes},
	{"long names", longNames},
	{"insert numbers in order", insertNumbers},
	{"insert tells what is taken", insertTaken},
	{"of jobs with one identity the first is stored", insertFirst},
	{"a text is UTF-8 without NUL", badText},
	{"an identity is free again after delete", deleteFrees},
	{"get returns those that exist", getExisting},
	{"StateFields are what transitions change", updateStateWrites},
	{"StateFields and a body are written together", updateStateAndBodyWrites},
	{"LeaseFields are what may change in a state", updateLeasesWrites},
	{"AllFields are the rest", updateAllWrites},
	{"list filters", listFilters},
	{"list pages", listPages},
	{"list of an owner, newest first", listOwned},
}

func fullJob(key string) *job.Job {
	return &job.Job{
		ID:    job.ID{Contract: "contract", Scope: "scope", Key: key},
		Alias: job.IdentityHash{1, 0, 0xff}, Kind: "kind", Queue: "queue", Owner: "owner",
		Searchable: true,
		State:      "a state", Phase: job.Leased, Priority: -7, OrderTime: start.Add(1),
		DueAt: start.Add(2 * time.Second),
		Lease: 90*time.Second + 5*time.Microsecond, Run: job.RunID{0: 1, 7: 2, 15: 0xff},
		LeaseUntil: start.Add(3 * time.Second),
		Worker:     "worker", Attempts: 4, FailedAttempts: 3, LostAttempts: 7, MaxAttempts: 5,
		Retry: job.RetryPolicy{Strategy: job.Exponential, Base: 5 * time.Microsecond,
			Max: time.Hour, After: 2},
		OpenDeps: 6, FailedDeps: 2, Parent: 1 << 40, Children: 9, Size: 1 << 50,
		Definition: []byte(`{"a": 1}`), Payload: []byte{}, Progress: []byte{0, 0xff, 0xfe, '\''},
		Result: []byte("\xc3\x28"), Failure: nil,
		Trace: "00-trace", CreatedAt: start.Add(4 * time.Second),
		UpdatedAt: start.Add(5 * time.Second),
		StartedAt: start.Add(6 * time.Second), FinishedAt: start.Add(7 * time.Second),
	}
}

// micro is what a store keeps of a job's times.
func micro(j job.Job) *job.Job {
	for _, t := range []*time.Time{&j.OrderTime, &j.DueAt, &j.LeaseUntil, &j.CreatedAt,
		&j.UpdatedAt, &j.StartedAt, &j.FinishedAt} {
		*t = t.Truncate(time.Microsecond)
	}
	return &j
}

func everyField(w *world) {
	for i, j := range []*job.Job{fullJob("full"), {ID: job.ID{Key: "bare"}}} {
		w.insert(j)
		if j.Seq <= 0 {
			w.Fatalf("job %d: no number", i)
		}
		want := micro(*j)
		equal(w, "get", w.get(j), want)
		equal(w, "get by number", w.load(bySeq(j))[0], want)
		equal(w, "list", read(w, func(r store.Reader) ([]*job.Job, error) {
			return r.List(store.Filter{After: j.Seq - 1, Limit: 1})
		})[0], want)

		equal(w, "locked", change(w, func(tx store.Tx) ([]*job.Job, error) {
			return tx.Load(store.Selector{IDs: []job.ID{j.ID}, Lock: true})
		})[0], withBodies(want))
	}
}

func extremeTimes(w *world) {
	for i, at := range []time.Time{{}, time.Time{}.Add(time.Microsecond), time.Unix(0, 0).UTC(),
		time.UnixMicro(-1).UTC(),
		time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)} {
		j := newJob(fmt.Sprint(i))
		j.OrderTime, j.DueAt, j.LeaseUntil, j.CreatedAt, j.UpdatedAt, j.StartedAt,
			j.FinishedAt = at, at, at, at, at, at, at
		w.insert(j)
		equal(w, at.String(), w.get(j), j)
	}
}

func longNames(w *world) {
	long := strings.Repeat("\U0001F40E", 1024)
	a := newJob(long, in("relay", long))
	b := newJob(long+"b", in("relay", long))
	a.Owner, a.Worker, a.Trace, a.Kind = long[:store.MaxNameBytes], long, long, long
	w.insert(a, b)
	equal(w, "job", w.get(a), a)
	got := change(w, func(tx store.Tx) ([]*job.Job, error) {
		return tx.LockReady("relay", long, 10)
	})
	equal(w, "ready", keys(got), []string{a.ID.Key, b.ID.Key})
	equal(w, "settings", change(w, func(tx store.Tx) ([]job.QueueSettings, error) {
		q := job.QueueSettings{Contract: "relay", Queue: long, Paused: true}
		if err := tx.Apply(store.Changes{Queues: []job.QueueSettings{q}}); err != nil {
			return nil, err
		}
		return tx.QueueSettings()
	}), []job.QueueSettings{{Contract: "relay", Queue: long, Paused: true}})
}

func insertNumbers(w *world) {
	var last int64
	for round := range 3 {
		var jobs []*job.Job
		for i := range 50 {
			jobs = append(jobs, newJob(fmt.Sprintf("%d-%d", round, 50-i)))
		}
		w.insert(jobs...)
		for _, j := range jobs {
			if j.Seq <= last {
				w.Fatalf("number %d after %d", j.Seq, last)
			}
			last = j.Seq
		}
	}
	if run := job.NewRunID(last, [16]byte{}); run.Seq() != last {
		w.Errorf("number %d does not fit a run id", last)
	}
}

// insertFirst: in a set that is too large to be sorted in order by chance.
func insertFirst(w *world) {
	const identities, each = 30, 20
	var set []*job.Job
	for i := range identities * each {
		set = append(set, newJob(fmt.Sprint(i*7%identities), func(j *job.Job) {
			j.Payload = fmt.Append(nil, i)
		}))
	}
	taken := change(w, func(tx store.Tx) ([]int, error) { return insert(tx, set...) })
	equal(w, "how many are taken", len(taken), identities*(each-1))
	for _, j := range set[:identities] {
		equal(w, "stored of "+j.ID.Key, w.get(j), j)
	}
}

func insertTaken(w *world) {
	first := newJob("a")
	w.insert(first)
	big := bytes.Repeat([]byte("x"), 20_000)
	with := func(key string) *job.Job { return newJob(key, func(j *job.Job) { j.Payload = big }) }
	set := []*job.Job{with("b"), with("a"), with("c"), with("b"), with("b")}
	taken := change(w, func(tx store.Tx) ([]int, error) { return insert(tx, set...) })
	equal(w, "taken", taken, []int{1, 3, 4})
	for i, j := range set {
		if (j.Seq == 0) != slices.Contains(taken, i) {
			w.Errorf("job %d has number %d", i, j.Seq)
		}
	}
	equal(w, "the first a", w.get(first), first)
	all := read(w, func(r store.Reader) ([]*job.Job, error) { return r.List(store.Filter{}) })
	equal(w, "stored", keys(all), []string{"a", "b", "c"})
	equal(w, "body of b", all[1].Payload, big)

	// Another name is taken like an identity, and free again with its job.
	alias := func(key string) *job.Job {
		return newJob(key, func(j *job.Job) { j.Alias = job.AliasOf("relay", "q", "x") })
	}
	twice := []*job.Job{alias("d"), alias("e"), newJob("f")}
	refused := change(w, func(tx store.Tx) ([]int, error) { return insert(tx, twice...) })
	if len(refused) != 1 || refused[0] > 1 {
		w.Fatalf("taken by alias: %v", refused)
	}
	stored := twice[1-refused[0] : 2-refused[0]]
	equal(w, "taken again", change(w, func(tx store.Tx) ([]int, error) {
		return insert(tx, alias("g"), alias("h"))
	}), []int{0, 1})
	known := func() []*job.Job {
		return w.load(store.Selector{
			Aliases: []job.IdentityHash{twice[0].Alias, {}},
			Bodies:  store.AllBodies,
		})
	}
	equal(w, "by alias", known(), stored)
	w.apply(store.Changes{Delete: stored})
	equal(w, "after delete", known(), []*job.Job(nil))
	w.insert(alias("h"))

	// The same key elsewhere is another job: RL-001.
	w.insert(newJob("a", in("relay", "other")), newJob("a", in("other", "q")))
}

func badText(w *world) {
	for name, spoil := range map[string]func(*job.Job){
		"key": func(j *job.Job) {
			j.ID.Key = "a\x00b"
		}, "queue": func(j *job.Job) { j.Queue = "\xff" },
		"kind": func(j *job.Job) {
			j.Kind = "\x00"
		}, "long owner": func(j *job.Job) { j.Owner = strings.Repeat("o", store.MaxNameBytes+1) },
		"owner": func(j *job.Job) {
			j.Owner = "\x00"
		}, "trace": func(j *job.Job) { j.Trace = "\xc3\x28" },
	} {
		// The transaction goes on: nothing was asked of the database.
		w.update(func(tx store.Tx) error {
			if _, err := insert(tx, newJob(name),
				newJob("bad "+name, spoil)); !job.IsKind(err, job.Invalid) {
				w.Errorf("%s: %v", name, err)
			}
			return nil
		})
	}
	j := newJob("good")
	w.insert(j)
	j.Worker = "\x00"
	if err := w.Update(w.context(), func(tx store.Tx) error {
		return tx.Apply(updates(store.StateFields, j))
	}); !job.IsKind(err, job.Invalid) {
		w.Errorf("save: %v", err)
	}
	equal(w, "stored", keys(read(w, func(r store.Reader) ([]*job.Job, error) {
		return r.List(store.Filter{})
	})), []string{"good"})
}

func deleteFrees(w *world) {
	big := func(j *job.Job) {
		j.Payload, j.Result = bytes.Repeat([]byte("p"), 9000), bytes.Repeat([]byte("r"), 9000)
	}
	a, b := newJob("a", big), newJob("b", big)
	w.insert(a, b)
	w.update(func(tx store.Tx) error {
		locked, err := tx.Load(store.Selector{IDs: []job.ID{a.ID}, Lock: true})
		if err != nil {
			return err
		}
		return tx.Apply(store.Changes{Delete: locked})
	})
	again := newJob("a")
	w.insert(again)
	if again.Seq <= b.Seq {
		w.Errorf("number %d is not new", again.Seq)
	}
	equal(w, "a", w.get(again), again)
	equal(w, "b", w.get(b), b)
}

func getExisting(w *world) {
	var ids []job.ID
	var numbers []int64
	for i := range 100 {
		j := newJob(fmt.Sprint(i))
		ids = append(ids, j.ID)
		if i%2 == 0 {
			w.insert(j)
		}
		numbers = append(numbers, j.Seq, math.MaxInt64)
	}
	w.view(func(r store.Reader) error {
		byID, err1 := r.Load(byID(ids...))
		bySeq, err2 := r.Load(store.Selector{Seqs: numbers, Bodies: store.AllBodies})
		none, err3 := r.Load(store.Selector{Bodies: store.AllBodies})
		if len(byID) != 50 || len(bySeq) != 50 || len(none) != 0 {
			w.Errorf("%d by id, %d by number, %d by nothing", len(byID), len(bySeq), len(none))
		}
		for i, want := range []bool{true, false} {
			if is, err := r.Exists(ids[i]); err != nil || is != want {
				w.Errorf("%d exists: %v, %v", i, is, err)
			}
		}
		for _, err := range []error{err1, err2, err3} {
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// changed returns a job with every field but its identity, number and bodies as
// in fullJob.
func changed(j *job.Job) *job.Job {
	c := *micro(*fullJob(j.ID.Key))
	c.Seq, c.ID, c.OutOfLine = j.Seq, j.ID, j.OutOfLine
	for p := range job.Parts {
		*c.Body(p) = *j.Body(p)
	}
	return &c
}

// keepDefinition gives c the fields of j that are in AllFields alone.
func keepDefinition(c, j *job.Job) {
	c.Alias, c.Kind, c.Queue, c.Owner, c.Priority, c.Lease, c.MaxAttempts, c.Retry = j.Alias,
		j.Kind, j.Queue, j.Owner, j.Priority, j.Lease, j.MaxAttempts, j.Retry
	c.Parent, c.Trace, c.CreatedAt, c.Searchable, c.Children, c.Size = j.Parent, j.Trace,
		j.CreatedAt, j.Searchable, j.Children, j.Size
}

func updateStateWrites(w *world) {
	var jobs, saved []*job.Job
	for i := range 20 {
		jobs = append(jobs, newJob(fmt.Sprint(i), func(j *job.Job) {
			j.Payload = []byte("as it was")
		}))
	}
	w.insert(jobs...)
	for i, j := range jobs[:10] {
		c := changed(j)
		c.Attempts = i
		saved = append(saved, c)
	}
	w.apply(updates(store.StateFields, saved...))
	for i, j := range jobs {
		want := j
		if i < 10 {
			c := *saved[i]
			keepDefinition(&c, j)
			want = &c
		}
		equal(w, "job "+j.ID.Key, w.get(j), want)
	}
}

// updateStateAndBodyWrites writes bodies of every size with the state.
func updateStateAndBodyWrites(w *world) {
	for i, size := range sizes {
		p := job.Part(i % int(job.Parts))
		j, other := newJob(fmt.Sprint("moves", i)), newJob(fmt.Sprint("stays", i))
		for part := range job.Parts {
			*j.Body(part) = []byte("as it was")
		}
		w.insert(j, other)
		c := changed(j)
		*c.Body(p) = bytesOf(size)
		w.apply(updates(store.StateFields|store.BodyField(p), c))
		want := *c
		keepDefinition(&want, j)
		equal(w, "job "+j.ID.Key, w.get(j), &want)
		equal(w, "job "+other.ID.Key, w.get(other), other)
		broken := *c
		broken.Worker = "\x00"
		if err := w.Update(w.context(), func(tx store.Tx) error {
			return tx.Apply(updates(store.StateFields|store.BodyField(p), &broken))
		}); !job.IsKind(err, job.Invalid) {
			w.Errorf("a text that cannot be kept: %v", err)
		}
	}
}

func updateLeasesWrites(w *world) {
	jobs := []*job.Job{newJob("a", func(j *job.Job) {
		j.Phase, j.OpenDeps = job.Waiting, 3
	}), newJob("b", func(j *job.Job) { j.Phase = job.Waiting })}
	w.insert(jobs...)
	c := changed(jobs[0])
	c.OpenDeps = 0
	w.apply(updates(store.LeaseFields, c))
	want := *jobs[0]
	want.LeaseUntil, want.OpenDeps, want.FailedDeps, want.UpdatedAt = c.LeaseUntil, c.OpenDeps,
		c.FailedDeps, c.UpdatedAt
	equal(w, "a", w.get(jobs[0]), &want)
	equal(w, "b", w.get(jobs[1]), jobs[1])
	w.at(time.Hour)
	due := change(w, func(tx store.Tx) ([]*job.Job, error) { return tx.LockDue(10, nil) })
	equal(w, "due once it has no open dependency", len(due), 2)
}

func updateAllWrites(w *world) {
	a, b := newJob("a", func(j *job.Job) { j.Payload = []byte("as it was") }), newJob("b")
	w.insert(a, b)
	c := changed(a)
	c.Phase = job.Ready
	w.apply(updates(store.AllFields, c))
	equal(w, "a", w.get(a), c)
	equal(w, "b", w.get(b), b)
	// The job's place in line went with its queue.
	got := change(w, func(tx store.Tx) ([]*job.Job, error) {
		return tx.LockReady(c.ID.Contract, c.Queue, 10)
	})
	equal(w, "ready in the new queue", keys(got), []string{"a"})
}
