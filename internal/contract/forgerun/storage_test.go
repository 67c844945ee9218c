package forgerun_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

func newRegistry() *prometheus.Registry { return prometheus.NewRegistry() }

// faultyStore is a store that fails, hangs, or loses answers when it is set to.
type faultyStore struct {
	store.Store
	reads, writes, after atomic.Pointer[error]
	hang                 atomic.Bool
}

func (f *faultyStore) failWrites(err error) { f.writes.Store(&err) }
func (f *faultyStore) failReads(err error)  { f.reads.Store(&err) }

func loadError(p *atomic.Pointer[error]) error {
	if err := p.Load(); err != nil {
		return *err
	}
	return nil
}

func (f *faultyStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	if f.hang.Load() {
		<-ctx.Done()
		return &job.Error{Kind: job.Unavailable, Op: "store", Err: ctx.Err()}
	}
	if err := loadError(&f.writes); err != nil {
		return err
	}
	err := f.Store.Update(ctx, fn)
	if lost := loadError(&f.after); err == nil && lost != nil {
		return lost
	}
	return err
}

func (f *faultyStore) View(ctx context.Context, fn func(store.Reader) error) error {
	if f.hang.Load() {
		<-ctx.Done()
		return &job.Error{Kind: job.Unavailable, Op: "store", Err: ctx.Err()}
	}
	if err := loadError(&f.reads); err != nil {
		return err
	}
	return f.Store.View(ctx, fn)
}

// faultyWorld is a world on such a store.
func faultyWorld(t testing.TB, c forgerun.Config) (*world, *faultyStore) {
	clock := testkit.NewClock()
	f := &faultyStore{Store: testkit.MemoryStore(t, clock.Now)}
	return newWorld(t, clock, f, c), f
}

// TestStorageFailures lets the store fail under every route.
func TestStorageFailures(t *testing.T) {
	t.Parallel()
	w, f := faultyWorld(t, config())
	c := w.customer(t)
	id := c.submit(t, submitBody("SUCCESS_FAST"))
	hook, _ := c.register(t, "http://localhost:9/some", "job_failed")
	w.claimAndRun(t)
	failures := []struct {
		id, name string
		err      error
		status   int
		code     string
	}{
		{"FR-021 FR-198 FR-199", "away",
			&job.Error{Kind: job.Unavailable, Op: "store", Msg: "no table at /dev/sda1",
				Err: errors.New("dial 10.1.2.3:5432")}, 503, "RFA_STORAGE_DB_ERROR"},
		{"FR-021", "read-only", &job.Error{Kind: job.ReadOnly, Op: "store",
			Err: errors.New("/dev/sda1 is full")}, 503, "RFA_STORAGE_DB_ERROR"},
		{"FR-202", "timeout", &job.Error{Kind: job.Unavailable, Op: "store",
			Err: context.DeadlineExceeded}, 503, "RFA_STORAGE_DB_ERROR"},
		{"FR-020", "defect", &job.Error{Kind: job.Internal, Op: "store", Msg: "no such table: jobs",
			Err: errors.New("SELECT secret")}, 500, "RFA_INTERNAL"},
		{"FR-020", "unclassified", errors.New("SELECT secret FROM nowhere"), 500, "RFA_INTERNAL"},
	}
	for _, s := range sample {
		for _, fail := range failures {
			t.Run(fail.id+" "+s.name+" "+fail.name, func(t *testing.T) {
				w.clock.Advance(2 * time.Second) // what is known of keys is not for long
				f.failReads(fail.err)
				f.failWrites(fail.err)
				r := c.Do(t, s.method, fillPath(s.path, c.id, id, hook), s.body)
				f.failReads(nil)
				f.failWrites(nil)
				r.WantError(t, fail.status, fail.code)
				for _, inside := range []string{"SELECT", "secret", "10.1.2.3", "/dev", "table",
					"store:", "deadline"} {
					if strings.Contains(r.Body, inside) {
						t.Errorf("the answer discloses %s: %s", inside, r.Body)
					}
				}
			})
		}
	}
	t.Run("FR-198 nothing is left behind", func(t *testing.T) {
		assertEqual(t, "jobs", w.jobs(t), 1)
	})
	t.Run("FR-240 database errors are counted", func(t *testing.T) {
		if got := w.metric(t, "database_errors_total", nil); got < float64(3*len(sample)) {
			t.Errorf("%v errors", got)
		}
	})
}

