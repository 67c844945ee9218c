package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// refreshed is an engine whose store has a version, beside the engine of the world.
type refreshed struct {
	*world
	engine *engine.Engine
	store  *countingStore
	fails  bool // the version cannot be read
}

// withVersion runs a test on every store. Updates count as commits: what else a database commits
// is not counted, as other tests use the same server.
func withVersion(t *testing.T, test func(*refreshed)) {
	t.Helper()
	onEveryStore(t, testJobTypes(), func(w *world) {
		r := &refreshed{world: w, store: &countingStore{Store: w.store}}
		w.engine = testkit.NewEngine(w, r.store, w.clock, testJobTypes()...)
		version := func(context.Context) (v engine.Version, err error) {
			if r.fails {
				return v, errors.New("no version")
			}
			return engine.Version{Commits: fmt.Sprint(r.store.updates.Load()),
				Now: w.clock.Now()}, nil
		}
		var err error
		r.engine, err = engine.New(engine.Config{Store: r.store, Node: "refreshed",
			Random: testkit.RandomBytes, Monotonic: w.clock.Monotonic, Version: version})
		w.noError(err)
		w.Cleanup(r.engine.Close)
		testkit.Register(w, r.engine, testJobTypes()...)
		test(r)
	})
}

// looks calls Refresh and returns how many views that took.
func (r *refreshed) looks() int64 {
	r.Helper()
	before := r.store.views.Load()
	r.noError(r.engine.Refresh(r.ctx))
	return r.store.views.Load() - before
}

// becomeQuiet calls Refresh until it looks at nothing.
func (r *refreshed) becomeQuiet() {
	r.Helper()
	for range 3 {
		if r.looks() == 0 {
			return
		}
	}
	r.Fatal("each Refresh looks")
}

// isDue reports whether DueChanged has a signal.
func (r *refreshed) isDue() bool {
	select {
	case <-r.engine.DueChanged():
		return true
	default:
		return false
	}
}

// TestRefreshOfAQuietStore: while nothing was committed and nothing comes due, Refresh looks at
// nothing but the version, for a few seconds.
func TestRefreshOfAQuietStore(t *testing.T) {
	withVersion(t, func(r *refreshed) {
		r.submit(sub("brief/later", due(time.Hour)))
		looked := int64(0)
		const seconds = 81 // looks at once and every eight seconds
		for range seconds {
			looked += r.looks()
			r.clock.Advance(engine.SweepInterval)
		}
		if looked < 11 || looked > 12 {
			r.Errorf("%d looks in %d s", looked, seconds)
		}
		r.becomeQuiet()
		r.fails = true
		if n := r.looks(); n != 1 {
			r.Errorf("%d looks without a version", n)
		}
	})
}

// TestRefreshFindsCommits: what another node has stored is found by the next Refresh.
func TestRefreshFindsCommits(t *testing.T) {
	withVersion(t, func(r *refreshed) {
		got := waitFor(r.world, r.engine, 1, "q")
		r.becomeQuiet()
		r.submit(sub("brief/a")) // no engine announces anything on these stores
		r.looks()
		if jobs := <-got; len(jobs) != 1 {
			r.Errorf("claimed %v", names(jobs))
		}
	})
}

// TestRefreshIsInTime: DueChanged has a signal before a job is due or a lease ends, whenever that
// is, and none long before.
func TestRefreshIsInTime(t *testing.T) {
	for _, after := range []time.Duration{20300 * time.Millisecond, 23 * time.Second,
		27900 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			withVersion(t, func(r *refreshed) {
				r.submit(sub("brief/due", due(after)))
				r.submit(sub("brief/leased", with(func(j *job.Job) {
					j.Lease = after + 20*time.Second
				})))
				r.claim("brief", 1)
				r.isDueIn(after)
				_, err := r.engine.Promote(r.ctx)
				r.noError(err)
				r.isDueIn(20 * time.Second)
			})
		})
	}
}

// isDueIn calls Refresh every second until a time has passed.
func (r *refreshed) isDueIn(after time.Duration) {
	r.Helper()
	r.isDue() // what was signaled before
	signaled := false
	for left := after; left > 0; left -= engine.SweepInterval {
		r.looks()
		signaled = r.isDue()
		if signaled && left > engine.DueHorizon {
			r.Errorf("a signal %v before the time", left)
		}
		r.clock.Advance(min(left, engine.SweepInterval))
	}
	if !signaled {
		r.Errorf("no signal within %v", after)
	}
}

// TestRefreshAfterAJump: a clock that jumps ends the quiet, in either direction.
func TestRefreshAfterAJump(t *testing.T) {
	withVersion(t, func(r *refreshed) {
		r.submit(sub("brief/later", due(time.Hour)))
		r.becomeQuiet()
		r.isDue()
		r.clock.Jump(time.Hour)
		if r.looks(); !r.isDue() {
			r.Error("no signal for a job that a jump has made due")
		}
		r.clock.Jump(-time.Hour)
		if r.looks(); !r.isDue() {
			r.Error("no signal for leases to be shortened")
		}
	})
}

// TestRefreshWithMessages: as long as messages wait in the outbox, whose leader may have died, each
// Refresh looks and signals.
func TestRefreshWithMessages(t *testing.T) {
	withVersion(t, func(r *refreshed) {
		ready := r.engine.OutboxReady("phased")
		r.submit(sub("phased/a"))
		for range 3 {
			r.looks()
			select {
			case <-ready:
			default:
				r.Error("no signal")
			}
		}
	})
}

// TestOnRefresh: what other parts have compared is read with each view of Refresh.
func TestOnRefresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "memory", testJobTypes())
	var read []job.Record
	w.engine.OnRefresh(func(r engine.RecordReader) { read, _ = r.RecordsOf("kind", "key") })
	w.noError(w.engine.Refresh(w.ctx))
	if len(read) != 0 {
		t.Errorf("read %v", read)
	}
	w.noError(w.engine.ChangeRecords(w.ctx, "kind", func(c engine.RecordWriter) error {
		return c.UpsertRecords(job.Record{Kind: "kind", Key: "key", Body: []byte("body")})
	}))
	w.noError(w.engine.Refresh(w.ctx))
	if len(read) != 1 || string(read[0].Body) != "body" {
		t.Errorf("read %v", read)
	}
}
