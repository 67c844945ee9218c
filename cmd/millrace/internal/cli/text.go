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
