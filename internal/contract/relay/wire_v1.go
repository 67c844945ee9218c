package relay

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
)

// Version 1 accepts what the original server accepts (G-RL-29): integers beyond the limits, which
// are clamped, and more forms of a time.

// readTimeoutV1 reads a timeout; a negative one counts as 0.
func readTimeoutV1(raw []byte) (time.Duration, error) {
	if raw == nil {
		return 0, malformed("timeout is missing")
	}
	seconds, err := readClampedInteger("timeout", raw)
	if err != nil {
		return 0, err
	}
	if seconds > maxTimeout {
		return 0, invalid("timeout must be at most %d", maxTimeout)
	}
	return time.Duration(max(0, seconds)) * time.Second, nil
}

// readMaxAttemptsV1 reads max_retries as readMaxAttempts does, but a missing value counts as 0, a
// negative one as no limit, and one that is too large as the largest.
func readMaxAttemptsV1(raw []byte) (int, error) {
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

// readClampedInteger reads an integer. One that does not fit into 64 bits becomes the nearest one.
func readClampedInteger(what string, raw []byte) (int64, error) {
	n, err := strictjson.Int(raw, 64)
	switch {
	case errors.Is(err, strictjson.ErrRange) && strictjson.Trim(raw)[0] == '-':
		return math.MinInt64, nil
	case errors.Is(err, strictjson.ErrRange):
		return math.MaxInt64, nil
	case err != nil:
		return 0, malformed("%s must be an integer", what)
	}
	return n, nil
}

const runAtFormsV1 = "run_at must be a time, as in RFC 3339, RFC 2822 or RFC 1123, " +
	"2022-09-05 04:37:23, a date, or the number of seconds since 1970"

// readRunAtV1 reads run_at in any of its forms. Times without a zone are in UTC.
func readRunAtV1(raw []byte) (time.Time, error) {
	at, err := readRunAt(raw)
	if err != nil {
		return readOtherRunAtV1(raw)
	}
	return at, nil
}

// readOtherRunAtV1 reads a run_at that version 2 does not accept.
func readOtherRunAtV1(raw []byte) (time.Time, error) {
	text := string(strictjson.Trim(raw))
	if strictjson.KindOf(raw) != strictjson.KindNumber {
		var err error
		if text, err = strictjson.String(raw); err != nil {
			return time.Time{}, malformed(runAtFormsV1)
		}
	}
	at, ok := parseTimeV1(text)
	at = at.UTC().Truncate(time.Microsecond)
	if !ok || at.Year() < 0 || at.Year() > 9999 {
		return time.Time{}, malformed(runAtFormsV1)
	}
	return at, nil
}

// parseTimeV1 tries the layouts in their order and takes the first that fits the whole text; false
// if none does. A text of digits alone counts from 1970 (parseEpoch).
func parseTimeV1(text string) (time.Time, bool) {
	if strings.Trim(text, "0123456789") == "" {
		return parseEpoch(text)
	}
	text = withNumericZone(text)
	for _, layout := range timeLayoutsV1 {
		at, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		return at, true
	}
	return time.Time{}, false
}

// timeLayoutsV1 lists the forms of a time besides RFC 3339. time.Parse accepts a fraction of a
// second in all of them.
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

// numericZones maps the names of zones in RFC 2822 (4.3).
var numericZones = map[string]string{
	"UT": "+0000", "GMT": "+0000", "UTC": "+0000", "Z": "+0000", "EST": "-0500", "EDT": "-0400",
	"CST": "-0600", "CDT": "-0500", "MST": "-0700", "MDT": "-0600", "PST": "-0800", "PDT": "-0700",
}

// withNumericZone replaces the name of a zone at the end of a text by its offset.
func withNumericZone(text string) string {
	index := strings.LastIndexByte(text, ' ')
	if zone := numericZones[text[index+1:]]; index > 0 && zone != "" {
		return text[:index+1] + zone
	}
	return text
}

// parseEpoch reads a time since 1970. As in the original the number of digits decides about the
// unit: up to 10 are seconds, up to 13 milliseconds, up to 16 microseconds, up to 19 nanoseconds.
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
