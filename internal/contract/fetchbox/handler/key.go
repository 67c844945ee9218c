package handler

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	maxSegment           = 200 // bytes
	literalSegmentPrefix = 120 // bytes that remain of a segment that is shortened
)

// Key is the key of a download unless its task has one (FB-082, G-FB-32): the prefix of the job
// type, the job and the resource. The prefix "" stands for resources/TYPE/.
func Key(prefix, jobType, jobID, resourceID string) string {
	if prefix == "" {
		prefix = "resources/" + jobType + "/"
	}
	return prefix + Segment(jobID) + "/" + Segment(resourceID)
}

// Segment turns any text into one segment of a key that cannot escape its prefix (FB-085, G-FB-33).
// Letters, digits, hyphens, underscores and all but a leading dot remain, other bytes are
// percent-encoded. A segment that is too long, or ends like the attribute files of the directory
// store, is shortened and completed by a digest. Different texts have different segments.
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
	return segment[:min(len(segment), literalSegmentPrefix)] + "~" + hex.EncodeToString(digest[:16])
}

func isUnescaped(c byte) bool {
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
		c == '-' || c == '_'
}
