package storetest

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// historyTests prove the promises about what is written beside a job and outlives its changes:
// events, messages of the outbox and dead letters, which keep their order and are never altered;
// and about pruning, which removes what is past its retention and nothing else, oldest first.
var historyTests = []test{
	{"events in the order things happened", events},
	{"the outbox keeps its order", outbox},
	{"the newest message", newestMessage},
	{"dead letters keep the whole job", deadLetters},
	{"dead letters by what they have in common", selectDeadLetters},
	{"groups of dead letters", groupDeadLetters},
	{"prune finished jobs", pruneFinished},
	{"prune keeps unfinished jobs", pruneKeeps},
	{"prune families by size", pruneFamilies},
}

// events proves that Events returns the history of one job in the order in which it was recorded,
// with growing IDs, also where times run backwards and sets hold events of several jobs; and that
// DeleteEvents removes the events of the given jobs alone.
func events(w *world) {
	a, b := newJob("a"), newJob("b")
	w.insert(a, b)
	var want []job.Event
	for i := range 120 {
		e := job.Event{Job: a.Seq, Cause: job.Claimed, Prev: job.State(fmt.Sprint(i)), Next: "n",
			At: start.Add(time.Duration(-i) * time.Second)}
		if i%2 == 0 {
			e.Run = job.NewRunID(a.Seq, [16]byte{9: byte(i)})
		}
		want = append(want, e)
	}
	for i := 0; i < len(want); i += 40 { // more than one statement may take
		mixed := []job.Event{{Job: b.Seq, Cause: job.Due, At: start}}
		w.apply(store.Changes{Events: append(mixed, want[i:i+40]...)})
	}
	got := read(w, func(r store.Reader) ([]job.Event, error) { return r.Events(a.Seq, 0) })
	var last int64
	for i := range got {
		if got[i].ID <= last {
			w.Errorf("event %d has id %d after %d", i, got[i].ID, last)
		}
		last, got[i].ID = got[i].ID, 0
	}
	equal(w, "events", got, want)
	if first := read(w, func(r store.Reader) ([]job.Event, error) {
		return r.Events(a.Seq, 3)
	}); len(first) != 3 || first[2].Prev != want[2].Prev {
		w.Errorf("the first 3 events are %+v", first)
	}

	w.apply(store.Changes{DeleteEvents: []int64{a.Seq}})
	for seq, n := range map[int64]int{a.Seq: 0, b.Seq: 3, 1 << 50: 0} {
		if got := read(w, func(r store.Reader) ([]job.Event, error) {
			return r.Events(seq, 0)
		}); len(got) != n {
			w.Errorf("%d events of %d, want %d", len(got), seq, n)
		}
	}
}

// outbox proves that Messages returns the oldest messages of a job type in the order in which they
// were written, within a transaction too, and that DeleteMessages removes those that were
// published. An ID is never used again, also after the outbox was empty: receivers recognise
// repeats by it.
func outbox(w *world) {
	var want []job.Message
	for i := range 25 {
		want = append(want, job.Message{JobID: job.ID{JobType: "c", Scope: "s",
			Key: fmt.Sprint(i)}, Job: int64(i + 1),
			Cause: job.Failed, Prev: "p", Next: "n", At: start, Body: bytesOf(i*1000 - 1)})
	}
	w.update(func(tx store.Tx) error {
		if err := tx.Apply(store.Changes{Messages: want[:10]}); err != nil {
			return err
		}
		return tx.Apply(store.Changes{Messages: want[10:]})
	})
	// Reads of the outbox also work in an update, as the publisher makes them.
	oldest := func(n int) []job.Message {
		return change(w, func(tx store.Tx) ([]job.Message, error) {
			return tx.Messages([]string{"c"}, n)
		})
	}
	other := job.Message{JobID: job.ID{JobType: "other"}, Job: 1, Cause: job.Failed, At: start}
	w.apply(store.Changes{Messages: []job.Message{other}})
	var got []job.Message
	var last int64
	for page := oldest(10); len(page) > 0; page = oldest(10) {
		var ids []int64
		for _, m := range page {
			if m.ID <= last {
				w.Errorf("message %d after %d", m.ID, last)
			}
			ids, last, m.ID = append(ids, m.ID), m.ID, 0
			got = append(got, m)
		}
		w.apply(store.Changes{DeleteMessages: ids})
	}
	equal(w, "messages", got, want)
	// The outbox is empty now, and its numbers still go on.
	w.apply(store.Changes{Messages: want[:1]})
	if again := oldest(1); again[0].ID <= last {
		w.Errorf("message %d after %d", again[0].ID, last)
	}
	equal(w, "of another contract", len(change(w, func(tx store.Tx) ([]job.Message, error) {
		return tx.Messages([]string{"other"}, 10)
	})), 1)
}

