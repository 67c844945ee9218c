package admin

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// varying is what differs between failures of one reason: UUIDs, quoted strings, paths, long
// hexadecimal numbers and numbers (AD-050).
var varying = regexp.MustCompile(`[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}` +
	`|"[^"]*"|'[^']*'|` + "`[^`]*`" + `|(\w+:/)?(/[\w.%~+-]+)+/?` +
	`|0[xX][0-9a-fA-F]+|\b[0-9a-fA-F]*[0-9][0-9a-fA-F]{7,}\b|[0-9]+`)

// maxFailureText bounds how much of a failure is shown and compared, in bytes.
const maxFailureText = 4096

// fingerprint returns what dead letters of one reason have in common: a digest of contract, queue,
// type and text of the failure without what varies.
func fingerprint(l *job.DeadLetter) string {
	kind, text := failureOf(l)
	h := sha256.New()
	for _, part := range []string{l.Job.ID.Contract, l.Job.Queue, kind,
		varying.ReplaceAllString(text, "?")} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// failureOf returns the type and the text of the failure of a dead letter. Contracts keep a failure
// as an object with a type or code, and an error or message; one that has none of them is its own
// text. A job that left no failure has the cause of its last move alone.
func failureOf(l *job.DeadLetter) (kind, text string) {
	kind, raw := string(l.Cause), l.Job.Failure
	if len(raw) == 0 {
		return kind, ""
	}
	text = string(raw[:min(len(raw), maxFailureText)])
	if strictjson.Check(raw) != nil || strictjson.KindOf(raw) != strictjson.KindObject {
		return kind, text
	}
	for name, value := range strictjson.Members(raw) {
		member, err := strictjson.String(value)
		if err != nil || member == "" {
			continue
		}
		switch string(name) {
		case "type", "code":
			kind = member
		case "error", "message":
			text = member[:min(len(member), maxFailureText)]
		}
	}
	return kind, text
}
