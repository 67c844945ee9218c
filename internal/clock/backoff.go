package clock

import (
	"context"
	"time"
)

// Backoff has the pauses between the tries of something that fails: the first one is Min, each
// further one is twice as long, and none is longer than Max. It is not safe for concurrent use.
type Backoff struct {
	Min, Max time.Duration

	next time.Duration // 0 for Min
}

// Next returns the next pause.
func (b *Backoff) Next() time.Duration {
	pause := min(max(b.next, b.Min), b.Max)
	b.next = 2 * pause
	return pause
}

// Sleep waits for the next pause or until ctx ends, and reports whether ctx has not ended.
func (b *Backoff) Sleep(ctx context.Context) bool { return Sleep(ctx, b.Next()) }

// Reset makes the next pause the first one, as after a success.
func (b *Backoff) Reset() { b.next = 0 }