// newestMessage proves that NewestMessage is the highest ID of all job types, and 0 of an empty
// outbox.
func newestMessage(w *world) {
	newest := func() int64 {
		return read(w, func(r store.Reader) (int64, error) { return r.NewestMessage() })
	}
	equal(w, "newest of none", newest(), int64(0))
	w.apply(store.Changes{Messages: []job.Message{
		{JobID: job.ID{JobType: "a"}, Cause: job.Failed, At: start},
		{JobID: job.ID{JobType: "b"}, Cause: job.Failed, At: start},
	}})
	all := read(w, func(r store.Reader) ([]job.Message, error) {
		return r.Messages([]string{"a", "b"}, 10)
	})
	equal(w, "newest of two", newest(), all[1].ID)
	w.apply(store.Changes{DeleteMessages: []int64{all[1].ID}})
	equal(w, "newest then", newest(), all[0].ID)
}

// deadLetters proves that a dead letter keeps its whole job, bodies and number included, that
// DeadLetters pages by ID within one job type, and that DeleteDeadLetters removes the given ones
// alone.
func deadLetters(w *world) {
	full := *micro(*fullJob("full"))
	full.Seq, full.Payload = 77, bytesOf(20_000)
	deadLetters := []job.DeadLetter{{Job: full, Cause: job.FailedForGood, CreatedAt: start},
		{Job: *newJob("b", in("other", "q")), Cause: job.Expired, CreatedAt: start}}
	for range 4 {
		deadLetters = append(deadLetters, job.DeadLetter{Job: full, Cause: job.ExpiredForGood,
			CreatedAt: start.Add(time.Second)})
	}
	w.apply(store.Changes{DeadLetters: deadLetters})
	var got []job.DeadLetter
	for after := int64(0); ; {
		page := read(w, func(r store.Reader) ([]job.DeadLetter, error) {
			return r.DeadLetters(store.DeadLetterSelector{JobType: "contract", After: after,
				Limit: 2})
		})
		if len(page) == 0 {
			break
		}
		for _, l := range page {
			if l.ID <= after {
				w.Errorf("dead letter %d after %d", l.ID, after)
			}
			after = l.ID
			got = append(got, l)
		}
	}
	if len(got) != 5 {
		w.Fatalf("%d dead letters", len(got))
	}
	first := got[0].ID
	equal(w, "fingerprint", got[0].StoredFingerprint, deadLetters[0].Fingerprint())
	got[0].ID, got[0].StoredFingerprint = 0, ""
	equal(w, "dead letter", got[0], deadLetters[0])
	w.apply(store.Changes{DeleteDeadLetters: []int64{first, got[1].ID}})
	left := read(w, func(r store.Reader) ([]job.DeadLetter, error) {
		return r.DeadLetters(store.DeadLetterSelector{JobType: "contract", Limit: 10})
	})
	equal(w, "left", len(left), 3)
}

