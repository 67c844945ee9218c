package webhook

import (
	"time"

	"github.com/millrace/millrace/internal/job"
)

// maxRetryAfter bounds the delay that a receiver may ask for, so that a wrong header cannot hold a
// delivery for ever.
const maxRetryAfter = 24 * time.Hour

// retryDelay returns the delay before the next try. With the defaults (1 s, ×5, 2 h) eight tries
// take about three hours (G-FR-48). A receiver may ask for more than that, not for less: the tries
// must outlast an outage that is longer than the receiver expects.
func (w *Webhooks) retryDelay(n int, requested time.Duration) time.Duration {
	return max(job.Varied(w.BackoffBase, w.BackoffMax, w.BackoffFactor, n, w.randomFloat()),
		requested).Truncate(time.Microsecond)
}
