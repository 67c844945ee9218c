package job

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// RunID names one attempt of a job and fences every write of its worker: a write under an older run
// id changes nothing. It is a UUID of version 8 whose first 48 bits are the job's Seq, so that the
// job of a run is found by its primary key; the other 74 free bits are random.
type RunID [16]byte

// NewRunID makes the run id of an attempt of job seq from 16 random bytes.
func NewRunID(seq int64, random [16]byte) RunID {
	r := RunID(random)
	var s [8]byte
	binary.BigEndian.PutUint64(s[:], uint64(seq)<<16)
	copy(r[:6], s[:6])
	r[6] = r[6]&0x0f | 0x80
	r[8] = r[8]&0x3f | 0x80
	return r
}

// Seq returns the number of the job that the run belongs to. A forged id returns any number: the
// caller has to check that the run is that job's current one.
func (r RunID) Seq() int64 {
	var s [8]byte
	copy(s[2:], r[:6])
	return int64(binary.BigEndian.Uint64(s[:]))
}

// IsZero reports whether the id stands for no run.
func (r RunID) IsZero() bool { return r == RunID{} }

// RunEnd is the end of a run that its worker has recorded in a transaction of its own, beside its
// other writes. The run has ended from that commit on: it can end in no other way, and a node has
// to carry the end out.
type RunEnd struct {
	Run       RunID
	Succeeded bool
	Result    []byte // of a run that has succeeded; JSON, or nil for none
	// Error, ErrorType and Retryable are set for a run that has failed.
	Error     string
	ErrorType string
	Retryable bool
}

// String returns the usual 36 character form, in lower case.
func (r RunID) String() string {
	var b [36]byte
	hex.Encode(b[:8], r[:4])
	b[8] = '-'
	hex.Encode(b[9:13], r[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], r[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], r[8:10])
	b[23] = '-'
	hex.Encode(b[24:], r[10:])
	return string(b[:])
}

// ParseRunID reads the 36 character form of any UUID, in any case.
func ParseRunID[T string | []byte](text T) (r RunID, err error) {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return r, fmt.Errorf("%q is not a UUID", text)
	}
	var digits [2 * len(r)]byte
	n := 0
	for _, part := range [...]T{text[:8], text[9:13], text[14:18], text[19:23], text[24:]} {
		n += copy(digits[n:], part)
	}
	if _, err := hex.Decode(r[:], digits[:]); err != nil {
		return RunID{}, fmt.Errorf("%q is not a UUID", text)
	}
	return r, nil
}
