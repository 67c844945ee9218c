package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// An account is read for as long as the server answers, however many jobs there are, and no longer.
func TestSimulateReadsOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &simulator{flags: &simulateFlags{settle: time.Minute}, clients: []*simClient{{}, {}}}
		began := time.Now()
		err := s.each(t.Context(), func(ctx context.Context, _ *simClient) error {
			for range 60 {
				time.Sleep(30 * time.Second)
				s.heard()
			}
			return ctx.Err()
		})
		if took := time.Since(began); err != nil || took != 30*time.Minute {
			t.Errorf("read for %s: %v", took, err)
		}
		began = time.Now()
		err = s.each(t.Context(), func(ctx context.Context, _ *simClient) error { <-ctx.Done(); return ctx.Err() })
		if took := time.Since(began); !errors.Is(err, errSilent) || took != time.Minute {
			t.Errorf("silent for %s: %v", took, err)
		}
	})
}
