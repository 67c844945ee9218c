package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/engine"
)

// TestYield: work in the background that took a while is followed by a pause of the same length for
// each caller beside it and for itself, but by none that outlasts the term of a publisher.
func TestYield(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		took       time.Duration
		callers    int64
		from, upTo time.Duration
	}{
		{"idle", 10 * time.Millisecond, 0, 10 * time.Millisecond, 12 * time.Millisecond},
		{"some callers", 10 * time.Millisecond, 3, 40 * time.Millisecond, 42 * time.Millisecond},
		{"busy", 10 * time.Millisecond, 63, 640 * time.Millisecond, 645 * time.Millisecond},
		{"busy after long work", 10 * time.Second, 1, time.Second, 2500 * time.Millisecond},
		{"no work", 0, 5, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				started := time.Now()
				engine.Yield(t.Context(), tt.took, tt.callers)
				if waited := time.Since(started); waited < tt.from || waited > tt.upTo {
					t.Errorf("after %v with %d callers it waited %v, want %v to %v", tt.took,
						tt.callers, waited, tt.from, tt.upTo)
				}
			})
		})
	}
}
