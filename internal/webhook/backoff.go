package webhook

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter bounds the delay that a receiver may ask for, so that a wrong header cannot hold a
// delivery for ever.
const maxRetryAfter = 24 * time.Hour

// jitterFraction is the share of a delay by which it is randomly made longer or shorter.
const jitterFraction = 0.2

// backoff returns the delay after the n-th failed try, counted from 1: base × factor^(n−1), made
// longer or shorter by up to a fifth, and at most limit. draw from [0, 1) decides the jitter. With
// the defaults (1 s, ×5, 2 h) eight tries take about three hours (G-FR-48).
func backoff(base, limit time.Duration, factor float64, n int, draw float64) time.Duration {
	d := float64(base)
	for ; n > 1 && d < float64(limit) && factor > 1; n-- {
		d *= factor
	}
	d = min(d, float64(limit))
	return time.Duration(min(d*(1-jitterFraction+2*jitterFraction*draw), float64(limit)))
}

// parseRetryAfter reads the header Retry-After: seconds or a date. A header that cannot be read
// counts as absent.
func parseRetryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if strings.Trim(v, "0123456789") == "" {
		seconds, err := strconv.ParseInt(v, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// retryDelay returns the delay before the next try. A receiver may ask for more than the backoff,
// not for less: the tries must outlast an outage that is longer than the receiver expects.
func (w *Webhooks) retryDelay(n int, requested time.Duration) time.Duration {
	return max(backoff(w.BackoffBase, w.BackoffMax, w.BackoffFactor, n, w.randomFloat()),
		requested).Truncate(time.Microsecond)
}
