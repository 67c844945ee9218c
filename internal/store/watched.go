package store

import "context"

// Watched is s with every call that asks the database made by do, which so learns how each
// ended.
func Watched(s Store, do func(call func() error) error) Store { return &watched{s, do} }

type watched struct {
	Store
	do func(call func() error) error
}

func (w *watched) Update(ctx context.Context, fn func(Tx) error) error {
	return w.do(func() error { return w.Store.Update(ctx, fn) })
}

func (w *watched) View(ctx context.Context, fn func(Reader) error) error {
	return w.do(func() error { return w.Store.View(ctx, fn) })
}

func (w *watched) Ping(ctx context.Context) error {
	return w.do(func() error { return w.Store.Ping(ctx) })
}
