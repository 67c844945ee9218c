package storetest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// deadLetterOf returns a dead letter of a job that stays stored, with an error.
func deadLetterOf(key string, seq int64, failure string, at time.Time) job.DeadLetter {
	j := newJob(key)
	j.Seq, j.State, j.Phase, j.Failure = seq, "failed", job.Done, []byte(failure)
	return job.DeadLetter{Job: *micro(*j), Cause: job.FailedForGood, CreatedAt: at}
}

// deadLettersBy returns the keys of the jobs of dead letters that are selected.
func (w *world) deadLettersBy(s store.DeadLetterSelector) (all []string) {
	for _, l := range read(w, func(r store.Reader) ([]job.DeadLetter, error) {
		return r.DeadLetters(s)
	}) {
		all = append(all, l.Job.ID.Key)
	}
	return all
}

// selectDeadLetters proves that DeadLetters selects by job, also one that is gone, by fingerprint
// and by age, the oldest first; that UpdateDeadLetters keeps a replay; and that of the open ones of
// jobs no job is read.
func selectDeadLetters(w *world) {
	var deadLetters []job.DeadLetter
	for i := range 6 { // the first is the newest
		deadLetters = append(deadLetters, deadLetterOf(fmt.Sprint(i), int64(10+i%2),
			fmt.Sprintf(`{"error":"line %d of %s"}`, i, []string{"a", "b", "c"}[i/2]),
			start.Add(time.Duration(-i)*time.Second)))
	}
	gone := deadLetterOf("gone", 10, "x", start.Add(-time.Hour))
	gone.Job.State = job.StateNone
	other := deadLetterOf("other", 77, "x", start.Add(-time.Hour))
	other.Job.ID.JobType = "other"
	w.apply(store.Changes{DeadLetters: append(deadLetters, gone, other)})
	one := read(w, func(r store.Reader) ([]job.DeadLetter, error) {
		return r.DeadLetters(store.DeadLetterSelector{JobType: "relay", Limit: 1})
	})[0]
	equal(w, "by id", w.deadLettersBy(store.DeadLetterSelector{IDs: []int64{one.ID, 1 << 40}}),
		[]string{one.Job.ID.Key})
	equal(w, "of jobs", w.deadLettersBy(store.DeadLetterSelector{Jobs: []int64{10, 99}}),
		[]string{"0", "2", "4", "gone"})
	alike := store.DeadLetterSelector{Fingerprint: deadLetters[2].Fingerprint(), Limit: 9}
	equal(w, "alike", w.deadLettersBy(alike), []string{"2", "3"})
	equal(w, "all", len(w.deadLettersBy(store.DeadLetterSelector{JobType: "relay", Limit: 9})), 7)
	old := store.DeadLetterSelector{JobType: "relay", Before: start.Add(-2 * time.Second), Limit: 3}
	aged := read(w, func(r store.Reader) ([]job.DeadLetter, error) { return r.DeadLetters(old) })
	equal(w, "old", []time.Time{aged[0].CreatedAt, aged[1].CreatedAt, aged[2].CreatedAt},
		[]time.Time{gone.CreatedAt, deadLetters[5].CreatedAt, deadLetters[4].CreatedAt})
	equal(w, "their queue", aged[0].Job.Queue, gone.Job.Queue)
	equal(w, "none is of an older schema",
		len(w.deadLettersBy(store.DeadLetterSelector{JobType: "relay", WithoutFingerprint: true,
			Limit: 9})), 0)

	w.selectDeadLettersOfQueue()

	first := read(w, func(r store.Reader) ([]job.DeadLetter, error) { return r.DeadLetters(alike) })[0]
	if !first.IsOpen() || !first.IsJobStored() {
		w.Errorf("dead letter %+v is not open, or not that of a stored job", first)
	}
	first.ReplayedAt, first.ReplayedAs = start.Add(time.Minute), 12
	w.apply(store.Changes{UpdateDeadLetters: []job.DeadLetter{first}})
	then := read(w, func(r store.Reader) ([]job.DeadLetter, error) { return r.DeadLetters(alike) })
	equal(w, "replayed", then[0], first)
	if !then[1].IsOpen() {
		w.Errorf("dead letter %+v was not replayed", then[1])
	}
	open := read(w, func(r store.Reader) ([]job.DeadLetter, error) {
		return r.DeadLetters(store.DeadLetterSelector{Jobs: []int64{10, 77}, Open: true})
	})
	equal(w, "open ones of jobs", len(open), 4)
	for i, l := range open {
		want := []job.Job{deadLetters[0].Job, deadLetters[4].Job, gone.Job, other.Job}[i]
		equal(w, "what is read of an open one", l.Job, job.Job{Seq: want.Seq, Queue: want.Queue,
			ID: job.ID{JobType: want.ID.JobType}})
	}
}

