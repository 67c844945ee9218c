package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// FormatDuration writes a duration with no more digits than anybody reads.
func FormatDuration(d time.Duration) string {
	for _, step := range []struct{ from, to time.Duration }{{10 * time.Second, time.Second},
		{time.Second, 10 * time.Millisecond}, {10 * time.Millisecond, 100 * time.Microsecond},
		{0, 10 * time.Microsecond}} {
		if d >= step.from {
			return d.Round(step.to).String()
		}
	}
	return d.String()
}

// FormatAge writes how long ago something was, in few characters.
func FormatAge(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return d.Round(time.Second).String()
}

// Pluralize writes a number of things. Their name gets an s unless the number is 1.
func Pluralize(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// FormatRate writes how many there were in a second.
func FormatRate(n int64, took time.Duration) string {
	if took <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f/s", float64(n)/took.Seconds())
}

// Printable keeps what others have written from playing with the terminal.
func Printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// ParseTimeOrAge reads a time, or how long ago it was. A date is the beginning of that day in UTC.
// An empty text is the zero time, which is no bound; the error names the flag.
func ParseTimeOrAge(now time.Time, flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := parseTimeOrAge(now, text)
	if err != nil {
		return at, fmt.Errorf("%s: %w", flag, err)
	}
	return at, nil
}

// parseTimeOrAge reads a text that is not empty.
func parseTimeOrAge(now time.Time, text string) (time.Time, error) {
	ago, notAge := time.ParseDuration(text)
	at, notTime := time.Parse(time.RFC3339Nano, text)
	day, notDay := time.Parse(time.DateOnly, text)
	switch {
	case notAge == nil:
		return now.Add(-ago), nil
	case notTime == nil:
		return at, nil
	case notDay == nil:
		return day, nil
	}
	return time.Time{}, fmt.Errorf(
		"%q is not a time, such as 2026-03-01T12:00:00Z, 2026-03-01 or 36h (ago)", text)
}
