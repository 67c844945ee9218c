package setting

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseDuration reads 30s, 10m, 1h30m. It refuses a number without a unit, also zero.
func ParseDuration(s string) (time.Duration, bool) {
	if s == "" || (s[len(s)-1] >= '0' && s[len(s)-1] <= '9') {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	return d, err == nil
}

// FormatDuration writes 25s, 1m, 720h: the form of Go without trailing zero units.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// units are the units of sizes, the largest first.
var units = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"TB", 1e12}, {"GiB", 1 << 30}, {"GB", 1e9},
	{"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"KB", 1e3}, {"B", 1},
}

// parseSize reads a whole number with a unit, such as 64MiB. It refuses a number without a unit.
func parseSize(s string) (int64, bool) {
	unit := strings.TrimLeft(s, "0123456789")
	n, err := strconv.ParseInt(s[:len(s)-len(unit)], 10, 64)
	if err != nil {
		return 0, false
	}
	for _, u := range units {
		if unit == u.name {
			return n * u.bytes, n <= math.MaxInt64/u.bytes
		}
	}
	return 0, false
}

// FormatSize writes the size in the largest unit that divides it.
func FormatSize(n int64) string {
	for _, u := range units {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return "0B"
}
