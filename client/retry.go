package client

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// maxRetryAfter is the longest wait a server may ask of a call. Beyond it the
// call fails with [Error.RetryAfter] set, and its caller decides.
const maxRetryAfter = time.Minute

// Retry says how failed tries of a call are repeated. The zero value is fit
// for use.
type Retry struct {
	// MaxTries is how often a call is tried in all. Zero means 6, one means no
	// retries, a negative number means until the context ends. What a worker has
	// to say of a run that is over is tried for as long as its Run says.
	MaxTries int
	// BaseDelay is the longest wait before the second try; it doubles with
	// every further try. The wait is drawn evenly between zero and that (full
	// jitter), and what Retry-After asks for is added. Zero means 100 ms.
	BaseDelay time.Duration
	// MaxDelay is where the doubling ends. Zero means 10 s.
	MaxDelay time.Duration
}

func (r Retry) resolve() Retry {
	r.MaxTries = orDefault(r.MaxTries, 6)
	r.BaseDelay = max(orDefault(r.BaseDelay, 100*time.Millisecond), 0)
	r.MaxDelay = max(orDefault(r.MaxDelay, 10*time.Second), r.BaseDelay)
	return r
}

// backoff draws waits for a growing number of failures.
type backoff struct {
	base, max time.Duration
	random    func(limit time.Duration) time.Duration // evenly from [0, limit)
}

// delay is the wait after the given number of failures in a row, from 1 on. It
// is never less than what the server asked for.
func (b backoff) delay(failures int, retryAfter time.Duration) time.Duration {
	ceiling := b.base
	for range failures - 1 {
		if ceiling >= b.max/2 {
			ceiling = b.max
			break
		}
		ceiling *= 2
	}
	return retryAfter + b.random(ceiling+1)
}

// sleep waits, or returns false at once when the context ends.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	return await(ctx, timer)
}

// await waits for a timer, or returns false at once when the context ends.
func await(ctx context.Context, timer *time.Timer) bool {
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// retryAfter reads the header in both its forms. A date is measured against
// the server's own Date, so that the clocks need not agree.
func retryAfter(header http.Header) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil {
		return max(time.Duration(seconds)*time.Second, 0)
	}
	then, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return 0
	}
	return max(then.Sub(date), 0)
}
