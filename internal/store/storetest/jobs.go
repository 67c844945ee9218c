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

// jobTests prove what the port promises of the job itself: every field is stored and read back, an
// identity is unique while its job exists, numbers grow, texts are checked, and each group of
// Fields writes its own columns. The tests named after List are in list.go.
var jobTests = []test{
	{"every field comes back", everyField},
	{"times from year 1 to 9999", extremeTimes},
	{"long names", longNames},
	{"keys of every form", keysOfEveryForm},
	{"insert numbers in order", insertNumbers},
	{"insert reports what is taken", insertExisting},
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
	{"list by further members", listMembers}, {"list of a scan", listScans},
	{"list what is dead", listDead}, {"list what runs", listRuns},
	{"list what indexes have", listIndexes},
	{"CountUpTo groups the jobs of a phase", countGroups},
}

// fullJob returns a job with a value in every field but those of the store, Seq and OutOfLine. The
// values are chosen by hand to find conversions that lose something: a time between two
// microseconds, a negative priority, integers above 32 bits, bytes that are no UTF-8, a body that
// is empty and one that is missing.
func fullJob(key string) *job.Job {
	return &job.Job{
		ID:    job.ID{JobType: "contract", Scope: "scope", Key: key},
		Alias: job.IdentityHash{1, 0, 0xff}, Kind: "kind", Queue: "queue", Owner: "owner",
		Searchable: true,
		State:      "a state", Phase: job.Leased, Priority: -7, OrderTime: start.Add(1),
		DueAt: start.Add(2 * time.Second),
		Lease: 90*time.Second + 5*time.Microsecond, Run: job.RunID{0: 1, 7: 2, 15: 0xff},
		LeaseUntil: start.Add(3 * time.Second),
		Worker:     "worker", Attempts: 4, FailedAttempts: 3, LostAttempts: 7, MaxAttempts: 5,
		Retry: job.RetryPolicy{Strategy: job.Exponential, Base: 5 * time.Microsecond,
			Max: time.Hour, FailedBefore: 2},
		OpenDeps: 6, FailedDeps: 2, Parent: 1 << 40, Children: 9, Size: 1 << 50,
		Definition: []byte(`{"a": 1}`), Payload: []byte{}, Progress: []byte{0, 0xff, 0xfe, '\''},
		Result: []byte("\xc3\x28"), Failure: nil,
		Trace: "00-trace", Callback: "https://a/b", CreatedAt: start.Add(4 * time.Second),
		UpdatedAt: start.Add(5 * time.Second),
		StartedAt: start.Add(6 * time.Second), FinishedAt: start.Add(7 * time.Second),
	}
}

// micro returns what a store keeps of a job: its times are cut to microseconds.
func micro(j job.Job) *job.Job {
	for _, t := range []*time.Time{&j.OrderTime, &j.DueAt, &j.LeaseUntil, &j.CreatedAt,
		&j.UpdatedAt, &j.StartedAt, &j.FinishedAt} {
		*t = t.Truncate(time.Microsecond)
	}
	return &j
}

// everyField proves that a job comes back with every field, by identity, by number, from List and,
// without its bodies, from a Load that locks it. A job with nothing but a key comes back as bare.
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
			return Listed(r, store.Filter{After: j.Seq - 1, Limit: 1})
		})[0], want)

		equal(w, "locked", change(w, func(tx store.Tx) ([]*job.Job, error) {
			return tx.Load(store.Selector{IDs: []job.ID{j.ID}, Lock: true})
		})[0], withBodies(want))
	}
}

// extremeTimes proves that times from the zero time, which means "not set", to the last
// microsecond of the year 9999 come back exactly, also those before 1970.
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

// longNames proves that the names of a job may be longer than an index entry: queue and key have
// 1024 characters of four bytes each (RL-002, RL-003), and two keys differ in their last character
// alone. The jobs are found by identity and claimed by queue, and the queue has settings.
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
		q := job.QueueSettings{JobType: "relay", Queue: long, Paused: true}
		if err := tx.Apply(store.Changes{Queues: []job.QueueSettings{q}}); err != nil {
			return nil, err
		}
		return tx.QueueSettings()
	}), []job.QueueSettings{{JobType: "relay", Queue: long, Paused: true}})
}

// insertNumbers proves that Insert numbers the jobs of a set in its order, with numbers above those
// of earlier sets. The keys of a set descend, so that numbers in the order of keys are noticed. A
// number must fit a run id, which begins with it.
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

