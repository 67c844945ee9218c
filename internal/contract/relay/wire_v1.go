package relay

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
)

// Version 1 takes what its original takes (G-RL-29): more numbers, and more forms of
// a time.

// readTimeoutV1 reads a timeout; one below 0 is 0.
func readTimeoutV1(raw []byte) (time.Duration, error) {
	if raw == nil {
		return 0, malformed("timeout is missing")
	}
	seconds, err := readClampedInteger("timeout", raw)
	if err == nil && seconds > maxTimeout {
		err = invalid(fmt.Sprintf("timeout must be at most %d", maxTimeout))
	}
	return time.Duration(max(0, seconds)) * time.Second, err
}

// readRunLimitV1 reads max_retries as readRunLimit does: 0 where it is missing, no limit
// where it is negative, and the largest where it is larger.
func readRunLimitV1(raw []byte) (int, error) {
	switch {
	case raw == nil:
		return 1, nil
	case strictjson.IsNull(raw):
		return 0, nil
	}
	retries, err := readClampedInteger("max_retries", raw)
	if err != nil || retries < 0 {
		return 0, err
	}
	return int(min(retries, maxRetries)) + 1, nil
}

// readClampedInteger reads an integer; one that does not fit is the nearest that does.
func readClampedInteger(what string, raw []byte) (int64, error) {
	n, err := strictjson.Int(raw, 64)
	switch {
	case errors.Is(err, strictjson.ErrRange) && strictjson.Trim(raw)[0] == '-':
		return math.MinInt64, nil
	case errors.Is(err, strictjson.ErrRange):
		return math.MaxInt64, nil
	case err != nil:
		return 0, malformed(what + " must be an integer")
	}
	return n, nil
}

const runAtFormsV1 = "run_at must be a time, as in RFC 3339, RFC 2822 or RFC 1123, 2022-09-05 " +
	"04:37:23, " +
	"a date, or the number of seconds since 1970"

// readRunAtV1 reads run_at in any of its forms; times without a zone are in UTC.
func readRunAtV1(raw []byte) (time.Time, error) {
	if at, err := readRunAt(raw); err == nil {
		return at, nil
	}
	text := string(strictjson.Trim(raw))
	if strictjson.KindOf(raw) != strictjson.KindNumber {
		var err error
		if text, err = strictjson.String(raw); err != nil {
			return time.Time{}, malformed(runAtFormsV1)
		}
	}
	at, ok := parseTimeV1(text)
	if at = at.UTC().Truncate(time.Microsecond); !ok || at.Year() < 0 || at.Year() > 9999 {
		return time.Time{}, malformed(runAtFormsV1)
	}
	return at, nil
}

func parseTimeV1(text string) (time.Time, bool) {
	if strings.Trim(text, "0123456789") == "" {
		return parseEpoch(text)
	}
	text = withNumericZone(text)
	for _, layout := range timeLayoutsV1 {
		if at, err := time.Parse(layout, text); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// timeLayoutsV1 are the forms of a time beside RFC 3339. A fraction of a second is
// read where there is one.
var timeLayoutsV1 = []string{
	"2006-01-02 15:04:05",
	"2006-01-02 15:04:05Z07:00",
	"2006-01-02 15:04:05 -0700",
	"2006-01-02 15:04",
	"2006-01-02T15:04:05",
	"2006-01-02T15:04:05-0700",
	"2006-01-02",
	"2006/01/02 15:04:05",
	"2006/01/02 15:04",
	"2006/01/02",
	"Mon, _2 Jan 2006 15:04:05 -0700",
	"Mon, _2 Jan 2006 15:04 -0700",
	"_2 Jan 2006 15:04:05 -0700",
	"_2 Jan 2006 15:04 -0700",
}

// numericZones are the names of zones that RFC 2822 knows (4.3).
var numericZones = map[string]string{
	"UT": "+0000", "GMT": "+0000", "UTC": "+0000", "Z": "+0000", "EST": "-0500", "EDT": "-0400",
	"CST": "-0600", "CDT": "-0500", "MST": "-0700", "MDT": "-0600", "PST": "-0800", "PDT": "-0700",
}

// withNumericZone replaces the name of a zone at the end.
func withNumericZone(text string) string {
	index := strings.LastIndexByte(text, ' ')
	if zone := numericZones[text[index+1:]]; index > 0 && zone != "" {
		return text[:index+1] + zone
	}
	return text
}

// parseEpoch reads a number as the original does, which tells the unit by the
// digits: up to 10 are seconds, up to 13 milliseconds, 16 microseconds, 19
// nanoseconds.
func parseEpoch(digits string) (time.Time, bool) {
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case err != nil:
		return time.Time{}, false
	case len(digits) <= 10:
		return time.Unix(n, 0), true
	case len(digits) <= 13:
		return time.UnixMilli(n), true
	case len(digits) <= 16:
		return time.UnixMicro(n), true
	}
	return time.Unix(0, n), len(digits) <= 19
}
