// Package name says which names buckets and objects can have. They are the same wherever objects
// are kept.
package name

import (
	"strings"
	"unicode/utf8"
)

const (
	maxKeyBytes     = 1024 // bytes, as S3 has it
	maxSegmentBytes = 240  // bytes: with what stands beside a file, a file name's 255
)

// Sidecar ends the names of files beside objects that are kept in a directory; no part of a key
// ends in it.
const Sidecar = ".attrs"

// ValidKey tells whether a text names an object: segments that are not empty, divided by slashes,
// that mean the same in a directory and in a URL.
func ValidKey(key string) bool {
	if key == "" || len(key) > maxKeyBytes || !utf8.ValidString(key) ||
		strings.ContainsFunc(key, isControl) || strings.Contains(key, `\`) {
		return false
	}
	for segment := range strings.SplitSeq(key, "/") {
		if segment == "" || segment == "." || segment == ".." || len(segment) > maxSegmentBytes ||
			strings.HasSuffix(segment, Sidecar) {
			return false
		}
	}
	return true
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// ValidBucket tells whether a text names a bucket: 3 to 63 lower-case letters, digits, dots and
// hyphens, the first and last no sign, as S3 has it.
func ValidBucket(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	return len(name) >= 3 && len(name) <= 63 && strings.Trim(name, letters+".-") == "" &&
		!strings.Contains(name, "..") &&
		strings.Trim(name[:1]+name[len(name)-1:], letters) == ""
}
