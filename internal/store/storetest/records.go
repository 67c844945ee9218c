package storetest

import (
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// recordTests prove what the port promises of records: what is written is read, by key or by owner;
// a record whose time is over does not exist, whether it was pruned or not; and names have a limit.
var recordTests = []test{
	{"records are put, read and dropped", records},
	{"records are listed by owner", listRecords},
	{"records end", recordsEnd},
	{"the oldest records are pruned first", oldestRecords},
	{"names of records are bounded", recordNames},
}

// put stores records in an update of their own.
func (w *world) put(all ...job.Record) {
	w.Helper()
	w.apply(store.Changes{Records: all})
}

// records returns those of the records that exist, by key.
func (w *world) records(kind string, keys ...string) []job.Record {
	w.Helper()
	return read(w, func(r store.Reader) ([]job.Record, error) {
		return r.Records(store.RecordSelector{Kind: kind, Keys: keys})
	})
}

// record returns a record with the times that a store gives it when its clock shows start.
func record(key string, with ...func(*job.Record)) job.Record {
	r := job.Record{Kind: "kind", Key: key, Owner: "owner", Body: []byte(key), CreatedAt: start,
		UpdatedAt: start}
	for _, f := range with {
		f(&r)
	}
	return r
}

// records proves that Records returns those that exist by key, that a record which is replaced
// keeps its CreatedAt while owner, body and UpdatedAt are new, that a nil body becomes an empty
// one, and that DeleteRecords concerns one kind: the record of another kind with the same key
// stays.
func records(w *world) {
	a, b := record("a"), record("b", func(r *job.Record) { r.Body = []byte{0, 0xff} })
	w.put(b, a, record("a", func(r *job.Record) { r.Kind = "other" }))
	w.put()
	equal(w, "both", w.records("kind", "b", "a", "c"), []job.Record{a, b})
	equal(w, "none", w.records("kind"), []job.Record(nil))

	a.Owner, a.Body, a.UpdatedAt = "new", []byte{}, w.at(time.Second)
	a.CreatedAt = a.UpdatedAt // that it was made earlier stays
	w.put(job.Record{Kind: "kind", Key: "a", Owner: "new"})
	a.CreatedAt = start
	equal(w, "replaced", w.records("kind", "a"), []job.Record{a})

	w.apply(store.Changes{DeleteRecords: []store.RecordKey{{Kind: "kind", Key: "a"},
		{Kind: "kind", Key: "none"}}})
	equal(w, "dropped", w.records("kind", "a", "b"), []job.Record{b})
	equal(w, "of another kind", len(w.records("other", "a")), 1)
}

// listRecords proves that a selector without keys lists the records of one owner and kind by key,
// above After and within Limit, or with AnyOwner those of all. No owner is an owner too.
func listRecords(w *world) {
	w.put(record("c"), record("a"), record("b", func(r *job.Record) {
		r.Owner = ""
	}), record("d"), record("e", func(r *job.Record) { r.Kind = "other" }))
	list := func(owner, after string, n int) (keys []string) {
		for _, r := range read(w, func(r store.Reader) ([]job.Record, error) {
			return r.Records(store.RecordSelector{
				Kind:  "kind",
				Owner: owner,
				After: after,
				Limit: n,
			})
		}) {
			keys = append(keys, r.Key)
		}
		return keys
	}
	equal(w, "all", list("owner", "", 10), []string{"a", "c", "d"})
	equal(w, "two", list("owner", "", 2), []string{"a", "c"})
	equal(w, "after", list("owner", "a", 10), []string{"c", "d"})
	equal(w, "nobody's", list("", "", 10), []string{"b"})
	all := read(w, func(r store.Reader) ([]job.Record, error) {
		return r.Records(store.RecordSelector{Kind: "kind", AnyOwner: true, After: "a", Limit: 2})
	})
	equal(w, "anybody's", []string{all[0].Key, all[1].Key}, []string{"b", "c"})
	each := read(w, func(r store.Reader) ([]job.Record, error) {
		return r.Records(store.RecordSelector{Kind: "kind", Owners: []string{"owner", "none", ""},
			Limit: 2})
	})
	equal(w, "two of each", []string{each[0].Key, each[1].Key, each[2].Key},
		[]string{"b", "a", "c"})
	equal(w, "no more of each", len(each), 3)
}

// recordsEnd proves that a record ends at its ExpiresAt, that moment included: from then on it is
// neither read nor listed, though it is stored until PruneRecords removes it. A record that is
// written in the place of one that is over is a new one with its own CreatedAt, and is not pruned.
func recordsEnd(w *world) {
	until := func(d time.Duration) func(*job.Record) {
		return func(r *job.Record) { r.ExpiresAt = start.Add(d) }
	}
	w.put(record("a", until(time.Minute)), record("b", until(time.Second)), record("c"),
		record("d", until(time.Hour)))
	prune := func(n int) int {
		return change(w, func(tx store.Tx) (int, error) { return tx.PruneRecords(n) })
	}
	equal(w, "nothing is over", prune(10), 0)
	w.at(time.Minute)
	equal(w, "what is over is not there", len(w.records("kind", "a", "b", "c", "d")), 2)
	equal(w, "nor in a list", len(read(w, func(r store.Reader) ([]job.Record, error) {
		return r.Records(store.RecordSelector{Kind: "kind", Owner: "owner", Limit: 10})
	})), 2)
	w.put(record("a", func(r *job.Record) { r.ExpiresAt = start.Add(time.Hour) }))
	equal(w, "one anew", w.records("kind", "a")[0].CreatedAt, start.Add(time.Minute))
	equal(w, "pruned", []int{prune(1), prune(10), prune(10)}, []int{1, 0, 0})
	equal(w, "left", len(w.records("kind", "a", "b", "c", "d")), 3)
}

// oldestRecords proves that PruneRecords removes the longest expired first: it prunes one record at
// a time, and moves the clock back in between, to where all that are stored can be read.
func oldestRecords(w *world) {
	for key, seconds := range map[string]int{"a": 2, "b": 1, "c": 3} {
		w.put(record(key, func(r *job.Record) {
			r.ExpiresAt = start.Add(time.Duration(seconds) * time.Second)
		}))
	}
	for _, want := range [][]string{{"a", "c"}, {"c"}, {}} {
		w.at(time.Minute)
		equal(w, "pruned", change(w, func(tx store.Tx) (int, error) {
			return tx.PruneRecords(1)
		}), 1)
		w.at(0) // when all that are stored are there
		left := []string{}
		for _, r := range w.records("kind", "a", "b", "c") {
			left = append(left, r.Key)
		}
		equal(w, "left", left, want)
	}
}

// recordNames proves that a kind, key or owner of MaxNameBytes bytes is stored, also as runes of
// four bytes, and that one byte more, a NUL character or a text that is not UTF-8 is Invalid in
// each of them.
func recordNames(w *world) {
	for _, bad := range []string{strings.Repeat("k", store.MaxNameBytes+1), "\x00", "\xff"} {
		for _, r := range []job.Record{{Kind: bad}, {Key: bad}, {Owner: bad}} {
			err := w.store.Update(w.context(), func(tx store.Tx) error {
				return tx.Apply(store.Changes{Records: []job.Record{r}})
			})
			if !job.IsKind(err, job.Invalid) {
				w.Errorf("%.10q: %v", bad, err)
			}
		}
	}
	// A rune of four bytes, as the limit counts bytes.
	long := strings.Repeat("\U0001F40E", store.MaxNameBytes/4)
	w.put(job.Record{Kind: long, Key: long, Owner: long, Body: []byte("x")})
	equal(w, "long names", len(w.records(long, long)), 1)
}
