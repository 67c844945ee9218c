package storetest

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// FilledJob returns a job with a value of its own in every field, made from the type by reflection,
// so that a field added to job.Job is filled without a change here. Jobs filled with different
// small salts differ in every field; flags are set with salt 0 alone.
func FilledJob(salt int) *job.Job {
	f := filler{salt: salt}
	j := &job.Job{}
	f.fill("Job", reflect.ValueOf(j).Elem())
	return j
}

// DifferentFields returns the names of the fields of a job in which two jobs differ. A nil body and
// an empty one differ.
func DifferentFields(a, b *job.Job) (names []string) {
	va, vb := reflect.ValueOf(*a), reflect.ValueOf(*b)
	for i := range va.NumField() {
		if !reflect.DeepEqual(va.Field(i).Interface(), vb.Field(i).Interface()) {
			names = append(names, va.Type().Field(i).Name)
		}
	}
	return names
}

// filler fills values of any type that a job has, each with a number of its own. count is how many
// numbers it has given.
type filler struct{ salt, count int }

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	bytesType    = reflect.TypeFor[[]byte]()
)

// next returns a number that no field before has and that fits a byte, as long as a job has fewer
// than 127 values. Salts 0 and 1 give even and odd numbers, so that two jobs share none.
func (f *filler) next() int {
	f.count++
	return 2*f.count + f.salt
}

// fill sets v and all below it. The bytes of an array count as one value. A type that it cannot
// fill panics, so that a new kind of field is given a value here instead of being tested as zero.
func (f *filler) fill(name string, v reflect.Value) {
	switch v.Type() {
	case timeType:
		v.Set(reflect.ValueOf(start.Add(time.Duration(f.next()) * time.Second)))
		return
	case durationType:
		v.SetInt(int64(time.Duration(f.next()) * time.Microsecond))
		return
	case bytesType:
		v.SetBytes(fmt.Appendf(nil, "%s %d", name, f.next()))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(name+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			f.fill(name, v.Index(i))
		}
		// An array of 16 bytes would use up 16 numbers; the next field goes on after the first of
		// them.
		f.count -= v.Len() - 1
	case reflect.String:
		v.SetString(fmt.Sprintf("%s %d", name, f.next()))
	case reflect.Bool:
		v.SetBool(f.salt == 0)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.next()))
	case reflect.Pointer: // End, which a lock alone reads
	case reflect.Uint8:
		v.SetUint(uint64(f.next()))
	default:
		panic(fmt.Sprintf("storetest: %s has type %s, which no value is known for", name, v.Type()))
	}
}

// filledJob is a FilledJob as the store takes it: number and OutOfLine are set by the store, and
// the phase is one in which LockReady finds the job.
func filledJob(salt int) *job.Job {
	j := FilledJob(salt)
	j.Seq, j.OutOfLine = 0, 0
	j.Phase = job.Ready
	return j
}

// fieldTests prove that no field of job.Job is forgotten: in the columns, in an update, in a read
// or in a dead letter. They compare by reflection, so a field that is added to the type fails them
// by its name until the store keeps it.
var fieldTests = []test{
	{"every field is stored by the insert and read back", fieldsInserted},
	{"every load has the bodies it asks for, large ones too", loadedBodies},
	{"every field is stored by the updates", fieldsUpdated},
	{"every field is in a dead letter", fieldsOfDeadLetters},
}

// sameFields fails with the names of the fields in which the one job of jobs differs from want:
// those were not stored or not read back.
func (w *world) sameFields(what string, jobs []*job.Job, want *job.Job) {
	w.Helper()
	if len(jobs) != 1 {
		w.Fatalf("%s: %d jobs", what, len(jobs))
	}
	if names := DifferentFields(jobs[0], want); len(names) > 0 {
		w.Errorf("%s: not stored or not read back: %s", what, strings.Join(names, ", "))
	}
}

