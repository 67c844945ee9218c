package engine

import (
	"runtime"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// AwaitWaiting returns once so many wait for what a request asks for and no claim
// is being served.
func AwaitWaiting(e *Engine, req ClaimRequest, n int) {
	lane := lanesOf(req)[1]
	for e.hub.waiting(lane) < n || e.claims.busy() {
		runtime.Gosched()
	}
}

func (c *combiner[C]) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.serving > 0 || len(c.waiting) > 0
}

func (h *hub) waiting(lane job.Lane) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.waiters[lane])
}

// WithoutFloor makes waiting claims look only when they are woken.
func WithoutFloor(e *Engine) { e.floor = time.Hour }
