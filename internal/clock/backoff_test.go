package clock_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/clock"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := clock.Backoff{Min: 5, Max: 33}
	next := func(n int) (pauses []time.Duration) {
		for range n {
			pauses = append(pauses, b.Next())
		}
		return pauses
	}
	if got, want := next(5), []time.Duration{5, 10, 20, 33, 33}; !slices.Equal(got, want) {
		t.Errorf("the pauses are %d, want %d", got, want)
	}
	b.Reset()
	if got, want := next(2), []time.Duration{5, 10}; !slices.Equal(got, want) {
		t.Errorf("after a reset the pauses are %d, want %d", got, want)
	}
	if !b.Sleep(t.Context()) || b.Next() != 33 {
		t.Error("a sleep was cut short, or is no pause of its own")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if b.Sleep(ended) {
		t.Error("a sleep in an ended context reports that the context lives")
	}
}
