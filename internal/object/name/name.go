// Package name defines which names buckets and objects can have, the same for every backend. It
// imports nothing of the project, so that any package can check a name.
package name

import (
	"strings"
	"unicode/utf8"
)

const (
	maxKeyBytes     = 1024 // as in S3
	maxSegmentBytes = 240  // with Sidecar and a temporary name less than the 255 of a file name
)

// Sidecar is the suffix of files that a directory keeps beside objects. No segment of a key ends in
// it.
const Sidecar = ".attrs"

// ValidKey reports whether a text can be the key of an object: non-empty segments separated by
// slashes, which mean the same in a directory and in a URL.
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

// ValidBucket reports whether a text can be the name of a bucket: as in S3, 3 to 63 lower-case
// letters, digits, dots and hyphens, with a letter or digit at both ends.
func ValidBucket(name string) bool {
	const characters = "abcdefghijklmnopqrstuvwxyz0123456789"
	return len(name) >= 3 && len(name) <= 63 && strings.Trim(name, characters+".-") == "" &&
		!strings.Contains(name, "..") &&
		strings.Trim(name[:1]+name[len(name)-1:], characters) == ""
}
