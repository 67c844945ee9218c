package client

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// maxRetryAfter is the longest Retry-After that a call waits for. A call whose server asks for
// more fails with [Error.RetryAfter] set, and its caller decides.
const maxRetryAfter = time.Minute

// Retry is the policy by which the tries of a call are repeated (see "Errors and retries" in the
// comment of the package). The zero value is ready to use.
type Retry struct {
	// MaxTries limits the tries of one call, the first included. Zero means 6, one means no
	// retries, and a negative number means until the context ends. The requests by which a
	// worker finishes a run are tried as long as [Worker.Run] and [JobWorker.Run] say.
	MaxTries int
	// BaseDelay is the longest pause before the second try; it doubles with every further try.
	// The pause is random between zero and that (full jitter), on top of Retry-After if the
	// server sent it. Zero means 100 ms.
	BaseDelay time.Duration
	// MaxDelay is where the doubling ends. Zero means 10 s.
	MaxDelay time.Duration
}

// resolve replaces zero fields by their defaults.
func (r Retry) resolve() Retry {
	r.MaxTries = orDefault(r.MaxTries, 6)
	r.BaseDelay = max(orDefault(r.BaseDelay, 100*time.Millisecond), 0)
	r.MaxDelay = max(orDefault(r.MaxDelay, 10*time.Second), r.BaseDelay)
	return r
}

// backoff computes pauses that grow with the number of failures.
type backoff struct {
	base, max time.Duration
	random    func(limit time.Duration) time.Duration // even over [0, limit)
}

// delay returns the pause after that many failures in a row, from 1 on. It is never shorter than
// retryAfter.
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

// sleep pauses for d. It returns false, and at once, when the context ends.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	return await(ctx, timer)
}

// await waits for a timer. It returns false, and at once, when the context ends.
func await(ctx context.Context, timer *time.Timer) bool {
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// retryAfter reads Retry-After, in seconds or as a date; 0 when there is none. A date is compared
// with the server's own Date header, so that the clocks need not agree.
func retryAfter(header http.Header) time.Duration {
	value := header.Get("Retry-After")
	seconds, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return untilDate(value, header.Get("Date"))
	}
	return max(time.Duration(seconds)*time.Second, 0)
}

// untilDate returns the time between two HTTP dates; 0 when one of them is none.
func untilDate(then, now string) time.Duration {
	end, err := http.ParseTime(then)
	if err != nil {
		return 0
	}
	start, err := http.ParseTime(now)
	if err != nil {
		return 0
	}
	return max(end.Sub(start), 0)
}

// The requests that report the outcome of a run are tried until the server gives a definite answer,
// instead of Retry.MaxTries: a server that is unavailable, or asks to try again, gives no job to
// another worker. The context of such a request has the outage of the worker, which logs the
// failures.

// maxOutcomePause is the longest pause between two tries to report an outcome, besides Retry-After:
// it has to reach a server that is back before the lease ends.
const maxOutcomePause = 2 * time.Second

type outcomeTriesKey struct{}

// withOutcomeTries returns a context whose calls report an outcome.
func withOutcomeTries(ctx context.Context, outage *serverOutage) context.Context {
	return context.WithValue(ctx, outcomeTriesKey{}, outage)
}

// withoutOutcomeTries returns a context whose calls are tried as Retry says, and whose failures are
// not reported to the outage: for calls that others follow in any case.
func withoutOutcomeTries(ctx context.Context) context.Context {
	return withOutcomeTries(ctx, nil)
}

// outcomeTriesOf returns the outage that withOutcomeTries has set; nil for calls that report no
// outcome.
func outcomeTriesOf(ctx context.Context) *serverOutage {
	outage, _ := ctx.Value(outcomeTriesKey{}).(*serverOutage)
	return outage
}

// isDefinite reports whether the error of a request is an answer that another try would get too. No
// answer and one that is ErrRetryable are not: they say nothing about the run.
func isDefinite(err error) bool { return statusOf(err) != 0 && !errors.Is(err, ErrRetryable) }
