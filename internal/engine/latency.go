package engine

import (
	"sync"
	"time"
)

// latencies are how long the transactions of this node have taken.
type latencies struct {
	mu  sync.Mutex
	all Histogram
}

func (l *latencies) observe(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Observe(d)
}

// TakeLatencies returns how long the transactions of this node have taken since the last call of
// it, from their beginning to the commit.
func (e *Engine) TakeLatencies() Histogram {
	l := &e.latencies
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.all
	l.all = Histogram{}
	return taken
}
