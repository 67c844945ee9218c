package egress_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/egress"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const limit = 24 * time.Hour
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, " 120 ": 2 * time.Minute, "86400": limit,
		"86401": limit, "4294967296": limit, "99999999999999999999999": limit,
		"-5": 0, "1.5": 0, "soon": 0, "5s": 0, "\x00": 0,
		"Sun, 01 Mar 2026 12:01:30 GMT":      90 * time.Second,
		"Sun, 01 Mar 2026 11:00:00 GMT":      0,
		"Sunday, 01-Mar-26 12:00:10 GMT":     10 * time.Second,
		"Sun Mar  1 12:00:20 2026":           20 * time.Second,
		"Sun, 01 Mar 2099 12:01:30 GMT":      limit,
		"Sun, 01 Mar 2026 12:01:30 +0000 xx": 0,
	} {
		h := http.Header{"Retry-After": {value}}
		if got := egress.RetryAfter(h, now, limit); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
	if got := egress.RetryAfter(http.Header{}, now, limit); got != 0 {
		t.Errorf("without the header: %v", got)
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "1", "-1", "Sun, 01 Mar 2026 12:01:30 GMT",
		"99999999999999999999"} {
		f.Add(s)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, value string) {
		h := http.Header{"Retry-After": {value}}
		if d := egress.RetryAfter(h, now, 24*time.Hour); d < 0 || d > 24*time.Hour {
			t.Errorf("%q asks for %v", value, d)
		}
	})
}
