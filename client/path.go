package client

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// escape percent-encodes one segment of a path, so that it can be any text (RL-095). Every byte
// outside the unreserved characters of RFC 3986 is encoded, and so are the dots of "." and "..",
// which clients and proxies would otherwise resolve as relative segments (RL-097).
func escape(segment string) string {
	const hex = "0123456789ABCDEF"
	dots := segment == "." || segment == ".."
	var b strings.Builder
	b.Grow(len(segment))
	for i := range len(segment) {
		c := segment[i]
		if unreserved(c) && !dots {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return b.String()
}

// unreserved reports whether RFC 3986 leaves a character as it is.
func unreserved(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '-' || c == '_' || c == '.' || c == '~'
}

// checkName refuses a name that could not reach the server as it is: the empty name, which would
// change the shape of the path, and bytes that are not UTF-8, which JSON would silently turn into
// another name. Everything else, such as the length, is for the server to check.
func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s is empty", what)
	case !utf8.ValidString(name):
		return fmt.Errorf("%s %q is not UTF-8", what, name)
	}
	return nil
}
