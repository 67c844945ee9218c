package engine

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// RecordReader reads records. It never returns those that have expired.
type RecordReader interface {
	// Now is the store's time, one value for all of a view or change.
	Now() time.Time
	// Record returns a record, nil if there is none.
	Record(kind, key string) (*job.Record, error)
	// Records returns the first limit records of a kind and owner with a key above after, by key.
	Records(kind, owner, after string, limit int) ([]job.Record, error)
	// RecordsOfEach returns the first limit records of a kind of each owner, by owner and key.
	RecordsOfEach(kind string, owners []string, limit int) ([]job.Record, error)
	// RecordsOf returns those of the records that exist, by key.
	RecordsOf(kind string, keys ...string) ([]job.Record, error)
	// AllRecords returns the first limit records of a kind with a key above after, whoever owns
	// them, by key.
	AllRecords(kind, after string, limit int) ([]job.Record, error)
}

// RecordWriter reads and writes records.
type RecordWriter interface {
	RecordReader
	// UpsertRecords inserts or replaces records. It sets CreatedAt to when the key was first
	// inserted and UpdatedAt to now, whatever the caller has set.
	UpsertRecords(records ...job.Record) error
	// DeleteRecords deletes records; a key that does not exist is ignored.
	DeleteRecords(kind string, keys ...string) error
	// Lock makes the changes that lock the same name run one after another, on all nodes; it is
	// the lock of ChangeRecords. A read behind it sees all that earlier calls have written.
	Lock(name string) error
	// PublishEvent publishes what happens in this transaction, at its time, to the subscriptions
	// that want it.
	PublishEvent(n FeedEvent)

	// unit is the unit of work of the transaction. This package alone implements RecordWriter.
	unit() *unit
}

type recordView struct{ store.Reader }

func (v recordView) Record(kind, key string) (*job.Record, error) {
	found, err := v.RecordsOf(kind, key)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

func (v recordView) Records(kind, owner, after string, limit int) ([]job.Record, error) {
	return v.Reader.Records(store.RecordSelector{
		Kind:  kind,
		Owner: owner,
		After: after,
		Limit: limit,
	})
}

func (v recordView) RecordsOfEach(kind string, owners []string, limit int) ([]job.Record, error) {
	if len(owners) == 0 {
		return nil, nil
	}
	return v.Reader.Records(store.RecordSelector{Kind: kind, Owners: owners, Limit: limit})
}

func (v recordView) RecordsOf(kind string, keys ...string) ([]job.Record, error) {
	return v.Reader.Records(store.RecordSelector{Kind: kind, Keys: keys})
}

func (v recordView) AllRecords(kind, after string, limit int) ([]job.Record, error) {
	return v.Reader.Records(store.RecordSelector{
		Kind:     kind,
		AnyOwner: true,
		After:    after,
		Limit:    limit,
	})
}

type recordChange struct {
	recordView
	tx store.Tx
	u  *unit
}

// records reads and writes records in the transaction.
func (u *unit) records() recordChange { return recordChange{recordView{u.tx}, u.tx, u} }

func (c recordChange) unit() *unit { return c.u }

func (c recordChange) Lock(name string) error { return c.tx.LockName("records:" + name) }

func (c recordChange) UpsertRecords(records ...job.Record) error {
	return c.tx.Apply(store.Changes{Records: records})
}

func (c recordChange) DeleteRecords(kind string, keys ...string) error {
	records := make([]store.RecordKey, len(keys))
	for i, key := range keys {
		records[i] = store.RecordKey{Kind: kind, Key: key}
	}
	return c.tx.Apply(store.Changes{DeleteRecords: records})
}

// ViewRecords runs fn on a consistent snapshot.
func (e *Engine) ViewRecords(ctx context.Context, fn func(RecordReader) error) error {
	return e.view(ctx, func(r reader) error { return fn(recordView{r}) })
}

// StoreTime returns the time of the store.
func (e *Engine) StoreTime(ctx context.Context) (now time.Time, err error) {
	err = e.view(ctx, func(r reader) error { now = r.Now(); return nil })
	return now, err
}

// ChangeRecords runs fn in a transaction: what it writes is on stable storage when ChangeRecords
// returns without an error, and none of it is there otherwise. Changes with the same lock run one
// after another, on all nodes. fn may run more than once, so it must have no other effects.
func (e *Engine) ChangeRecords(ctx context.Context, lock string,
	fn func(RecordWriter) error) error {
	return e.update(ctx, func(u *unit) error {
		w := u.records()
		if err := w.Lock(lock); err != nil {
			return err
		}
		return fn(w)
	})
}
