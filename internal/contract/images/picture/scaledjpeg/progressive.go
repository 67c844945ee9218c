package scaledjpeg

import "math/bits"

// firstDC reads the first bits of a DC coefficient.
func (s *scan) firstDC(c *scanComponent, b block) error {
	dc, err := s.nextDC(c)
	if err != nil {
		return err
	}
	b.values[0] = saturate(dc << s.bit)
	return nil
}

// refineDC reads one more bit of a DC coefficient. It is a bit of the number in two's complement.
func (s *scan) refineDC(_ *scanComponent, b block) error {
	if s.bits.take(1) == 1 {
		b.values[0] = saturate(int32(b.values[0]) | 1<<s.bit)
	}
	return nil
}

// firstAC reads the first bits of a range of AC coefficients.
func (s *scan) firstAC(c *scanComponent, b block) error {
	if s.eobRun > 0 {
		s.eobRun--
		return nil
	}
	for k := s.from; k <= s.to; k++ {
		value, more, err := s.longAC(c, &k, s.to)
		if err != nil || !more {
			return err
		}
		if value != 0 {
			b.values[c.position[k&63]] = saturate(value << s.bit)
			*b.nonzero |= 1 << uint(k)
		}
	}
	return nil
}

// refineAC reads one more bit of each coefficient in the range that is not zero, and between these
// bits the coefficients that become 1 or -1 with this bit. A symbol says how many coefficients stay
// zero before such a one.
func (s *scan) refineAC(c *scanComponent, b block) error {
	k := s.from
	for s.eobRun == 0 && k <= s.to {
		zeros, value, err := s.nextRefinement(c)
		if err != nil {
			return err
		}
		if s.eobRun > 0 {
			break
		}
		if free := bits.TrailingZeros64(*b.nonzero >> uint(k)); zeros < free {
			k += zeros
		} else {
			k = s.refineUpTo(c, b, k, zeros)
		}
		if k > s.to {
			return errInvalid
		}
		if value != 0 {
			b.values[c.position[k&63]] = saturate(value << s.bit)
			*b.nonzero |= 1 << uint(k)
		}
		k++
	}
	if s.eobRun > 0 {
		s.eobRun--
		s.refineUpTo(c, b, k, 64)
	}
	return nil
}

// nextRefinement reads a symbol of refineAC: the number of zeros before the value, which is 1, -1
// or 0 after 15 zeros. It sets eobRun if no values follow in this block.
func (s *scan) nextRefinement(c *scanComponent) (zeros int, value int32, err error) {
	r := &s.bits
	if r.left < minBits {
		r.load()
	}
	entry := c.ac.lookup[r.bits>>(64-lookupBits)]
	if entry&hasValue != 0 && entry>>8&15 == 1 {
		r.bits <<= entry & 31
		r.left -= int(entry & 31)
		return int(entry >> 12 & 15), int32(entry) >> 16, nil
	}
	symbol, ok := r.symbol(c.ac)
	zeros = int(symbol >> 4)
	switch symbol & 15 {
	case 0:
		if zeros < 15 {
			s.eobRun = 1<<zeros | r.take(zeros)
		}
	case 1:
		value = r.signed(1)
	default:
		ok = false
	}
	if !ok {
		return 0, 0, errInvalid
	}
	return zeros, value, nil
}

// refineUpTo refines the coefficients from k on and returns the position of the zero that follows
// as many others as zeros says; one behind the range if there is none.
func (s *scan) refineUpTo(c *scanComponent, b block, k, zeros int) int {
	for ; k <= s.to; k++ {
		rest := *b.nonzero >> uint(k)
		free := bits.TrailingZeros64(rest)
		if zeros < free {
			return min(k+zeros, s.to+1)
		}
		zeros -= free
		k += free
		if k > s.to {
			break
		}
		if s.bits.take(1) == 0 {
			continue
		}
		v := &b.values[c.position[k&63]]
		if *v >= 0 {
			*v = saturate(int32(*v) + 1<<s.bit)
		} else {
			*v = saturate(int32(*v) - 1<<s.bit)
		}
	}
	return s.to + 1
}