// selectDeadLettersOfQueue proves that dead letters are selected by queue, whose name may be too
// long for an index, and that of bare ones no job is read.
func (w *world) selectDeadLettersOfQueue() {
	long := strings.Repeat("ä", 3000)
	var deadLetters []job.DeadLetter
	for i, queue := range []string{"short", long + "1", long + "2", long + "1", "short", "Short"} {
		l := deadLetterOf(fmt.Sprint("of queue ", i), int64(100+i), `{"error":"of a queue"}`, start)
		l.Job.Queue = queue
		deadLetters = append(deadLetters, l)
	}
	deadLetters[4].Job.ID.JobType = "other"
	w.apply(store.Changes{DeadLetters: deadLetters})
	s := store.DeadLetterSelector{JobType: "relay", Queue: long + "1", Limit: 9}
	equal(w, "of a long queue", w.deadLettersBy(s), []string{"of queue 1", "of queue 3"})
	s.Queue = "short"
	equal(w, "of a queue", w.deadLettersBy(s), []string{"of queue 0"})
	s.Queue = long[:100]
	equal(w, "of a part of a name", len(w.deadLettersBy(s)), 0)
	s.Queue, s.WithoutJobs, s.Limit = long+"1", true, 1
	for _, want := range []job.DeadLetter{deadLetters[1], deadLetters[3]} {
		got := read(w, func(r store.Reader) ([]job.DeadLetter, error) { return r.DeadLetters(s) })[0]
		equal(w, "what is read of a bare one", got, job.DeadLetter{ID: got.ID, CreatedAt: start,
			StoredFingerprint: want.Fingerprint(), Cause: want.Cause,
			Job: job.Job{Seq: want.Job.Seq,
				Queue: want.Job.Queue, ID: job.ID{JobType: "relay"}}})
		s.After = got.ID
	}
	for _, bare := range []store.DeadLetterSelector{
		{JobType: "other", After: s.After, Limit: 9, WithoutJobs: true},
		{Fingerprint: deadLetters[4].Fingerprint(), Limit: 9, WithoutJobs: true}} {
		got := read(w, func(r store.Reader) ([]job.DeadLetter, error) {
			return r.DeadLetters(bare)
		})
		equal(w, "bare ones", len(got), 1)
		equal(w, "the job of a bare one", got[0].Job.Seq, deadLetters[4].Job.Seq)
	}
}

// groupDeadLetters proves that DeadLetterGroups counts the open dead letters of a job type alone,
// and that it looks at no more than the newest ones.
func groupDeadLetters(w *world) {
	var deadLetters []job.DeadLetter
	for i := range 9 {
		deadLetters = append(deadLetters, deadLetterOf(fmt.Sprint(i), int64(i+1),
			fmt.Sprintf(`{"type":"t%d","error":"took %d s"}`, i%3, i),
			start.Add(time.Duration(i)*time.Second)))
	}
	deadLetters[8].Job.ID.JobType = "other"
	w.apply(store.Changes{DeadLetters: deadLetters})
	stored := read(w, func(r store.Reader) ([]job.DeadLetter, error) {
		return r.DeadLetters(store.DeadLetterSelector{JobType: "relay", Limit: 9})
	})
	stored[0].ReplayedAt, stored[0].ReplayedAs = start, 1
	w.apply(store.Changes{UpdateDeadLetters: stored[:1]})
	between := func(after, upTo int64, limit int) []job.DeadLetterGroup {
		all := read(w, func(r store.Reader) ([]job.DeadLetterGroup, error) {
			return r.DeadLetterGroups("relay", after, upTo, limit)
		})
		slices.SortFunc(all, func(a, b job.DeadLetterGroup) int {
			return cmp.Compare(a.LastID, b.LastID)
		})
		return all
	}
	groups := func(limit int) []job.DeadLetterGroup { return between(0, math.MaxInt64, limit) }
	group := func(count, first, last int) job.DeadLetterGroup {
		return job.DeadLetterGroup{Fingerprint: deadLetters[last].Fingerprint(),
			Count: int64(count), FirstAt: deadLetters[first].CreatedAt,
			LastAt: deadLetters[last].CreatedAt, LastID: stored[last].ID}
	}
	equal(w, "all", groups(100), []job.DeadLetterGroup{group(2, 2, 5), group(2, 3, 6),
		group(3, 1, 7)})
	equal(w, "the newest four", groups(4), []job.DeadLetterGroup{group(1, 5, 5), group(1, 6, 6),
		group(2, 4, 7)})
	equal(w, "a part", between(stored[2].ID, stored[5].ID, 100), []job.DeadLetterGroup{
		group(1, 3, 3), group(1, 4, 4), group(1, 5, 5)})
	equal(w, "the newest of a part", between(0, stored[5].ID, 1), []job.DeadLetterGroup{
		group(1, 5, 5)})
	recent := read(w, func(r store.Reader) ([]job.DeadLetter, error) {
		return r.DeadLetters(store.DeadLetterSelector{JobType: "relay", NewestFirst: true,
			Before: deadLetters[4].CreatedAt, Limit: 2})
	})
	equal(w, "before a time, the newest first", []int64{recent[0].ID, recent[1].ID},
		[]int64{stored[3].ID, stored[2].ID})
}