// keysOfEveryForm proves that jobs are found by keys that differ after a common beginning alone,
// and by keys with characters that a language of queries or texts may give a meaning.
func keysOfEveryForm(w *world) {
	forms := []string{"", "1", "01", "1e3", "null", "[]", `"`, `\`, `\u0041`, "'", "%", "_",
		"a\x01b", "<&>", "\u2028", "é", "e\u0301", "\U0001f600", " a", "a ", "A", "a",
		"018f3c6e-7d2a-7c3b-9e1f-0123456789ab", "018f3c6e-7d2a-7c3b-9e1f-0123456789ac"}
	for _, n := range []int{23, 24, 25} {
		forms = append(forms, strings.Repeat("x", n), strings.Repeat("é", n),
			strings.Repeat("\U0001f600", n))
	}
	for i := range 200 {
		forms = append(forms, fmt.Sprintf("%sbehind-the-beginning-%d", strings.Repeat("é", 24), i))
	}
	var set []*job.Job
	for _, key := range forms {
		set = append(set, newJob(key))
	}
	w.insert(set...)
	ids := make([]job.ID, len(set))
	for i, j := range set {
		equal(w, "found by "+j.ID.Key, w.get(j), j)
		ids[i] = j.ID
	}
	equal(w, "found together", len(w.load(byID(ids...))), len(ids))
	again := change(w, func(tx store.Tx) ([]int, error) { return insert(tx, set...) })
	equal(w, "taken", len(again), len(set))
	missing := job.ID{JobType: ids[0].JobType, Scope: ids[0].Scope, Key: strings.Repeat("é", 26)}
	equal(w, "not there", len(w.load(byID(missing))), 0)
}

// insertFirst proves that of several jobs with one identity in a set the first is stored and the
// others are taken. The set is too large to be sorted in order by chance.
func insertFirst(w *world) {
	const identities, each = 30, 20
	var set []*job.Job
	for i := range identities * each {
		set = append(set, newJob(fmt.Sprint(i*7%identities), func(j *job.Job) {
			j.Payload = fmt.Append(nil, i)
		}))
	}
	existing := change(w, func(tx store.Tx) ([]int, error) { return insert(tx, set...) })
	equal(w, "how many are taken", len(existing), identities*(each-1))
	for _, j := range set[:identities] {
		equal(w, "stored of "+j.ID.Key, w.get(j), j)
	}
}

// insertExisting proves what the port says of a taken identity or alias, in the store or earlier in
// the set: the job gets Seq 0, Taken names it, the job that has the name is as before, and the
// others are stored with their large bodies. Of two jobs with one alias either may be stored.
// Identity and alias are free again once their job is deleted.
func insertExisting(w *world) {
	// One job is in the store; in the set, its identity comes again, and b comes three times.
	first := newJob("a")
	w.insert(first)
	big := bytes.Repeat([]byte("x"), 20_000)
	with := func(key string) *job.Job { return newJob(key, func(j *job.Job) { j.Payload = big }) }
	set := []*job.Job{with("b"), with("a"), with("c"), with("b"), with("b")}
	existing := change(w, func(tx store.Tx) ([]int, error) { return insert(tx, set...) })
	equal(w, "taken", existing, []int{1, 3, 4})
	for i, j := range set {
		if (j.Seq == 0) != slices.Contains(existing, i) {
			w.Errorf("job %d has number %d", i, j.Seq)
		}
	}
	equal(w, "the first a", w.get(first), first)
	all := read(w, func(r store.Reader) ([]*job.Job, error) { return Listed(r, store.Filter{}) })
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
	// A zero alias means none, so the selector finds no job by it.
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

	// RL-001: the same key in another queue, or in another job type, is another job.
	w.insert(newJob("a", in("relay", "other")), newJob("a", in("other", "q")))
}

// badText proves that a text which one of the databases cannot keep is Invalid on both: PostgreSQL
// stores no NUL character and checks UTF-8. It tries texts of the identity, the definition and the
// state, and the length of the owner, on insert and on update; nothing of the set is stored.
func badText(w *world) {
	for name, invalidate := range map[string]func(*job.Job){
		"key": func(j *job.Job) {
			j.ID.Key = "a\x00b"
		}, "queue": func(j *job.Job) { j.Queue = "\xff" },
		"kind": func(j *job.Job) {
			j.Kind = "\x00"
		}, "long owner": func(j *job.Job) { j.Owner = strings.Repeat("o", store.MaxNameBytes+1) },
		"owner": func(j *job.Job) {
			j.Owner = "\x00"
		}, "trace": func(j *job.Job) { j.Trace = "\xc3\x28" },
		"callback": func(j *job.Job) { j.Callback = "\x00" },
	} {
		// The transaction goes on: nothing was asked of the database.
		w.update(func(tx store.Tx) error {
			if _, err := insert(tx, newJob(name),
				newJob("bad "+name, invalidate)); !job.IsKind(err, job.Invalid) {
				w.Errorf("%s: %v", name, err)
			}
			return nil
		})
	}
	j := newJob("good")
	w.insert(j)
	j.Worker = "\x00"
	if err := w.store.Update(w.context(), func(tx store.Tx) error {
		return tx.Apply(updates(store.StateFields, j))
	}); !job.IsKind(err, job.Invalid) {
		w.Errorf("save: %v", err)
	}
	equal(w, "stored", keys(read(w, func(r store.Reader) ([]*job.Job, error) {
		return Listed(r, store.Filter{})
	})), []string{"good"})
}

// deleteFrees proves that the identity of a deleted job may be used again, for a job with a new
// number and without the bodies of the old one, and that the bodies of another job stay.
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

// getExisting proves that Load returns those of the selected jobs that exist and leaves out the
// others without an error, that a Selector without a key selects none, and what Exists reports.
func getExisting(w *world) {
	var ids []job.ID
	var numbers []int64
	for i := range 100 {
		j := newJob(fmt.Sprint(i))
		ids = append(ids, j.ID)
		if i%2 == 0 {
			w.insert(j)
		}
		// Every other job is not stored: its Seq is 0, which no job has.
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

// changed returns a job with the identity, number and bodies of j and every other field as in
// fullJob.
func changed(j *job.Job) *job.Job {
	c := *micro(*fullJob(j.ID.Key))
	c.Seq, c.ID, c.OutOfLine = j.Seq, j.ID, j.OutOfLine
	for p := range job.Bodies {
		*c.Body(p) = *j.Body(p)
	}
	return &c
}

// keepDefinition gives c the fields of j that are in AllFields alone, as an update of
// StateFields leaves them.
func keepDefinition(c, j *job.Job) {
	c.Alias, c.Kind, c.Queue, c.Owner, c.Priority, c.Lease, c.MaxAttempts, c.Retry = j.Alias,
		j.Kind, j.Queue, j.Owner, j.Priority, j.Lease, j.MaxAttempts, j.Retry
	c.Parent, c.Trace, c.CreatedAt, c.Searchable, c.Children, c.Size, c.OrderTime = j.Parent,
		j.Trace, j.CreatedAt, j.Searchable, j.Children, j.Size, j.OrderTime
	c.Callback = j.Callback
}

// updateStateWrites proves that StateFields writes the fields that transitions change, each job its
// own, and leaves the definition and the bodies as they were; jobs outside of the set stay
// untouched.
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

// updateStateAndBodyWrites proves that StateFields and a body of any size are written together: the
// state, the one body and nothing else, of the one job. A text that cannot be stored is Invalid in
// this combination too, which has a statement of its own.
func updateStateAndBodyWrites(w *world) {
	for i, size := range sizes {
		p := job.Body(i % int(job.Bodies))
		j, other := newJob(fmt.Sprint("moves", i)), newJob(fmt.Sprint("stays", i))
		for part := range job.Bodies {
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
		if err := w.store.Update(w.context(), func(tx store.Tx) error {
			return tx.Apply(updates(store.StateFields|store.BodyField(p), &broken))
		}); !job.IsKind(err, job.Invalid) {
			w.Errorf("a text that cannot be kept: %v", err)
		}
	}
}

// updateLeasesWrites proves that LeaseFields writes the end of the lease, the counters of relatives
// and UpdatedAt alone, and that LockDue finds a job whose last open dependency was counted down by
// it.
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

// updateAllWrites proves that AllFields writes all but identity and bodies, and that a job which
// changes its queue is claimed from the new one.
func updateAllWrites(w *world) {
	a, b := newJob("a", func(j *job.Job) { j.Payload = []byte("as it was") }), newJob("b")
	w.insert(a, b)
	c := changed(a)
	c.Phase = job.Ready
	w.apply(updates(store.AllFields, c))
	equal(w, "a", w.get(a), c)
	equal(w, "b", w.get(b), b)
	// The job is in the claim order of its new queue.
	got := change(w, func(tx store.Tx) ([]*job.Job, error) {
		return tx.LockReady(c.ID.JobType, c.Queue, 10)
	})
	equal(w, "ready in the new queue", keys(got), []string{"a"})
}
