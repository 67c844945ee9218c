package queues

import (
	"testing"

	"github.com/millrace/millrace/client"
)

// TestDrains (AD-030): how long a queue takes is said at the pace of the last minutes, and not
// where there is none.
func TestDrains(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		ready  int64
		pace   float64
		paused bool
		want   string
	}{
		{"AD-030 minutes", 593, 84, false, "7 min"},
		{"AD-030 seconds", 3, 120, false, "1 s"},
		{"AD-030 hours", 10_000, 10, false, "16 h"},
		{"AD-030 nothing starts", 5, 0, false, ""},
		{"AD-030 nothing is ready", 0, 84, false, ""},
		{"AD-030 paused", 593, 84, true, ""},
	} {
		q := client.AdminQueue{Ready: tt.ready, StartedPerMinute: &tt.pace, Paused: tt.paused,
			Workers: 1}
		if got := drains(q); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	pace := 84.0
	for name, q := range map[string]client.AdminQueue{"a pace that is not known": {Ready: 5,
		Workers: 1}, "no worker": {Ready: 5, StartedPerMinute: &pace}} {
		if got := drains(q); got != "" {
			t.Errorf("AD-030 %s gives %q", name, got)
		}
	}
}
