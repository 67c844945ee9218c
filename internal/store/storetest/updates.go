package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// updateTests prove the promises of Store itself: what an error, a panic or a caller that leaves
// means for a transaction and for its neighbours, what a view sees, and how a store ends. On SQLite
// many updates share one transaction and one fsync, so these tests also prove that each member of
// such a group has an outcome of its own.
var updateTests = []test{
	{"an error undoes its update", errorUndoes},
	{"neighbours keep their own outcomes", neighbours},
	{"a panic is carried to its caller", panics},
	{"nothing follows a failed statement", failedStatement},
	{"time stands still in an update", frozenTime},
	{"a caller that left before its turn", leftBefore},
	{"a caller that leaves in line", leavesInLine},
	{"a caller that leaves while it runs", leavesRunning},
	{"a view sees every update that returned", readYourWrites},
	{"a view is one snapshot", snapshot},
	{"a view gives its error and panic", viewErrors},
	{"nested use disturbs no other caller", nested},
	{"ping and close", pingClose},
	{"listen ends with its context", listenEnds},
}

// exists reports what Exists says of newJob(key).
func (w *world) exists(key string) bool {
	w.Helper()
	return read(w, func(r store.Reader) (bool, error) { return r.Exists(newJob(key).ID) })
}

// insertOne stores newJob(key). It is an error if the job is taken.
func insertOne(tx store.Tx, key string) error {
	existing, err := insert(tx, newJob(key))
	if err != nil || len(existing) == 0 {
		return err
	}
	return fmt.Errorf("%s is taken", key)
}

// errorUndoes proves that an update whose fn returns an error keeps nothing and returns that very
// error, not a wrapped one, and that the store can be used afterwards.
func errorUndoes(w *world) {
	err := w.store.Update(w.context(), func(tx store.Tx) error {
		if err := insertOne(tx, "a"); err != nil {
			return err
		}
		return errUnwanted
	})
	if err != errUnwanted {
		w.Errorf("got %v", err)
	}
	equal(w, "a exists", w.exists("a"), false)
	w.insert(newJob("a"))
	equal(w, "a exists", w.exists("a"), true)
}