// fieldsInserted proves that the insert stores every field: it reads one job by each variant of
// List and Load and by LockReady, in a view and in an update.
func fieldsInserted(w *world) {
	j := filledJob(0)
	w.insert(j)
	w.view(func(r store.Reader) error {
		for _, full := range []struct {
			name string
			read func() ([]*job.Job, error)
		}{
			{"List", func() ([]*job.Job, error) { return Listed(r, store.Filter{}) }},
			{"List of a parent", func() ([]*job.Job, error) {
				return Listed(r, store.Filter{Parent: j.Parent})
			}},
			{"List of an owner", func() ([]*job.Job, error) {
				return Listed(r, store.Filter{JobType: j.ID.JobType, Owner: j.Owner,
					NewestFirst: true})
			}},
		} {
			jobs, err := full.read()
			if err != nil {
				return fmt.Errorf("%s: %w", full.name, err)
			}
			w.sameFields(full.name, jobs, j)
		}
		return w.sameInEachLoad(r, j, false)
	})
	w.update(func(tx store.Tx) error {
		ready, err := tx.LockReady(j.ID.JobType, j.Queue, 1)
		if err != nil {
			return err
		}
		w.sameFields("LockReady", ready, j)
		return cmp.Or(w.sameInEachLoad(tx, j, false), w.sameInEachLoad(tx, j, true))
	})
}

// sameInEachLoad proves that Load returns the same by each of its keys, and with each choice of
// bodies those and no others. OnlyBodies leaves the other fields but Seq and OutOfLine at zero.
func (w *world) sameInEachLoad(r store.Reader, j *job.Job, lock bool) error {
	want := map[store.Bodies]*job.Job{
		store.NoBodies:       withBodies(j),
		store.DefinitionOnly: withBodies(j, job.Definition),
		store.FailureOnly:    withBodies(j, job.Failure),
		store.AllBodies:      j,
		store.OnlyBodies:     {Seq: j.Seq, OutOfLine: j.OutOfLine},
	}
	for p := range job.Bodies {
		*want[store.OnlyBodies].Body(p) = *j.Body(p)
	}
	for key, s := range map[string]store.Selector{
		"id":    {IDs: []job.ID{j.ID}},
		"seq":   {Seqs: seqs(j)},
		"alias": {Aliases: []job.IdentityHash{j.Alias}},
	} {
		for bodies, want := range want {
			s.Bodies, s.Lock = bodies, lock
			jobs, err := r.Load(s)
			if err != nil {
				return err
			}
			w.sameFields(fmt.Sprintf("Load by %s, bodies %d, locked %v", key, bodies, lock), jobs,
				want)
		}
	}
	return nil
}

// loadedBodies proves the same of a job of which each body, the definition too, is stored out of
// line, which takes a statement of its own.
func loadedBodies(w *world) {
	j := filledJob(0)
	for p := range job.Bodies {
		*j.Body(p) = bytesOf(9000 + int(p))
	}
	w.insert(j)
	w.view(func(r store.Reader) error { return w.sameInEachLoad(r, j, false) })
	w.update(func(tx store.Tx) error { return w.sameInEachLoad(tx, j, true) })
}

// withBodies returns the job with these bodies alone.
func withBodies(j *job.Job, parts ...job.Body) *job.Job {
	only := *j
	for p := range job.Bodies {
		if !slices.Contains(parts, p) {
			*only.Body(p) = nil
		}
	}
	return &only
}

// fieldsUpdated proves that AllFields and the bodies together are everything but the identity: no
// field can be inserted that cannot be changed. The new job has another value in every field but
// the phase.
func fieldsUpdated(w *world) {
	j := filledJob(0)
	w.insert(j)
	want := filledJob(1)
	want.Seq, want.ID = j.Seq, j.ID
	fields := store.AllFields
	for p := range job.Bodies {
		fields |= store.BodyField(p)
	}
	w.apply(updates(fields, want))
	w.sameFields("AllFields and bodies", w.load(byID(j.ID)), want)
}

// fieldsOfDeadLetters proves that a dead letter keeps every field of its job, so that a replay
// submits what was given up.
func fieldsOfDeadLetters(w *world) {
	j := FilledJob(0)
	deadLetter := job.DeadLetter{Job: *j, Cause: "cause", CreatedAt: start}
	w.apply(store.Changes{DeadLetters: []job.DeadLetter{deadLetter}})
	deadLetters := read(w, func(r store.Reader) ([]job.DeadLetter, error) {
		return r.DeadLetters(store.DeadLetterSelector{JobType: j.ID.JobType, Limit: 10})
	})
	if len(deadLetters) != 1 {
		w.Fatalf("%d dead letters", len(deadLetters))
	}
	w.sameFields("DeadLetters", []*job.Job{&deadLetters[0].Job}, j)
}
