package engine_test

import (
	"context"

	"github.com/millrace/millrace/internal/store"
)

// wrappedStore is a store that gives its updates the transactions that wrap makes of its own.
type wrappedStore struct {
	store.Store
	wrap func(store.Tx) store.Tx
}

func (s *wrappedStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	return s.Store.Update(ctx, func(tx store.Tx) error { return fn(s.wrap(tx)) })
}