// neighbours proves that concurrent updates keep their own outcomes even where they share a
// commit: of 40 callers every fourth fails, every fourth panics and the others succeed.
// Afterwards the jobs of those that succeeded exist, and no others.
func neighbours(w *world) {
	w.crowd(40, func(i int) (err error) {
		key, fails, explodes := fmt.Sprint(i), i%4 == 1, i%4 == 3
		defer func() {
			if p := recover(); (p != nil) != explodes {
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		// A caller that fails tries five times, so that it is in many groups with others.
		for n := range 5 {
			got := w.store.Update(w.context(), func(tx store.Tx) error {
				if err := insertOne(tx, key); err != nil && n == 0 {
					return err
				}
				if explodes {
					panic(key)
				}
				if fails {
					return errUnwanted
				}
				return nil
			})
			if fails != errors.Is(got, errUnwanted) {
				return got
			}
			if fails {
				continue
			}
			break
		}
		return nil
	})
	for i := range 40 {
		equal(w, fmt.Sprint(i, " exists"), w.exists(fmt.Sprint(i)), i%4 == 0 || i%4 == 2)
	}
}

// bang is a value to panic with that is equal to itself alone, by its address.
type bang struct{ n int }

// panics proves that a panic in fn reaches the caller of Update with its value, that its
// transaction is undone, and that the store goes on.
func panics(w *world) {
	value := &bang{7}
	func() {
		defer func() {
			if got := recover(); got != any(value) {
				w.Errorf("recovered %v", got)
			}
		}()
		w.store.Update(w.context(), func(tx store.Tx) error {
			if err := insertOne(tx, "a"); err != nil {
				return err
			}
			panic(value)
		})
	}()
	equal(w, "a exists", w.exists("a"), false)
	w.insert(newJob("a"))
}

// failedStatement proves that a database error ends the transaction: the later methods return the
// same error, and so does Update although fn returns nil. Databases differ in what they keep of a
// transaction after an error, so nothing of it may be kept, also of what was written before. The
// statement fails by a sum that is too large to store.
func failedStatement(w *world) {
	count := func(tx store.Tx, n int64) error {
		one := job.QueueCount{JobType: "x", Queue: "q", Ready: n}
		return tx.Apply(store.Changes{Counts: []job.QueueCount{one}})
	}
	w.update(func(tx store.Tx) error { return count(tx, 1) })
	var first, second, third error
	err := w.store.Update(w.context(), func(tx store.Tx) error {
		if err := errors.Join(insertOne(tx, "a"), count(tx, math.MaxInt64-1)); err != nil {
			return err
		}
		// The sum is 1 + (MaxInt64-1) by now, as large as a column can hold. One more and the
		// statement fails.
		first = count(tx, math.MaxInt64)
		second = insertOne(tx, "b")
		_, third = tx.Exists(job.ID{})
		return nil
	})
	var known *job.Error
	if first == nil || !errors.As(first, &known) {
		w.Errorf("the statement gave %v", first)
	}
	if second != first || third != first || err != first {
		w.Errorf("after %v: %v, %v, %v", first, second, third, err)
	}
	equal(w, "a exists", w.exists("a"), false)
	equal(w, "count", w.counts("x")[0].Ready, int64(1))
}

// frozenTime proves that Now does not move within an update, though the clock does, and that the
// next update and the next view have the new time. All leases of a transaction so compare with one
// moment.
func frozenTime(w *world) {
	w.update(func(tx store.Tx) error {
		equal(w, "now", tx.Now(), start)
		w.at(time.Hour)
		equal(w, "now", tx.Now(), start)
		return nil
	})
	w.view(func(r store.Reader) error {
		equal(w, "now", r.Now(), start.Add(time.Hour))
		return nil
	})
	w.update(func(tx store.Tx) error {
		equal(w, "now", tx.Now(), start.Add(time.Hour))
		return nil
	})
}

// leftBefore proves that fn does not run for a caller whose ctx has ended: canceled is Aborted, a
// deadline that has passed is Unavailable, in updates and views. It tries 20 times, since a select
// between an ended ctx and a free connection may take either.
func leftBefore(w *world) {
	canceled, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("some cause"))
	late, cancelLate := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancelLate()
	// Both kinds of ended ctx are tried in an update and in a view.
	for range 20 {
		for ctx, want := range map[context.Context]job.Kind{canceled: job.Aborted,
			late: job.Unavailable} {
			ran := false
			err := w.store.Update(ctx, func(store.Tx) error { ran = true; return nil })
			verr := w.store.View(ctx, func(store.Reader) error { ran = true; return nil })
			if ran || !job.IsKind(err, want) || !job.IsKind(verr, want) {
				w.Fatalf("ran %v, %v, %v; want %s", ran, err, verr, want)
			}
		}
	}
}

// hold runs an update that keeps a name locked until release is called, and returns once it has the
// lock. On SQLite, where a name needs no lock, it keeps the one writer.
func (w *world) hold(name string) (release func()) {
	locked, free, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- w.store.Update(w.context(), func(tx store.Tx) error {
			if err := tx.LockName(name); err != nil {
				return err
			}
			close(locked)
			<-free
			return nil
		})
	}()
	<-locked
	return func() {
		close(free)
		if err := <-done; err != nil {
			w.Errorf("hold: %v", err)
		}
	}
}

// leavesInLine proves that a caller may leave while it waits for another transaction: it gets
// Aborted or Unavailable without waiting for the end of that one, and its fn has changed nothing.
func leavesInLine(w *world) {
	// Both callers below wait for this transaction: for its name, or for the one writer.
	release := w.hold("name")
	for want, ctx := range map[job.Kind]func() (context.Context, func()){
		job.Aborted: func() (context.Context, func()) {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(30*time.Millisecond, cancel)
			return ctx, cancel
		},
		job.Unavailable: func() (context.Context, func()) {
			return context.WithTimeout(context.Background(), 30*time.Millisecond)
		},
	} {
		ctx, cancel := ctx()
		err := w.store.Update(ctx, func(tx store.Tx) error {
			if err := tx.LockName("name"); err != nil {
				return err
			}
			return insertOne(tx, "a")
		})
		cancel()
		if !job.IsKind(err, want) {
			w.Errorf("got %v, want %s", err, want)
		}
	}
	release()
	equal(w, "a exists", w.exists("a"), false)
	w.insert(newJob("b"))
}

// leavesRunning proves that the outcome of an update is certain though its caller leaves while fn
// runs, before or after a statement: the update returns nil and its job exists, or it returns
// Aborted and the job does not.
func leavesRunning(w *world) {
	for i := range 10 {
		key := fmt.Sprint(i)
		ctx, cancel := context.WithCancel(context.Background())
		err := w.store.Update(ctx, func(tx store.Tx) error {
			// Every other caller leaves before its statement, the others after it.
			if i%2 == 0 {
				cancel()
			}
			if err := insertOne(tx, key); err != nil {
				return err
			}
			cancel()
			return nil
		})
		if err != nil && !job.IsKind(err, job.Aborted) {
			w.Errorf("got %v", err)
		}
		equal(w, key+" exists", w.exists(key), err == nil)
	}
}

