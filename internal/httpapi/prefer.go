package httpapi

import (
	"math"
	"net/http"
	"strings"
)

// PreferWait returns the seconds of the preference wait=N (RFC 7240) and whether it is given. Of
// several the first one counts. A value that is not a number of seconds is ignored, as the RFC
// demands of preferences that are not understood.
func PreferWait(h http.Header) (seconds int, given bool) {
	for _, line := range h["Prefer"] {
		for rest := line; rest != ""; {
			var preference string
			preference, rest = cutUnquoted(rest, ',')
			preference, _ = cutUnquoted(preference, ';')
			name, value, _ := strings.Cut(preference, "=")
			if !strings.EqualFold(strings.Trim(name, " \t"), "wait") {
				continue
			}
			if n, ok := parseSeconds(strings.Trim(value, " \t")); ok {
				return n, true
			}
		}
	}
	return 0, false
}

// cutUnquoted cuts s at the first sep outside of quoted strings.
func cutUnquoted(s string, sep byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '\\' && quoted:
			i++
		case s[i] == sep && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// parseSeconds reads a number of seconds, quoted or not.
func parseSeconds(s string) (int, bool) {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	return ParseDigits(s)
}

// ParseDigits reads a decimal number without a sign. A number too large for an int32 becomes the
// largest int32.
func ParseDigits(s string) (int, bool) {
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = min(n*10+int(s[i]-'0'), math.MaxInt32)
	}
	return n, s != ""
}
