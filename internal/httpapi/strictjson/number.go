package strictjson

import "math/bits"

// Int reads a checked JSON number as a signed integer of the given width, without floating point.
// What counts is the value, not the spelling: 1.0, 1e1 and 10e-1 are integers (G-X-15, G-RL-26).
//
// ErrKind: not a number. ErrNotInteger: a number with a fraction, 1.5 or 1e-400. ErrRange: an
// integer that does not fit, 1e400 included. width is 1 to 64; anything else means 64. Int does not
// allocate and takes linear time whatever the exponent.
func Int(raw []byte, width int) (int64, error) {
	raw = Trim(raw)
	if KindOf(raw) != KindNumber {
		return 0, ErrKind
	}
	if width < 1 || width > 64 {
		width = 64
	}
	negative := raw[0] == '-'
	if negative {
		raw = raw[1:]
	}
	magnitude, err := parseMagnitude(raw)
	if err != nil {
		return 0, err
	}
	// limit is the magnitude of the smallest value; that of the largest is one less.
	limit := uint64(1) << (width - 1)
	switch {
	case negative && magnitude <= limit:
		return -int64(magnitude), nil // correct for 1<<63 too, which is its own negative
	case !negative && magnitude < limit:
		return int64(magnitude), nil
	}
	return 0, ErrRange
}

// parseMagnitude reads an unsigned number as value × 10^exponent. Zeros are counted, and become
// part of value only when another digit follows them. In the end value has no trailing zeros, so
// the number is an integer exactly when the exponent is not negative. So 1e1000000000 takes no
// longer than 1: the exponent is only compared, and digits are shifted in twenty steps at most.
func parseMagnitude(raw []byte) (value uint64, err error) {
	var (
		zeros    int64 // counted, but not yet part of value
		exponent int64
		ok       = true
		inside   bool // in the fraction
	)
	for i, ch := range raw {
		if ch == 'e' || ch == 'E' {
			exponent += parseExponent(raw[i+1:])
			break
		}
		if ch == '.' {
			inside = true
			continue
		}
		if inside {
			exponent--
		}
		if ch == '0' {
			zeros++
			continue
		}
		if ok {
			value, ok = shiftDigit(value, zeros+1, uint64(ch-'0'))
		}
		zeros = 0
	}
	if value == 0 && ok {
		return 0, nil
	}
	exponent += zeros
	if exponent < 0 {
		return 0, ErrNotInteger
	}
	if ok {
		value, ok = shiftDigit(value, exponent, 0)
	}
	if !ok {
		return 0, ErrRange
	}
	return value, nil
}

// shiftDigit returns value × 10ⁿ + digit, and whether that fits. Zero stays zero and anything else
// is out of range after 20 steps, so n may be anything.
func shiftDigit(value uint64, n int64, digit uint64) (_ uint64, ok bool) {
	for ; n > 0 && value != 0; n-- {
		high, low := bits.Mul64(value, 10)
		if high != 0 {
			return 0, false
		}
		value = low
	}
	sum, carry := bits.Add64(value, digit, 0)
	return sum, carry == 0
}

// parseExponent reads [+-]?[0-9]+. The result stops growing at a size that no text is long enough
// to compensate with digits.
func parseExponent(raw []byte) (exponent int64) {
	const maxExponent = 1 << 56
	negative := false
	for _, ch := range raw {
		switch {
		case ch == '-':
			negative = true
		case isDigit(ch) && exponent < maxExponent:
			exponent = exponent*10 + int64(ch-'0')
		}
	}
	if negative {
		return -exponent
	}
	return exponent
}
