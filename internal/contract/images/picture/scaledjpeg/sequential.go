package scaledjpeg

import "math"

// The loop over the AC coefficients of a block is where the time of a decoder goes. One look at the
// next lookupBits bits gives the code, the zeros before the value and, for short ones, the value
// itself; bits and their number are held in local variables. A longer code, or one at the end of
// the data, goes to longAC, which does the same step by step.

// saturate limits a coefficient to 16 bits. No picture of 8 bits has larger ones: where a file says
// so, some samples of the block are at the limits of their range either way.
func saturate(v int32) int16 { return int16(max(math.MinInt16, min(math.MaxInt16, v))) }

// sequential reads all coefficients of a block. Those that are not kept go to the position behind
// the others.
func (s *scan) sequential(c *scanComponent, b block) error {
	r := &s.bits
	dc, err := s.nextDC(c)
	if err != nil {
		return err
	}
	b.values[0] = saturate(dc)
	if s.eobRun > 0 {
		s.eobRun--
		return nil
	}
	values, lookup := b.values, &c.ac.lookup
	bits, left := r.bits, r.left
	for k := 1; k < 64; k++ {
		if left < minBits {
			r.bits, r.left = bits, left
			r.load()
			bits, left = r.bits, r.left
		}
		entry := lookup[bits>>(64-lookupBits)]
		at, n := k+int(entry>>12&15), entry>>8&15
		if n > 0 && at < 64 {
			k = at
			bits <<= entry & 31
			left -= int(entry & 31)
			value := int16(entry >> 16)
			if entry&hasValue == 0 {
				value = int16(extend(int32(bits>>(64-n)), int(n)))
				bits <<= n
				left -= int(n)
			}
			values[c.position[k]] = value
			continue
		}
		if entry>>8 == 0 && entry != 0 {
			r.bits, r.left = bits<<(entry&31), left-int(entry&31)
			return nil // the end of the block
		}
		r.bits, r.left = bits, left
		value, more, err := s.longAC(c, &k, 63)
		if err != nil || !more {
			return err
		}
		if value != 0 {
			values[c.position[k]] = saturate(value)
		}
		bits, left = r.bits, r.left
	}
	r.bits, r.left = bits, left
	return nil
}

// nextDC returns the next DC coefficient: the one before it and a difference.
func (s *scan) nextDC(c *scanComponent) (int32, error) {
	n, ok := s.bits.symbol(c.dc)
	if !ok || n > 16 {
		return 0, errInvalid
	}
	c.prediction += s.bits.signed(int(n))
	return c.prediction, nil
}

// longAC reads one symbol of AC coefficients: its high half is a number of zeros, its low half the
// length of the value behind them. It moves k to the position of the value. Without a length the
// symbol means 16 zeros, or the end of this block and of a number of following ones; more is false
// at the end. Zeros beyond the range end the block as well, and the value behind them is not read.
func (s *scan) longAC(c *scanComponent, k *int, to int) (value int32, more bool, err error) {
	symbol, ok := s.bits.symbol(c.ac)
	if !ok {
		return 0, false, errInvalid
	}
	zeros, n := int(symbol>>4), int(symbol&15)
	*k += zeros
	switch {
	case n == 0 && zeros < 15:
		s.eobRun = 1<<zeros | s.bits.take(zeros)
		s.eobRun--
		return 0, false, nil
	case n == 0:
		return 0, true, nil
	case *k > to:
		return 0, false, nil
	}
	return s.bits.signed(n), true, nil
}
