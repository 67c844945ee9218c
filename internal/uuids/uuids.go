// Package uuids makes and reads the UUIDs of the project: ids that follow time (version 7), random
// ones (version 4) and derived ones (version 8), always written in their canonical text.
package uuids

import (
	"encoding/binary"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Source makes ids of version 7 that grow strictly, each of a microsecond of its own. Where more
// ids are requested than microseconds pass, they run ahead of the clock. It may be used by several
// goroutines.
type Source struct {
	Now    func() time.Time
	Random func() [16]byte

	mu   sync.Mutex
	last int64 // the microsecond of the last id
}

// Next returns the next n ids in ascending order.
func (s *Source) Next(n int) []string {
	s.mu.Lock()
	first := max(s.Now().UnixMicro(), s.last+1)
	s.last = first + int64(n) - 1
	s.mu.Unlock()
	all := make([]string, n)
	for i := range all {
		all[i] = newID(first+int64(i), s.Random())
	}
	return all
}

// newID puts the milliseconds where version 7 has them and the microseconds behind them.
func newID(micros int64, random [16]byte) string {
	binary.BigEndian.PutUint16(random[6:8], uint16(micros%1000)<<2)
	return NewV7(time.UnixMicro(micros), random).String()
}

// NewV7 makes a UUID of version 7, which sorts by its millisecond. It uses the last ten of the
// random bytes.
func NewV7(at time.Time, random [16]byte) uuid.UUID {
	var millis [8]byte
	binary.BigEndian.PutUint64(millis[:], uint64(at.UnixMilli())<<16)
	copy(random[:6], millis[:6])
	return New(7, random)
}

// New makes a UUID of a version whose content is free: version 4 of random bytes, version 8 of any
// bytes, such as a digest.
func New(version byte, id [16]byte) uuid.UUID {
	id[6] = id[6]&0x0f | version<<4
	id[8] = id[8]&0x3f | 0x80
	return id
}

// LowerBound returns a text that sorts before every id made at that time or later, and after those
// made in an earlier millisecond. It selects ids by time from a sorted list of names.
func LowerBound(at time.Time) string { return newID(at.UnixMilli()*1000, [16]byte{})[:14] }

// Parse reads the 36 characters of a UUID of any version, in any case, and returns its canonical
// text in lower case.
func Parse(s string) (string, bool) {
	if _, ok := Decode(s); !ok {
		return "", false
	}
	return strings.ToLower(s), true
}

// Decode reads what Parse reads, and returns the bytes of the UUID.
func Decode(s string) (id uuid.UUID, ok bool) {
	if len(s) != 36 {
		return id, false
	}
	id, err := uuid.Parse(s)
	return id, err == nil
}
