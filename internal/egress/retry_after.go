package egress

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RetryAfter returns the delay that a response asks for by its header Retry-After, in seconds or as
// a date, and at most limit. A header that cannot be read counts as absent, which is 0.
func RetryAfter(h http.Header, now time.Time, limit time.Duration) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value != "" && strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(limit/time.Second) {
			return limit
		}
		return time.Duration(seconds) * time.Second
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(0, date.Sub(now)), limit)
}
