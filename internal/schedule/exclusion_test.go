package schedule_test

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/worker"
)

// hookedStore is a store that calls begins before each call, and ends before each commit.
type hookedStore struct {
	store.Store
	begins, ends func()
}

func (h *hookedStore) View(ctx context.Context, fn func(store.Reader) error) error {
	h.begins()
	return h.Store.View(ctx, fn)
}

func (h *hookedStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	h.begins()
	return h.Store.Update(ctx, func(tx store.Tx) error {
		err := fn(tx)
		if err == nil {
			h.ends()
		}
		return err
	})
}

// takesFromRun are the changes that take a schedule from its run.
var takesFromRun = map[string]func(ctx context.Context, n *node) error{
	"pause": func(ctx context.Context, n *node) error {
		_, err := n.Pause(ctx, "s", true, nil)
		return err
	},
	"edit": func(ctx context.Context, n *node) error {
		_, err := n.Edit(ctx, "s", func(s *schedule.Schedule) error {
			s.Every = time.Hour
			return nil
		}, nil)
		return err
	},
	"remove": func(ctx context.Context, n *node) error { return n.Remove(ctx, "s", false, nil) },
}

// changeDuringASubmission has a run stop before the commit of its submission, and changes the
// schedule on another node meanwhile. waits returns once the change waits for the submission, or
// was answered. The change has to come after the submission.
func (w *world) changeDuringASubmission(change func(context.Context, *node) error,
	first, second store.Store, waits func(started <-chan struct{}, answered func() bool)) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	w.Cleanup(cancel)
	w.create("s", nil)
	w.clock.Advance(time.Minute)
	j := w.claim(w, 1)[0]

	stopped, let, started := make(chan struct{}), make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(let) })
	stop := sync.OnceFunc(func() { close(stopped); <-let })
	running := w.nodeOn(&hookedStore{first, func() {}, stop})
	changing := w.nodeOn(&hookedStore{second, sync.OnceFunc(func() { close(started) }), func() {}})

	var both sync.WaitGroup
	defer both.Wait()
	defer release()
	both.Go(func() { w.finish(w, j, running.Handle(ctx, &worker.ClaimedJob{Job: j})) })
	testkit.Receive(w, "the submission to be about to commit", stopped)
	changed := make(chan error, 1)
	both.Go(func() { changed <- change(ctx, changing) })
	waits(started, func() bool { return len(changed) > 0 })
	if len(changed) > 0 {
		w.Error("SC-001 the change was answered, and a submission of before it can commit yet")
	}
	release()
	both.Wait()
	if err := <-changed; err != nil {
		w.Fatal(err)
	}
	made := w.wantJobs("SC-001 the submission came first", 1)
	if s, err := w.Get(ctx, "s"); err == nil {
		if tick := s.Latest(); tick == nil || tick.Job != made[0].Seq {
			w.Errorf("SC-006 the change does not know of the tick: %+v", tick)
		}
	} else if !job.IsKind(err, job.NotFound) {
		w.Error(err)
	}
	w.run(w)
	w.wantJobs("SC-004 nothing more", 1)
}

// SC-001: a change waits for the submission that comes before it: when it is answered, nothing of
// what was before it can still be submitted.
func TestChangeDuringASubmissionOnPostgres(t *testing.T) {
	t.Parallel()
	for name, change := range takesFromRun {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock, url, application := testkit.NewClock(), pgtest.URL(t), rand.Text()
			db := pgtest.DB(t, url)
			open := func(url string) store.Store {
				s, err := postgres.Open(context.Background(), postgres.Config{
					URL: url + "&lock_timeout=60s&idle_in_transaction_session_timeout=60s",
					Now: clock.Now, Conns: 8})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				return s
			}
			first, second := open(url), open(url+"&application_name="+application)
			w := &world{TB: t, clock: clock}
			w.node = w.nodeOn(first)
			w.changeDuringASubmission(change, first, second,
				func(_ <-chan struct{}, answered func() bool) {
					testkit.WaitUntil(t, "the change to wait for a lock", func() bool {
						var waiting int
						if err := db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE
							application_name=$1 AND wait_event_type='Lock'`,
							application).Scan(&waiting); err != nil {
							t.Fatal(err)
						}
						return waiting > 0 || answered()
					})
				})
		})
	}
}

// SC-001: SQLite has one writer, so a change that has begun waits for the submission.
func TestChangeDuringASubmissionOnSQLite(t *testing.T) {
	t.Parallel()
	for name, change := range takesFromRun {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := testkit.InMemory(t)
			w := &world{TB: t, clock: p.Clock}
			w.node = w.nodeOn(p.Store)
			w.changeDuringASubmission(change, p.Store, p.Store,
				func(started <-chan struct{}, _ func() bool) {
					testkit.Receive(t, "the change to begin", started)
				})
		})
	}
}

// SC-007: a page of schedules is full unless it is the last one, although one is removed while the
// page is read. Otherwise those after it were left when the settings have them no longer.
func TestListDuringARemoval(t *testing.T) {
	onEveryStore(t, func(w *world) {
		for _, name := range []string{"a", "b", "c", "d"} {
			w.create(name, nil)
		}
		reads := 0
		listing := w.nodeOn(&hookedStore{w.open(w), func() {
			if reads++; reads == 2 {
				if err := w.Remove(context.Background(), "b", false, nil); err != nil {
					w.Error(err)
				}
			}
		}, func() {}})
		reads = 0
		page, err := listing.List(context.Background(), "", 2)
		if err != nil || len(page) != 2 || page[0].Name != "a" || page[1].Name != "c" {
			w.Errorf("SC-007 the page has %d schedules, want a and c: %v", len(page), err)
		}
		if last, err := listing.List(context.Background(), "c", 2); err != nil || len(last) != 1 {
			w.Errorf("SC-007 the last page has %d schedules, want d: %v", len(last), err)
		}
		if reads < 4 {
			w.Errorf("SC-007 nothing was removed in %d reads", reads)
		}
	})
}

// SC-004: it is not known of a submission whether it was stored, as the answer was lost. The time
// has one job nevertheless, although that is gone before the time is tried again, as jobs of Relay
// are when they are done.
func TestAnswerOfASubmissionIsLost(t *testing.T) {
	onEveryStore(t, func(w *world) {
		w.create("s", nil)
		w.clock.Advance(time.Minute)
		j := w.claim(w, 1)[0]
		lost := w.nodeOn(&lostAnswerStore{w.open(w)})
		w.finish(w, j, lost.Handle(context.Background(), &worker.ClaimedJob{Job: j}))
		made := w.wantJobs("SC-004", 1)
		if err := w.engine.Remove(context.Background(), made[0].ID); err != nil {
			w.Fatal(err)
		}
		w.passes(30*time.Second, time.Second)
		w.wantJobs("SC-004 it is not submitted again", 0)
		w.wantTicks("SC-006", "s", "60 submitted")
	})
}

// lostAnswerStore is a store of which no answer to an update arrives.
type lostAnswerStore struct{ store.Store }

func (d *lostAnswerStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	_ = d.Store.Update(ctx, fn)
	return &job.Error{Kind: job.Unavailable, Op: "test", Msg: "the answer was lost"}
}
