package client

import (
	"math"
	"net/http"
	"testing"
	"time"
)

func TestEscape(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"plain-Name_1.2~": "plain-Name_1.2~",
		"a/b":             "a%2Fb",
		"a b+c":           "a%20b%2Bc",
		"100%":            "100%25",
		"?x=1&y#z":        "%3Fx%3D1%26y%23z",
		".":               "%2E",
		"..":              "%2E%2E",
		"...":             "...",
		"../x":            "..%2Fx",
		"é":               "%C3%A9",
		"日":               "%E6%97%A5",
		"\x00\n":          "%00%0A",
		";:@$!*'(),[]":    "%3B%3A%40%24%21%2A%27%28%29%2C%5B%5D",
	} {
		if got := escape(name); got != want {
			t.Errorf("escape(%q) = %s, want %s", name, got, want)
		}
	}
}

func TestBackoff_delay(t *testing.T) {
	t.Parallel()
	highest := backoff{base: 100 * time.Millisecond, max: time.Second,
		random: func(limit time.Duration) time.Duration { return limit - 1 }}
	for failures, want := range map[int]time.Duration{
		1:  100 * time.Millisecond,
		2:  200 * time.Millisecond,
		4:  800 * time.Millisecond,
		5:  time.Second,
		60: time.Second, // no overflow on the way
	} {
		if got := highest.delay(failures, 0); got != want {
			t.Errorf("delay(%d) = %s, want %s", failures, got, want)
		}
	}
	lowest := highest
	lowest.random = func(time.Duration) time.Duration { return 0 }
	if got := lowest.delay(3, 7*time.Second); got != 7*time.Second {
		t.Errorf("delay with Retry-After = %s, want 7s and never less", got)
	}
	if got := lowest.delay(3, 0); got != 0 {
		t.Errorf("full jitter reaches down to %s, want 0", got)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	const date = "Fri, 01 May 2026 12:00:00 GMT"
	for _, tc := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", date, 0},
		{"3", "", 3 * time.Second},
		{"-3", "", 0},
		{"soon", date, 0},
		{"99999999999999999999", "", 0},
		{"Fri, 01 May 2026 12:00:05 GMT", date, 5 * time.Second},
		{"Fri, 01 May 2026 11:00:00 GMT", date, 0},
		{"Fri, 01 May 2026 12:00:05 GMT", "", 0},
	} {
		header := http.Header{"Retry-After": {tc.value}, "Date": {tc.date}}
		if got := retryAfter(header); got != tc.want {
			t.Errorf("retryAfter(%q at %q) = %s, want %s", tc.value, tc.date, got, tc.want)
		}
	}
}

func TestHeartbeatSchedule(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		timeout, maxInterval, every time.Duration
		misses                      int
	}{
		{30 * time.Second, 0, 10 * time.Second, 3},
		{time.Second, 0, time.Second / 3, 3},
		{0, 0, time.Second, 0},
		{0, time.Minute, time.Second, 0},
		{0, time.Second / 2, time.Second / 2, 0},
		{time.Hour, time.Minute, time.Minute, 60},
		{30 * time.Second, 7 * time.Second, 7 * time.Second, 5},
		{30 * time.Second, time.Hour, 10 * time.Second, 3},
		{math.MaxInt32 * time.Second, 0, math.MaxInt32 * time.Second / 3, 3},
	} {
		every, missed := heartbeatSchedule(tc.timeout, tc.maxInterval)
		if every != tc.every || missed != tc.misses {
			t.Errorf("heartbeatSchedule(%s, %s) = %s, %d, want %s, %d", tc.timeout, tc.maxInterval, every,
				missed, tc.every, tc.misses)
		}
	}
}

func TestWholeSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		0: 0, time.Second: 1, time.Millisecond: 1, 1500 * time.Millisecond: 2,
		-time.Millisecond: -1, -time.Second: -1, math.MaxInt32 * time.Second: math.MaxInt32,
	} {
		if got := wholeSeconds(d); got != want {
			t.Errorf("wholeSeconds(%s) = %d, want %d", d, got, want)
		}
	}
}
