package handler

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	maxSegment        = 200
	keptSegmentPrefix = 120
)

// Key is where the download of a resource goes unless somebody says otherwise (FB-082, G-FB-32):
// under the prefix of its job type, then the job, then the resource. "" is the prefix of a type
// that sets none.
func Key(prefix, jobType, jobID, resourceID string) string {
	if prefix == "" {
		prefix = "resources/" + jobType + "/"
	}
	return prefix + Segment(jobID) + "/" + Segment(resourceID)
}

// Segment turns any text into one segment of a key that stays where it is put (FB-085, G-FB-33):
// percent-encoded but for letters, digits, dots, hyphens and underscores, a first dot as well. What
// would be long, or end like a file that the directory store keeps for itself, is shortened and
// made unique by a digest. Two texts never share a segment.
func Segment(text string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		if isUnescaped(c) && (c != '.' || i > 0) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	segment := b.String()
	if len(segment) <= maxSegment && !strings.HasSuffix(segment, ".attrs") {
		return segment
	}
	digest := sha256.Sum256([]byte(text))
	return segment[:min(len(segment), keptSegmentPrefix)] + "~" + hex.EncodeToString(digest[:16])
}

func isUnescaped(c byte) bool {
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
		c == '-' || c == '_'
}
