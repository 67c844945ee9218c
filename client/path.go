package client

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// escape percent-encodes one member of a path, so that any text can stand
// there (RL-095). Every byte outside the unreserved characters of RFC 3986 is
// encoded, and so are the dots of "." and "..", which clients and proxies
// would otherwise resolve as parts of the path (RL-097).
func escape(member string) string {
	const hex = "0123456789ABCDEF"
	dots := member == "." || member == ".."
	var b strings.Builder
	b.Grow(len(member))
	for i := range len(member) {
		c := member[i]
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

func unreserved(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '-' || c == '_' || c == '.' || c == '~'
}

// checkName refuses what cannot name anything: nothing at all, which would
// change the path's shape, and bytes that are not UTF-8, which JSON would
// silently turn into another name. Length and the like are the server's to
// judge.
func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s is empty", what)
	case !utf8.ValidString(name):
		return fmt.Errorf("%s %q is not UTF-8", what, name)
	}
	return nil
}
