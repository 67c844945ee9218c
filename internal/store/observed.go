package store

import "context"

// Observed returns s with every Update, View and Ping run by do. do runs the call, returns its
// error, and so observes how each call to the database ended.
func Observed(s Store, do func(call func() error) error) Store { return &observed{s, do} }

type observed struct {
	Store
	do func(call func() error) error
}

func (o *observed) Update(ctx context.Context, fn func(Tx) error) error {
	return o.do(func() error { return o.Store.Update(ctx, fn) })
}

func (o *observed) View(ctx context.Context, fn func(Reader) error) error {
	return o.do(func() error { return o.Store.View(ctx, fn) })
}

func (o *observed) Ping(ctx context.Context) error {
	return o.do(func() error { return o.Store.Ping(ctx) })
}
