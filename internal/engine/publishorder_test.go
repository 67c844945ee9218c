package engine_test

import (
	"context"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// between runs something once after a look at the outbox.
type between struct {
	store.Store
	once sync.Once
	do   func()
}

func (s *between) Update(ctx context.Context, fn func(store.Tx) error) error {
	return s.Store.Update(ctx, func(tx store.Tx) error { return fn(&betweenTx{tx, s}) })
}

type betweenTx struct {
	store.Tx
	s *between
}

func (t *betweenTx) Messages(contracts []string, n int) ([]job.Message, error) {
	all, err := t.Tx.Messages(contracts, n)
	if len(all) > 0 && n > 1 {
		t.s.once.Do(t.s.do)
	}
	return all, err
}

// What was written in one transaction is published in its order, also where it is of two contracts and comes while the
// outbox is looked at: all that a look sees is of one moment.
func TestPublishOfTwoContractsKeepsOrder(t *testing.T) {
	t.Parallel()
	bare := openPostgres(t)
	add := func(messages ...job.Message) {
		if err := bare.Update(context.Background(), func(tx store.Tx) error { return tx.AddMessages(messages) }); err != nil {
			t.Fatal(err)
		}
	}
	m := func(contract, key string) job.Message {
		return job.Message{JobID: job.ID{Contract: contract, Key: key}}
	}
	add(m("graph", "first"))
	s := &between{Store: bare, do: func() { add(m("graph", "parent starts"), m("phased", "child is claimed")) }}
	e := testkit.Engine(t, s, testkit.NewClock(), made()...)
	var got, last int64
	if _, err := e.Publish(t.Context(), func(_ context.Context, batch []job.Message) error {
		for _, m := range batch {
			if m.ID < last {
				t.Errorf("%s (%d) comes after %d", m.JobID.Key, m.ID, last)
			}
			last = m.ID
			got++
		}
		return nil
	}, "graph", "phased"); err != nil {
		t.Fatal(err)
	}
	if got != 3 {
		t.Errorf("%d were published", got)
	}
}
