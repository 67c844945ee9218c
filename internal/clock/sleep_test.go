package clock_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/clock"
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
