package storetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// bodyTests prove that bodies come back byte for byte, whatever their size. A store keeps small
// bodies in the row of the job and large ones elsewhere (C-17), so these tests cross that limit in
// both directions, on insert, on update, on delete and in a claim. A body that is missing (nil) and
// an empty one differ.
var bodyTests = []test{
	{"bodies of every size come back", bodySizes},
	{"a body of every size is written over every other", updateBodies},
	{"bodies of many jobs at once", manyBodies},
	{"nothing stays of deleted bodies", deletedBodies},
	{"a claim of large bodies stays within its bound", claimedBytes},
}

// sizes reach over the size above which bodies are stored out of line; -1 is no body.
var sizes = []int{-1, 0, 1, 8<<10 - 1, 8 << 10, 8<<10 + 1, 1 << 20}

// bytesOf returns n bytes that are neither UTF-8 nor free of NUL characters, nil for a negative n.
// The same n gives the same bytes.
func bytesOf(n int) []byte {
	if n < 0 {
		return nil
	}
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)})
	r.Read(b)
	if n > 1 {
		b[0], b[1] = 0, 0xff
	}
	return b
}

// same reports whether two bodies are equal; nil and empty are not.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// sameBodies fails the test for each body in which two jobs differ, by sizes, since a megabyte in
// the output of a test helps no reader.
func (w *world) sameBodies(what string, got, want *job.Job) {
	w.Helper()
	for p := range job.Bodies {
		if g, x := *got.Body(p), *want.Body(p); !same(g, x) {
			w.Errorf("%s, body %d: got %d bytes (nil %v), want %d (nil %v)", what, p, len(g),
				g == nil, len(x), x == nil)
		}
	}
}

// bodySizes proves that the insert keeps bodies of every size: each job has the sizes in another
// order, so that each of its bodies is once small and once large. The jobs are read whole and by
// OnlyBodies.
func bodySizes(w *world) {
	for i, n := range sizes {
		j := newJob(fmt.Sprint(n))
		for p := range job.Bodies {
			*j.Body(p) = bytesOf(sizes[(i+int(p))%len(sizes)])
		}
		w.insert(j)
		w.sameBodies("get", w.get(j), j)
		w.sameBodies("loaded", w.load(store.Selector{
			Seqs:   seqs(j),
			Bodies: store.OnlyBodies,
		})[0], j)
	}
}

// updateBodies proves that a body which is written replaces the one before, for each pair of sizes.
// So a body moves out of the row, back into it, and changes in each place. A body that is back in
// the row must not be marked as out of line, or a later load would look for it there.
func updateBodies(w *world) {
	j := newJob("a")
	for p := range job.Bodies {
		*j.Body(p) = []byte("first")
	}
	w.insert(j)
	for _, from := range sizes {
		for _, to := range sizes {
			for _, n := range []int{from, to} {
				// Which body is written follows from the size, so that each body is written in some
				// pairs.
				p := job.Body((n + 5) % int(job.Bodies))
				*j.Body(p) = bytesOf(n)
				w.update(func(tx store.Tx) error {
					locked, err := tx.Load(locked(j))
					if err != nil {
						return err
					}
					*locked[0].Body(p) = bytesOf(n)
					return tx.Apply(updates(store.BodyField(p), locked...))
				})
			}
			got := w.get(j)
			w.sameBodies(fmt.Sprintf("%d over %d", to, from), got, j)
			if p := (to + 5) % int(job.Bodies); to < 8<<10 && got.OutOfLine&(1<<p) != 0 {
				w.Errorf("%d over %d: body %d is marked as kept apart", to, from, p)
			}
		}
	}
}

// manyBodies proves that BodyField in a set of 30 jobs writes to each job its own body, in place
// and out of line mixed, and that of several writes in one transaction the last one counts.
func manyBodies(w *world) {
	var jobs []*job.Job
	for i := range 30 {
		jobs = append(jobs, newJob(fmt.Sprint(i)))
	}
	w.insert(jobs...)
	for round := range 3 {
		for i, j := range jobs {
			j.Result = bytesOf(sizes[(i+round*2)%(len(sizes)-1)])
		}
		// Within one transaction the later write stands.
		w.update(func(tx store.Tx) error {
			locked, err := tx.Load(locked(jobs...))
			if err != nil {
				return err
			}
			// Two writes before the last one, out of line and then in the row.
			for _, n := range []int{9000, 1} {
				for _, l := range locked {
					l.Result = bytesOf(n)
				}
				if err := tx.Apply(updates(store.BodyField(job.Result), locked...)); err != nil {
					return err
				}
			}
			for i, l := range locked {
				l.Result = jobs[i].Result
			}
			return tx.Apply(updates(store.BodyField(job.Result), locked...))
		})
		for _, j := range jobs {
			w.sameBodies(j.ID.Key, w.get(j), j)
		}
	}
}

// deletedBodies proves that no body of a deleted job comes back with the next job of its
// identity.
func deletedBodies(w *world) {
	j := newJob("a", func(j *job.Job) { j.Payload = bytesOf(9000) })
	w.insert(j)
	w.apply(store.Changes{Delete: []*job.Job{j}})
	k := newJob("a", func(k *job.Job) { k.Payload = []byte("small") })
	w.insert(k)
	w.sameBodies("the next", w.get(k), k)
}

// claimedBytes proves that LockReady brings no more than MaxReadyBytes of large bodies into
// memory, but always at least one job, however large, and that the jobs it leaves out are
// claimed by the next call.
func claimedBytes(w *world) {
	// The jobs are claimed in this order.
	for i, n := range []int{store.MaxReadyBytes/2 + 1, store.MaxReadyBytes / 2, 10,
		store.MaxReadyBytes + 1, 10} {
		j := newJob(fmt.Sprint(i))
		j.Payload = make([]byte, n)
		w.insert(j)
	}
	// Job 0 alone, since 1 would exceed the limit with it; 1 and 2, whose body is in the row; 3,
	// which is larger than the limit, and 4.
	for _, want := range []int{1, 2, 2, 0} { // bodies kept in the row do not count
		got := change(w, func(tx store.Tx) ([]*job.Job, error) {
			ready, err := tx.LockReady("relay", "q", 10)
			if err != nil {
				return nil, err
			}
			return ready, tx.Apply(store.Changes{Delete: ready})
		})
		if len(got) != want {
			w.Fatalf("got %d jobs, want %d", len(got), want)
		}
		for _, j := range got {
			if len(j.Payload) == 0 {
				w.Errorf("job %s came without its payload", j.ID.Key)
			}
		}
	}
}
