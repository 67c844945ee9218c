package setting

import (
	"strings"
	"testing"
	"time"
)

// TestShownIsAccepted keeps show and set each other's inverse.
func TestShownIsAccepted(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{0, 1, time.Second, 90 * time.Second, time.Minute, time.Hour,
		61 * time.Minute, 720 * time.Hour,
		time.Hour + time.Second, 10 * time.Minute, 10 * time.Hour} {
		if got, ok := ParseDuration(FormatDuration(d)); !ok || got != d {
			t.Errorf("%v is shown as %q", d, FormatDuration(d))
		}
	}
	for n, want := range map[int64]string{0: "0B", 1: "1B", 1000: "1KB", 1024: "1KiB",
		64 << 20: "64MiB", 5e9: "5GB",
		1<<63 - 1: "9223372036854775807B", 1 << 40: "1TiB", 1500: "1500B"} {
		if got, ok := parseSize(FormatSize(n)); !ok || got != n || FormatSize(n) != want {
			t.Errorf("%d is shown as %q, want %q", n, FormatSize(n), want)
		}
	}
	for d, want := range map[time.Duration]string{25 * time.Second: "25s", time.Minute: "1m",
		720 * time.Hour:  "720h",
		10 * time.Second: "10s", 10 * time.Minute: "10m", 90 * time.Minute: "1h30m"} {
		if got := FormatDuration(d); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"forgerun", "images", "taskflow", "fetchbox", "relay"}
	for word, want := range map[string]string{"relai": "relay", "Relay": "relay",
		"fetch": "fetchbox", "image": "images",
		strings.Repeat("x", 1<<20): "fetchbox"} {
		if got := Nearest(word, names); got != want {
			t.Errorf("%.20s: got %s, want %s", word, got, want)
		}
	}
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"abc", "abc", 0},
		{"ab", "ba", 1}, {"sevre", "serve", 1}, {"wrok", "work", 1}, {"ca", "abc", 3}} {
		if got := EditDistance(tt.a, tt.b); got != tt.want {
			t.Errorf("%s to %s: got %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
