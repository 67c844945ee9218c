package strictjson

import (
	"bytes"
	"time"
)

// Time reads a checked JSON string that contains an RFC 3339 time: any offset, T and Z in either
// case, with or without a fraction. The result is in UTC and truncated to microseconds (G-X-16).
// A leap second, 23:59:60 UTC at the end of a month, becomes the first second after it (RL-011
// accepts what RFC 3339 accepts).
//
// ErrKind: not a string. ErrTime: a string of another form, an impossible date, or a time outside
// the years 0000 to 9999 in UTC, so that AppendTime can write every time that Time accepts.
func Time(raw []byte) (time.Time, error) {
	raw = Trim(raw)
	if len(raw) < 2 || raw[0] != '"' {
		return time.Time{}, ErrKind
	}
	inner := raw[1 : len(raw)-1]
	if first := bytes.IndexByte(inner, '\\'); first >= 0 {
		inner, _ = appendDecoded(nil, inner, first)
	}
	return parseTime(inner)
}

// ParseTime is Time for text without quotes, from a query string or a header. It accepts any text.
func ParseTime(s string) (time.Time, error) { return parseTime([]byte(s)) }

// parseTime reads YYYY-MM-DDTHH:MM:SS, an optional fraction and the offset.
func parseTime(s []byte) (time.Time, error) {
	const layout = "0000-00-00T00:00:00"
	if len(s) <= len(layout) || !matchesLayout(s[:len(layout)], layout) {
		return time.Time{}, ErrTime
	}
	year, month, day := decimal(s[:4]), decimal(s[5:7]), decimal(s[8:10])
	hour, minute, second := decimal(s[11:13]), decimal(s[14:16]), decimal(s[17:19])
	micros, rest, ok := fraction(s[len(layout):])
	if !ok || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) || hour > 23 ||
		minute > 59 || second > 60 {
		return time.Time{}, ErrTime
	}
	offset, ok := offsetSeconds(rest)
	if !ok {
		return time.Time{}, ErrTime
	}
	t := time.Date(year, time.Month(month), day, hour, minute, second-offset, micros*1000, time.UTC)
	if t.Year() < 0 || t.Year() > 9999 {
		return time.Time{}, ErrTime
	}
	if second == 60 && (t.Day() != 1 || t.Hour() != 0 || t.Minute() != 0) {
		return time.Time{}, ErrTime
	}
	return t, nil
}

// matchesLayout compares byte by byte: 0 in layout stands for any digit, T for t and T.
func matchesLayout(s []byte, layout string) bool {
	for i := range len(layout) {
		switch ch := s[i]; layout[i] {
		case '0':
			if !isDigit(ch) {
				return false
			}
		case 'T':
			if ch != 'T' && ch != 't' {
				return false
			}
		default:
			if ch != layout[i] {
				return false
			}
		}
	}
	return true
}

// decimal returns the value of digits, which were checked before.
func decimal(digits []byte) (n int) {
	for i := range len(digits) {
		n = n*10 + int(digits[i]-'0')
	}
	return n
}

// daysIn returns the number of days of a month in the Gregorian calendar.
func daysIn(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// fraction reads a point and one digit or more, if there is a point, and returns the text after
// them. Digits beyond the sixth are dropped.
func fraction(s []byte) (micros int, rest []byte, ok bool) {
	if len(s) == 0 || s[0] != '.' {
		return 0, s, true
	}
	i, unit := 1, 100_000
	for ; i < len(s) && isDigit(s[i]); i++ {
		micros += int(s[i]-'0') * unit
		unit /= 10
	}
	return micros, s[i:], i > 1
}

// offsetSeconds reads Z or ±HH:MM and nothing after it.
func offsetSeconds(s []byte) (seconds int, ok bool) {
	if len(s) == 1 {
		return 0, s[0] == 'Z' || s[0] == 'z'
	}
	const layout = "00:00"
	if len(s) != 1+len(layout) || !matchesLayout(s[1:], layout) {
		return 0, false
	}
	hours, minutes := decimal(s[1:3]), decimal(s[4:6])
	if hours > 23 || minutes > 59 {
		return 0, false
	}
	seconds = hours*3600 + minutes*60
	switch s[0] {
	case '+':
		return seconds, true
	case '-':
		return -seconds, true
	}
	return 0, false
}