// readYourWrites proves that a view includes every Update that has returned: each of eight
// writers reads its own job back at once, while the others write.
func readYourWrites(w *world) {
	w.crowd(8, func(i int) error {
		for n := range 15 {
			j := newJob(fmt.Sprint(i, "-", n))
			if err := w.store.Update(w.context(), func(tx store.Tx) error {
				_, err := insert(tx, j)
				return err
			}); err != nil {
				return err
			}
			var there []*job.Job
			if err := w.store.View(w.context(), func(r store.Reader) (err error) {
				there, err = r.Load(bySeq(j))
				return err
			}); err != nil {
				return err
			}
			if len(there) != 1 || there[0].ID != j.ID {
				return fmt.Errorf("%s is not seen", j.ID.Key)
			}
		}
		return nil
	})
}

// snapshot proves that all reads of a view see one moment: another caller writes between two of
// them. Where the view holds up the writer, as in a database in memory, that write ends later, so
// the test waits for it only a little.
func snapshot(w *world) {
	w.insert(newJob("a"))
	done := make(chan error, 1)
	w.view(func(r store.Reader) error {
		count := func() int {
			all, err := Listed(r, store.Filter{})
			if err != nil {
				w.Error(err)
			}
			return len(all)
		}
		equal(w, "at first", count(), 1)
		go func() {
			done <- w.store.Update(w.context(), func(tx store.Tx) error {
				return insertOne(tx,
					"b")
			})
		}()
		select {
		case err := <-done:
			done <- err
		// The view holds up the writer. The write is awaited after the view.
		case <-time.After(100 * time.Millisecond):
		}
		equal(w, "later", count(), 1)
		return nil
	})
	if err := <-done; err != nil {
		w.Error(err)
	}
	equal(w, "b exists", w.exists("b"), true)
}

// viewErrors proves that View returns the error of fn and carries its panic, and that neither costs
// a connection: there are more rounds than connections, and the store still works afterwards.
func viewErrors(w *world) {
	for range 10 { // more than there are connections for reading
		if err := w.store.View(w.context(), func(store.Reader) error {
			return errUnwanted
		}); err != errUnwanted {
			w.Errorf("got %v", err)
		}
		func() {
			defer func() {
				if p := recover(); p != "bang" {
					w.Errorf("recovered %v", p)
				}
			}()
			w.store.View(w.context(), func(store.Reader) error { panic("bang") })
		}()
	}
	w.insert(newJob("a"))
	equal(w, "a exists", w.exists("a"), true)
}

// nested proves that fn which uses the store itself, against the port's rule, harms its own call
// alone: the inner call works or is Unavailable when its ctx ends, and the outer update is kept.
func nested(w *world) {
	w.update(func(tx store.Tx) error {
		if err := insertOne(tx, "outer"); err != nil {
			return err
		}
		// SQLite's writer is busy with this fn, so the inner update can only wait until its ctx
		// ends.
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		for _, err := range []error{
			w.store.Update(ctx, func(tx store.Tx) error { return insertOne(tx, "inner") }),
			w.store.View(ctx, func(r store.Reader) error {
				_,
					err := r.Exists(job.ID{})
				return err
			}),
		} {
			if err != nil && !job.IsKind(err, job.Unavailable) {
				w.Errorf("nested: %v", err)
			}
		}
		return nil
	})
	equal(w, "outer exists", w.exists("outer"), true)
}

// pingClose proves that Ping succeeds on a store that works, that Notify takes any number of
// queues, that Close may be called twice, and that later calls are Unavailable instead of hanging.
func pingClose(w *world) {
	if err := w.store.Ping(w.context()); err != nil {
		w.Errorf("ping: %v", err)
	}
	w.store.Notify(nil)
	w.store.Notify([]job.QueueHash{1, 2})
	for range 2 {
		if err := w.store.Close(); err != nil {
			w.Errorf("close: %v", err)
		}
	}
	for name, err := range map[string]error{
		"update": w.store.Update(w.context(), func(store.Tx) error { return nil }),
		"view":   w.store.View(w.context(), func(store.Reader) error { return nil }),
		"ping":   w.store.Ping(w.context()),
	} {
		if !job.IsKind(err, job.Unavailable) {
			w.Errorf("%s when closed: %v", name, err)
		}
	}
}

// listenEnds proves that Listen returns when its ctx ends, and that a node does not receive its own
// announcements: it has notified its own waiters already.
func listenEnds(w *world) {
	ctx, cancel := context.WithCancel(context.Background())
	var received atomic.Int32
	ended := make(chan struct{})
	go func() {
		w.store.Listen(ctx, func(queues []job.QueueHash) { received.Add(int32(len(queues))) })
		close(ended)
	}()
	w.store.Notify([]job.QueueHash{1})
	cancel()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		w.Fatal("listen does not end")
	}
	equal(w, "own announcements received", received.Load(), int32(0))
}