// TestSubmitFails: a submit that fails leaves nothing, and its key is good afterwards; one whose
// answer was lost is found by its key.
func TestSubmitFails(t *testing.T) {
	t.Parallel()
	w, f := faultyWorld(t, config())
	c := w.customer(t)
	gone := error(&job.Error{Kind: job.Unavailable, Op: "store.commit"})
	t.Run("FR-072 FR-198 FR-202 nothing was written", func(t *testing.T) {
		f.failWrites(gone)
		r := c.Do(t, "POST", "/v1/jobs", submitBody("IO_HEAVY"), "Idempotency-Key", "k")
		f.failWrites(nil)
		r.WantError(t, 503, "RFA_STORAGE_DB_ERROR")
		if strings.Contains(r.Body, "job_id") {
			t.Errorf("the answer has %s", r.Body)
		}
		assertEqual(t, "retry-after", r.Header.Get("Retry-After"), "1")
		assertEqual(t, "jobs", w.jobs(t), 0)
		assertEqual(t, "kind", c.get(t, c.submit(t, submitBody("CPU_BURST"), "Idempotency-Key",
			"k")).WorkKind, "CPU_BURST")
	})
	t.Run("FR-071 FR-198 the answer was lost", func(t *testing.T) {
		f.after.Store(&gone)
		c.Do(t, "POST", "/v1/jobs", submitBody("IO_HEAVY"), "Idempotency-Key", "lost").WantError(t,
			503, "RFA_STORAGE_DB_ERROR")
		f.after.Store(nil)
		before := w.jobs(t)
		c.submit(t, submitBody("IO_HEAVY"), "Idempotency-Key", "lost")
		assertEqual(t, "jobs", w.jobs(t), before)
	})
	t.Run("FR-201 an id that exists", func(t *testing.T) {
		draws := []byte{1, 1, 2}
		config := config()
		clock := testkit.NewClock()
		again := newWorld(t, clock, testkit.MemoryStore(t, clock.Now), config)
		again.forge.Random = func() (id [16]byte) {
			id[0] = draws[0]
			draws = draws[1:]
			return id
		}
		c := again.customer(t)
		a, b := c.submit(t, submitBody("SUCCESS_FAST")), c.submit(t, submitBody("SUCCESS_FAST"))
		if a == b {
			t.Error("FR-079 two jobs have one id")
		}
		assertEqual(t, "jobs", again.jobs(t), 2)
	})
}

// TestTimeouts: a request that takes too long is answered (FR-203).
func TestTimeouts(t *testing.T) {
	t.Parallel()
	c := config()
	c.RequestTimeout = 30 * time.Millisecond
	w, f := faultyWorld(t, c)
	id := w.newClient(t)
	f.hang.Store(true)
	t.Run("FR-203 FR-025 it is answered", func(t *testing.T) {
		for _, path := range []string{"/v1/clients", "/v1/clients/" + id + "/keys"} {
			r := w.Do(t, "POST", path, "")
			r.WantError(t, 504, "RFA_EXEC_TIMEOUT")
		}
	})
	f.hang.Store(false)
	t.Run("FR-202 and nothing is written in part", func(t *testing.T) {
		w.Do(t, "POST", "/v1/clients/"+id+"/keys", "").WantStatus(t, 201)
	})
}

// TestTogether: job, event, message and key are written together or not at all (FR-080, FR-200).
func TestTogether(t *testing.T) {
	t.Parallel()
	clock := testkit.NewClock()
	f := &halfwayStore{Store: testkit.MemoryStore(t, clock.Now)}
	w := newWorld(t, clock, f, config())
	c := w.customer(t)
	for i, step := range []string{"events", "messages", "counts"} {
		t.Run("FR-080 FR-081 FR-200 "+step+" fail", func(t *testing.T) {
			f.fail.Store(&step)
			c.Do(t, "POST", "/v1/jobs", submitBody("SUCCESS_FAST"), "Idempotency-Key",
				"k").WantError(t, 503, "RFA_STORAGE_DB_ERROR")
			f.fail.Store(nil)
			assertEqual(t, "jobs", w.jobs(t), i)
			id := c.submit(t, submitBody("SUCCESS_FAST"), "Idempotency-Key", fmt.Sprint("well", i))
			j := w.claimAndStart(t)
			f.fail.Store(&step)
			if _, err := w.engine.Cancel(context.Background(), j.ID); err == nil {
				t.Error("it was canceled")
			}
			f.fail.Store(nil)
			c.wantState(t, id, "RUNNING")
			// FR-183
			c.Do(t, "GET", "/v1/jobs/"+id+"/report", "").WantError(t, 404, "RFA_JOB_NOT_FOUND")
			c.cancel(t, id)
			assertEqual(t, "events", c.report(t, id).names(),
				"created queued assigned started canceled")
		})
	}
}

// halfwayStore is a store that fails in the middle of a transaction.
type halfwayStore struct {
	store.Store
	fail atomic.Pointer[string]
}

func (h *halfwayStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	return h.Store.Update(ctx, func(tx store.Tx) error { return fn(halfwayTx{tx, h}) })
}

type halfwayTx struct {
	store.Tx
	h *halfwayStore
}

// Apply writes the changes before those that fail.
func (t halfwayTx) Apply(c store.Changes) error {
	step := t.h.fail.Load()
	if step == nil {
		return t.Tx.Apply(c)
	}
	before := c
	switch {
	case *step == "events" && len(c.Events) > 0:
		before.Events, before.Messages, before.Counts = nil, nil, nil
	case *step == "messages" && len(c.Messages) > 0:
		before.Messages, before.Counts = nil, nil
	case *step == "counts" && len(c.Counts) > 0:
		before.Counts = nil
	default:
		return t.Tx.Apply(c)
	}
	return cmp.Or(t.Tx.Apply(before),
		error(&job.Error{Kind: job.Unavailable, Op: "store." + *step}))
}
