package taskflow

import (
	"encoding/binary"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// ids makes UUIDs of version 7 that grow strictly: each is of a microsecond of its
// own, ahead of the clock where more are asked for.
type ids struct {
	now    func() time.Time
	random func() [16]byte

	mu   sync.Mutex
	last int64 // microsecond of the last one
}

// next returns the next n, in their order.
func (s *ids) next(n int) []string {
	s.mu.Lock()
	first := max(s.now().UnixMicro(), s.last+1)
	s.last = first + int64(n) - 1
	s.mu.Unlock()
	all := make([]string, n)
	for i := range all {
		all[i] = newID(first+int64(i), s.random())
	}
	return all
}

// newID puts milliseconds where version 7 has them and the microseconds behind.
func newID(micros int64, random [16]byte) string {
	id := uuid.UUID(random)
	var millis [8]byte
	binary.BigEndian.PutUint64(millis[:], uint64(micros/1000)<<16)
	copy(id[:6], millis[:6])
	binary.BigEndian.PutUint16(id[6:8], 0x7000|uint16(micros%1000)<<2)
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// parseUUID reads the usual 36 characters in any case and returns them in lower
// case (G-TF-35).
func parseUUID(s string) (string, bool) {
	if len(s) != 36 {
		return "", false
	}
	if _, err := uuid.Parse(s); err != nil {
		return "", false
	}
	return strings.ToLower(s), true
}
