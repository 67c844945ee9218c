package bulk_test

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// hookedStore is a store that calls begins before each call, and ends before the commit of each
// that has written a mark of an operation.
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
		watched := &markingTx{Tx: tx}
		err := fn(watched)
		if err == nil && watched.marks {
			h.ends()
		}
		return err
	})
}

type markingTx struct {
	store.Tx
	marks bool
}

func (t *markingTx) Apply(c store.Changes) error {
	for _, r := range c.Records {
		t.marks = t.marks || r.Kind == "bulk.mark"
	}
	return t.Tx.Apply(c)
}

// cancelInAction cancels an operation while one of its actions is about to commit. waits returns
// once the cancel waits for the action, or was answered. The answer and what is written with it
// count the action.
func cancelInAction(t *testing.T, clock *testkit.Clock, first, second store.Store,
	waits func(started <-chan struct{}, answered func() bool)) {
	t.Helper()
	stopped, let, started := make(chan struct{}), make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(let) })
	stop := sync.OnceFunc(func() { close(stopped); <-let })
	n := newNode(t, &hookedStore{first, func() {}, stop}, clock)
	n.submit(t, "a", 2) // of which the rate allows one
	id := n.start(t, bulk.Request{Action: contract.ActionDelete, Rate: 1}, "a")
	begin := sync.OnceFunc(func() { close(started) })
	other := newNode(t, &hookedStore{second, begin, func() {}}, clock)

	var both sync.WaitGroup
	defer both.Wait()
	defer release()
	both.Go(func() { n.runUnfinished(t) })
	testkit.Receive(t, "the action to be about to commit", stopped)
	answered := make(chan *bulk.Operation, 1)
	written := int64(-1)
	both.Go(func() {
		o, err := other.ops.Change(t.Context(), id, bulk.Cancel,
			func(_ engine.RecordWriter, _ string, o *bulk.Operation) error {
				written = o.Done
				return nil
			})
		if err != nil {
			t.Error(err)
		}
		answered <- o
	})
	waits(started, func() bool { return len(answered) > 0 })
	release()
	both.Wait()
	if o := <-answered; o == nil || o.Done != 1 || written != 1 || o.State != bulk.Canceled {
		t.Errorf("AD-021 the answer is %+v and %d were written, want 1", o, written)
	}
	if left := len(n.list(t, "a")); left != 1 {
		t.Errorf("%d jobs are left, want 1", left)
	}
	n.want(t, id, bulk.Canceled, 1, 0, 0)
}

// AD-021: a cancel counts what the batch has really changed, also what commits beside it.
func TestCancelCountsActionsBesideItOnPostgres(t *testing.T) {
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
	cancelInAction(t, clock, open(url), open(url+"&application_name="+application),
		func(_ <-chan struct{}, answered func() bool) {
			testkit.WaitUntil(t, "the cancel to wait for a lock", func() bool {
				var waiting int
				if err := db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE
					application_name=$1 AND wait_event_type='Lock'`,
					application).Scan(&waiting); err != nil {
					t.Fatal(err)
				}
				return waiting > 0 || answered()
			})
		})
}

// AD-021: on SQLite a cancel that has begun waits for the one writer.
func TestCancelCountsActionsBesideItOnSQLite(t *testing.T) {
	t.Parallel()
	p := testkit.InMemory(t)
	cancelInAction(t, p.Clock, p.Store, p.Store, func(started <-chan struct{}, _ func() bool) {
		testkit.Receive(t, "the cancel to begin", started)
	})
}
