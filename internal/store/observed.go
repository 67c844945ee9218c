package store

import "context"

// Observed returns s with every Update, View and Ping run by do. do runs the call, returns its
// error, and so observes how each call to the database ended.
func Observed(s Store, do func(call func() error) error) Store { return &observedStore{s, do} }

type observedStore struct {
	Store
	do func(call func() error) error
}

func (o *observedStore) Update(ctx context.Context, fn func(Tx) error) error {
	return o.do(func() error { return o.Store.Update(ctx, fn) })
}

func (o *observedStore) View(ctx context.Context, fn func(Reader) error) error {
	return o.do(func() error { return o.Store.View(ctx, fn) })
}

func (o *observedStore) Ping(ctx context.Context) error {
	return o.do(func() error { return o.Store.Ping(ctx) })
}
