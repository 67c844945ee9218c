package job

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"time"
)

// DeadLetter is a job that was given up, kept so that it can be replayed.
type DeadLetter struct {
	ID int64
	// Job is the job as it was when it was given up. A job that stays stored has its payload,
	// progress and result itself, and its dead letters go with it; see IsJobStored.
	Job       Job
	Cause     Cause
	CreatedAt time.Time
	// ReplayedAt is when the dead letter was last replayed, and ReplayedAs the Seq of the job that
	// ran then. Both are zero for one that was not.
	ReplayedAt time.Time
	ReplayedAs int64
	// StoredFingerprint is the fingerprint under which it is stored, empty before.
	StoredFingerprint string
}

// IsOpen reports whether the dead letter was not replayed.
func (l *DeadLetter) IsOpen() bool { return l.ReplayedAt.IsZero() }

// IsJobStored reports whether the job stayed stored when it was given up.
func (l *DeadLetter) IsJobStored() bool { return l.Job.State != StateNone }

// DeadLetterGroup is what open dead letters with one fingerprint have in common.
type DeadLetterGroup struct {
	Fingerprint     string
	Count           int64
	FirstAt, LastAt time.Time
	LastID          int64 // the ID of the newest
}

// varying is what differs between failures of one reason: UUIDs, quoted strings, paths, long
// hexadecimal numbers and numbers (AD-050).
var varying = regexp.MustCompile(`[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}` +
	`|"[^"]*"|'[^']*'|` + "`[^`]*`" + `|(\w+:/)?(/[\w.%~+-]+)+/?` +
	`|0[xX][0-9a-fA-F]+|\b[0-9a-fA-F]*[0-9][0-9a-fA-F]{7,}\b|[0-9]+`)

// Fingerprint returns what dead letters of one reason have in common: a digest of job type, queue,
// type and text of the failure without what varies. It stays what it was when the dead letter was
// stored.
func (l *DeadLetter) Fingerprint() string {
	if l.StoredFingerprint != "" {
		return l.StoredFingerprint
	}
	kind, text := l.Failure()
	sum := digest(l.Job.ID.JobType, l.Job.Queue, kind, varying.ReplaceAllString(text, "?"))
	return hex.EncodeToString(sum[:sha256.Size/2])
}

// Failure returns the type and the text of the failure. A job without one has the cause of its last
// transition as the type. Where its lease has ended, the text is the failure that the worker has
// reported of the last attempt; else it says that the lease has ended, with the error or the step
// that a worker reported last with a heartbeat, or the failure of an earlier attempt.
func (l *DeadLetter) Failure() (kind, text string) {
	kind, text = FailureOf(l.Job.Failure)
	earlier := ""
	if n := failedAttempt(l.Job.Failure); n != 0 && n != l.Job.Attempts {
		kind, text, earlier = "", "", fmt.Sprintf("; attempt %d failed: %s", n, text)
	}
	kind = cmp.Or(kind, string(l.endCause()))
	if text != "" || l.Cause != ExpiredForGood {
		return kind, text
	}
	text = fmt.Sprintf("no heartbeat within %d s in attempt %d", int(l.Job.Lease.Seconds()),
		l.Job.Attempts)
	if last := reported(l.Job.Progress); last != "" {
		text += "; its worker reported last: " + last
	}
	return kind, text + earlier
}

// endCause returns what ended the job: the failure that the worker of its last attempt has
// reported, else the cause of its last transition. Where the contract has no failures, that one is
// the end of the lease although the attempt has failed.
func (l *DeadLetter) endCause() Cause {
	if l.Cause == ExpiredForGood && l.Job.ReportedFailure() != "" {
		return FailedForGood
	}
	return l.Cause
}

// reported returns the text of a progress: its error or message, the string that it is, or else all
// of it.
func reported(progress []byte) (text string) {
	if err := json.Unmarshal(progress, &text); err != nil {
		_, text = FailureOf(progress)
		return text
	}
	return text[:min(len(text), maxFailureText)]
}
