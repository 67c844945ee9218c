package store

import "context"

// Observed is s with every call that asks the database made by do, which so learns how each
// ended.
func Observed(s Store, do func(call func() error) error) Store { return &observed{s, do} }

type observed struct {
	Store
	do func(call func() error) error
}

func (w *observed) Update(ctx context.Context, fn func(Tx) error) error {
	return w.do(func() error { return w.Store.Update(ctx, fn) })
}

func (w *observed) View(ctx context.Context, fn func(Reader) error) error {
	return w.do(func() error { return w.Store.View(ctx, fn) })
}

func (w *observed) Ping(ctx context.Context) error {
	return w.do(func() error { return w.Store.Ping(ctx) })
}