// pruneFinished proves that PruneFinished removes up to n jobs that finished before a time, oldest
// first though they were inserted in the opposite order, and with them their events and the edges
// from them.
func pruneFinished(w *world) {
	var jobs []*job.Job
	for i := range 10 {
		jobs = append(jobs, newJob(fmt.Sprint(i),
			finished("x", start.Add(time.Duration(10-i)*time.Second)), func(j *job.Job) {
				j.Payload = bytesOf(9000)
			}))
	}
	w.insert(jobs...)
	// jobs[9] finished first and depends on jobs[0], which finished last and is not pruned.
	c := store.Changes{Edges: []job.Edge{{Dependent: jobs[9].Seq, Dependency: jobs[0].Seq}}}
	for _, j := range jobs {
		c.Events = append(c.Events, job.Event{Job: j.Seq, Cause: job.Due, At: start})
	}
	w.apply(c)
	prune := func(n int) int {
		return change(w, func(tx store.Tx) (int, error) {
			return pruned(tx.PruneFinished("x", start.Add(5*time.Second), 0, n))
		})
	}
	equal(w, "the oldest three", prune(3), 3)
	listed := func() []string {
		return keys(read(w, func(r store.Reader) ([]*job.Job, error) {
			return Listed(r, store.Filter{})
		}))
	}
	equal(w, "left", listed(), []string{"0", "1", "2", "3", "4", "5", "6"})
	equal(w, "the fourth", prune(3), 1)
	equal(w, "no more", prune(3), 0)
	for i, j := range jobs {
		n := 1
		if i >= 6 {
			n = 0
		}
		equal(w, fmt.Sprint("events of ", i),
			len(read(w, func(r store.Reader) ([]job.Event, error) {
				return r.Events(j.Seq, 0)
			})), n)
	}
	equal(w, "edges", len(read(w, func(r store.Reader) ([]job.Edge, error) {
		return r.Edges(store.EdgeSelector{From: seqs(jobs...)})
	})), 0)
	equal(w, "edges to", len(read(w, func(r store.Reader) ([]job.Edge, error) {
		return r.Edges(store.EdgeSelector{To: seqs(jobs...)})
	})), 0)
}

// pruned returns how many jobs a PruneFinished removed, children included.
func pruned(p store.Pruned, err error) (int, error) { return p.Jobs + p.Children, err }

// pruneFamilies proves that children go before their parents, up to n in a call that then removes
// nothing else, and that with a number of bytes the oldest jobs go until their sizes add up to it.
// Size follows. A finished job of the children's job type that has no parent stays.
func pruneFamilies(w *world) {
	sized := func(bytes int64) func(*job.Job) { return func(j *job.Job) { j.Size = bytes } }
	parents := []*job.Job{newJob("a", finished("x", start), sized(100)),
		newJob("b", finished("x", start.Add(time.Second)), sized(50)),
		newJob("c", finished("x", start.Add(2*time.Second)), sized(25)),
		newJob("d", in("x", "q"), sized(5))}
	w.insert(parents...)
	for i := range 5 {
		w.insert(newJob(fmt.Sprint("child", i), finished("part", start), func(j *job.Job) {
			j.Parent = parents[0].Seq
		}))
	}
	w.insert(newJob("orphan", finished("part", start)))
	size := func() int64 {
		return change(w, func(tx store.Tx) (int64, error) { return tx.Size("x") })
	}
	equal(w, "size", size(), int64(180))
	equal(w, "size of nothing", change(w, func(tx store.Tx) (int64, error) {
		return tx.Size("none")
	}), int64(0))
	// a has 100 bytes and b 50, so both go for 101 bytes; c would be one too many.
	for _, want := range []store.Pruned{{Children: 3}, {Children: 2}, {Jobs: 2}} {
		got := change(w, func(tx store.Tx) (store.Pruned, error) {
			return tx.PruneFinished("x", start.Add(time.Hour), 101, 3)
		})
		equal(w, "pruned", len(got.Removed), got.Jobs+got.Children)
		got.Removed = nil
		equal(w, "pruned", got, want)
	}
	equal(w, "left", keys(read(w, func(r store.Reader) ([]*job.Job, error) {
		return Listed(r, store.Filter{})
	})), []string{"c", "d", "orphan"})
	equal(w, "size then", size(), int64(30))
}

// pruneKeeps proves that PruneFinished removes no job of another job type and none that has not
// finished, in any of the phases waiting, ready and leased.
func pruneKeeps(w *world) {
	w.insert(newJob("other", finished("y", start)), newJob("ready", in("x", "q")),
		newJob("leased", in("x", "q"), leased(start, start)),
		newJob("waiting", in("x", "q"), waiting(start, 0)))
	equal(w, "pruned", change(w, func(tx store.Tx) (int, error) {
		return pruned(tx.PruneFinished("x", start.Add(time.Hour), 0, 10))
	}), 0)
	equal(w, "left", len(read(w, func(r store.Reader) ([]*job.Job, error) {
		return Listed(r, store.Filter{})
	})), 4)
}
