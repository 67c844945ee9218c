package strictjson

import (
	"time"
	"unicode/utf8"
)

// AppendString appends s as a JSON string, quotes included. It escapes only what JSON demands:
// quote, backslash and control characters. Text in any script stays readable, and nothing is
// escaped for HTML. Bytes that are not UTF-8 are written as U+FFFD, so the result always passes
// Check, and String returns valid text unchanged.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0 // of the bytes that are not copied yet
	for i := 0; i < len(s); {
		ch := s[i]
		if plainChars[ch] {
			i++
			continue
		}
		if ch >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
			dst = append(dst, s[start:i]...)
			dst = append(dst, "\uFFFD"...)
		} else {
			dst = append(dst, s[start:i]...)
			dst = appendEscape(dst, ch)
		}
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// appendEscape appends the shortest escape of a character that must be escaped.
func appendEscape(dst []byte, ch byte) []byte {
	const hex = "0123456789abcdef"
	switch ch {
	case '"', '\\':
		return append(dst, '\\', ch)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hex[ch>>4], hex[ch&0xF])
}

// AppendTime appends t as a JSON string in the form that all answers use (G-X-16): RFC 3339 in UTC
// with Z, truncated to microseconds, without trailing zeros, "2026-01-02T03:04:05.6Z". Years
// outside 0000 to 9999 have no such form.
func AppendTime(dst []byte, t time.Time) []byte {
	dst = append(dst, '"')
	dst = t.UTC().Truncate(time.Microsecond).AppendFormat(dst, time.RFC3339Nano)
	return append(dst, '"')
}
