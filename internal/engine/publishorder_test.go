package engine_test

import (
	"context"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// betweenTx runs a function once after a read of the outbox.
type betweenTx struct {
	store.Tx
	once *sync.Once
	do   func()
}

func (t *betweenTx) Messages(jobTypes []string, n int) ([]job.Message, error) {
	all, err := t.Tx.Messages(jobTypes, n)
	if len(all) > 0 && n > 1 {
		t.once.Do(t.do)
	}
	return all, err
}

// What was written in one transaction is published in its order, also where it is of two job types
// and is committed while the outbox is read: a read of the outbox sees one moment.
func TestPublishOfTwoJobTypesKeepsOrder(t *testing.T) {
	t.Parallel()
	inner := openPostgres(t)
	add := func(messages ...job.Message) {
		if err := inner.Update(context.Background(), func(tx store.Tx) error {
			return tx.Apply(store.Changes{Messages: messages})
		}); err != nil {
			t.Fatal(err)
		}
	}
	m := func(jobType, key string) job.Message {
		return job.Message{JobID: job.ID{JobType: jobType, Key: key}}
	}
	add(m("graph", "first"))
	var once sync.Once
	between := func() { add(m("graph", "parent starts"), m("phased", "child is claimed")) }
	s := &wrappedStore{inner, func(tx store.Tx) store.Tx { return &betweenTx{tx, &once, between} }}
	e := testkit.NewEngine(t, s, testkit.NewClock(), testJobTypes()...)
	var got, last int64
	deliver := func(_ context.Context, batch []job.Message) error {
		for _, m := range batch {
			if m.ID < last {
				t.Errorf("%s (%d) comes after %d", m.JobID.Key, m.ID, last)
			}
			last = m.ID
			got++
		}
		return nil
	}
	for range 2 { // what was written meanwhile is left to the next call
		if _, err := e.Publish(t.Context(), deliver, "graph", "phased"); err != nil {
			t.Fatal(err)
		}
	}
	if got != 3 {
		t.Errorf("%d were published", got)
	}
}
