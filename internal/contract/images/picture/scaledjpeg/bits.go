package scaledjpeg

import (
	"bytes"
	"encoding/binary"
)

// bitReader reads the bits between two markers, where a byte FF of data is followed by 00. Beyond
// the end it reads zeros, and left becomes negative: whoever decodes a block looks at it
// afterwards.
type bitReader struct {
	data  []byte
	start int    // the position of the first byte
	pos   int    // the position of the next byte to load
	bits  uint64 // the next bit is the highest one
	left  int    // the number of loaded bits that were not taken
}

// minBits is how many bits a call of load leaves at least, before the end of the data: enough for a
// code and the bits behind it.
const minBits = 32

// reset continues at a position.
func (r *bitReader) reset(pos int) {
	r.start, r.pos, r.bits, r.left = pos, pos, 0, 0
}

// load loads bytes until there are more than 56 bits, or the data ends. Eight bytes without an FF
// are loaded at once; bits of the last of them that do not count yet are loaded again later, with
// the same value.
func (r *bitReader) load() {
	if r.pos+8 <= len(r.data) {
		next := binary.BigEndian.Uint64(r.data[r.pos:])
		if !hasFF(next) {
			r.bits |= next >> uint(r.left)
			n := (63 - r.left) >> 3
			r.pos += n
			r.left += 8 * n
			return
		}
	}
	for r.left <= 56 && r.pos < len(r.data) {
		b := r.data[r.pos]
		if b == 0xff {
			if r.pos+1 >= len(r.data) || r.data[r.pos+1] != 0 {
				return
			}
			r.pos++
		}
		r.pos++
		r.bits |= uint64(b) << uint(56-r.left)
		r.left += 8
	}
}

// hasFF reports whether one of eight bytes is FF.
func hasFF(b uint64) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	return (^b-ones)&b&highs != 0
}

// take returns the next n bits, 0 to 16.
func (r *bitReader) take(n int) int32 {
	if r.left < minBits {
		r.load()
	}
	v := r.bits >> 1 >> uint(63-n)
	r.bits <<= uint(n)
	r.left -= n
	return int32(v)
}

// signed returns the next n bits, 0 to 16, as the signed number that they stand for.
func (r *bitReader) signed(n int) int32 { return extend(r.take(n), n) }

// extend is the number that n bits stand for: those with a leading zero are negative.
func extend(v int32, n int) int32 {
	if n > 0 && v < 1<<(n-1) {
		return v - 1<<n + 1
	}
	return v
}

// symbol returns the next symbol of a table; false if the bits are no code of it.
func (r *bitReader) symbol(t *table) (byte, bool) {
	if r.left < minBits {
		r.load()
	}
	symbol, n := t.find(r.bits)
	r.bits <<= uint(n)
	r.left -= n
	return symbol, n > 0
}

// end is the position of the first byte of which no bit was taken.
func (r *bitReader) end() int {
	pos := r.pos
	for left := r.left; left >= 8; left -= 8 {
		pos--
		if pos-1 >= r.start && r.data[pos] == 0 && r.data[pos-1] == 0xff {
			pos--
		}
	}
	return pos
}

// restart continues behind the restart marker m. Bytes before it are skipped, as image/jpeg does;
// any other marker before it is an error.
func (r *bitReader) restart(m byte) error {
	pos := r.end()
	for {
		at := bytes.IndexByte(r.data[pos:], 0xff)
		if at < 0 || pos+at+1 >= len(r.data) {
			return errTruncated
		}
		pos += at + 1
		switch r.data[pos] {
		case m:
			r.reset(pos + 1)
			return nil
		case 0xff: // it may begin the marker itself
		case 0:
			pos++
		default:
			return errInvalid
		}
	}
}
