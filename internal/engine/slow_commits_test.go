package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// slowStore is a store with many writers that takes so long by the test's clock, and nothing else.
type slowStore struct {
	store.Store
	clock              *testkit.Clock
	statements, commit time.Duration
}

func (s *slowStore) Writers() int { return 16 }

func (s *slowStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	err := s.Store.Update(ctx, func(tx store.Tx) error { return fn(slowTx{tx, s}) })
	if err == nil {
		s.clock.Advance(s.commit)
	}
	return err
}

// slowTx is a transaction whose inserts are slow.
type slowTx struct {
	store.Tx
	s *slowStore
}

func (tx slowTx) Apply(changes store.Changes) error {
	if len(changes.Insert) > 0 {
		tx.s.clock.Advance(tx.s.statements)
	}
	return tx.Tx.Apply(changes)
}

// How long the transactions of groups take for their commits, beside their statements, decides how
// many groups are served at a time. Claims in vain, which write nothing, do not count.
func TestGroupsFollowCommits(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		slow := &slowStore{Store: w.store, clock: w.clock}
		w.engine = testkit.NewEngine(w, slow, w.clock, testJobTypes()...)
		submitted := 0
		for _, c := range []struct {
			statements, commit time.Duration
			groups             int
		}{
			{4 * time.Millisecond, time.Millisecond, 2},
			{4 * time.Millisecond, 9 * time.Millisecond, 4},
			{time.Millisecond, 200 * time.Millisecond, 5},
			{200 * time.Millisecond, time.Millisecond, 2},
		} {
			slow.statements, slow.commit = c.statements, c.commit
			for range 60 {
				submitted++
				w.submit(sub(fmt.Sprint("brief/", submitted)))
				w.claim("brief", 1, "nowhere")
			}
			if got := engine.MaxGroups(w.engine); got != c.groups {
				w.Errorf("statements of %v and commits of %v: %d groups, want %d", c.statements,
					c.commit, got, c.groups)
			}
		}
	})
}
