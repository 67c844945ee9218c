package console

import (
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/outside"
)

// maxScript bounds the script, in bytes.
const maxScript = 15_000

// TestScript: CO-001: the script is small, and its types are right.
func TestScript(t *testing.T) {
	t.Parallel()
	if len(scriptText) > maxScript {
		t.Errorf("the script has %d bytes, more than %d", len(scriptText), maxScript)
	}
	outside.CheckTypes(t, "script.js")
}

// TestRelative: the server says how long ago things were as the script does (TestConsoleTimes).
func TestRelative(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{-400 * time.Millisecond: "now",
		-59900 * time.Millisecond: "59 s ago", -time.Minute: "1 min ago",
		-3599 * time.Second: "59 min ago", -172799 * time.Second: "47 h ago",
		-172800 * time.Second: "2 d ago", 61 * time.Second: "in 1 min",
		90000 * time.Second: "in 25 h"} {
		if got := relative(d); got != want {
			t.Errorf("%v from now is %q, want %q", d, got, want)
		}
	}
}

// TestLasted: durations have two units at most, and none that is zero.
func TestLasted(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{0: "0", 90 * time.Microsecond: "90 µs",
		1500 * time.Microsecond: "1.5 ms", 250 * time.Millisecond: "250 ms",
		2500 * time.Millisecond: "2.5 s", 59 * time.Second: "59 s", time.Minute: "1 min",
		61 * time.Second: "1 min 1 s", time.Hour: "1 h", 90 * time.Minute: "1 h 30 min",
		50 * time.Hour: "2 d 2 h", -time.Minute: "-1 min"} {
		if got := formatDuration(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
