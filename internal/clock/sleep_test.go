package clock_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/testkit"
)

func TestSleep(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	if !clock.Sleep(ctx, time.Nanosecond) {
		t.Error("a sleep in a live context reports that the context has ended")
	}
	time.AfterFunc(time.Millisecond, cancel)
	if clock.Sleep(ctx, time.Hour) {
		t.Error("a sleep that its context ended reports that it went on")
	}
	if clock.Sleep(ctx, 0) {
		t.Error("no sleep in an ended context reports that the context lives")
	}
}

// A tick is a multiple of a duration on the clock, and the next one is that far away at most.
func TestUntilTick(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{time.Nanosecond, time.Microsecond, time.Second, time.Hour} {
		before := time.Now()
		wait := clock.UntilTick(d)
		if !testkit.HasTick(before, time.Now(), wait, d) {
			t.Errorf("a wait of %s at %s is not until a multiple of %s", wait, before, d)
		}
	}
}

func TestTimer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	if !clock.Timer(nil).Wait(ctx, time.Nanosecond) {
		t.Error("the real timer reports that its time has not passed")
	}
	fires, stopped := make(chan time.Time, 1), 0
	timer := clock.Timer(func(d time.Duration) (<-chan time.Time, func()) {
		if d != time.Hour {
			t.Errorf("the timer was started with %s", d)
		}
		return fires, func() { stopped++ }
	})
	fires <- time.Time{}
	if !timer.Wait(ctx, time.Hour) || stopped != 1 {
		t.Errorf("the replaced timer does not pass, or was stopped %d times, want 1", stopped)
	}
	cancel()
	if timer.Wait(ctx, time.Hour) || stopped != 2 {
		t.Errorf("a wait in an ended context passes, or its timer was stopped %d times", stopped)
	}
	early := make(chan struct{}, 1)
	early <- struct{}{}
	if !clock.SleepOr(t.Context(), time.Hour, early) {
		t.Error("a sleep that ended early reports that its context has ended")
	}
}
