package engine

import "sync/atomic"

// latest is the copy that a node has in memory of what any node may change in the store. It keeps
// what the read has found that began last: reads at the same time may end in another order, and one
// that began before a change must not undo it here.
type latest[T any] struct{ kept atomic.Pointer[numbered[T]] }

// numbered is what a read has found, and the number of the read.
type numbered[T any] struct {
	value T
	read  int64
}

// beginRead returns the number of a read, which the caller begins afterwards. What was committed
// before it began is in the read, and in those with higher numbers.
func (e *Engine) beginRead() int64 { return e.reads.Add(1) }

// keep keeps what a read has found, unless one with a higher number has ended, and returns what it
// replaces; nil is nothing. The first unit of a node reads without a number, as 0.
func (l *latest[T]) keep(value T, read int64) (before *numbered[T]) {
	for now := l.kept.Load(); now == nil || now.read <= read; now = l.kept.Load() {
		if l.kept.CompareAndSwap(now, &numbered[T]{value, read}) {
			return now
		}
	}
	return nil
}

// get returns what is kept, and whether anything was read.
func (l *latest[T]) get() (value T, isRead bool) {
	now := l.kept.Load()
	if now == nil {
		return value, false
	}
	return now.value, true
}
