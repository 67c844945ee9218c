package job

import (
	"math/bits"
	"time"
)

// Strategy is how the delays before retries grow. Its words are those of TF-019.
type Strategy uint8

const (
	Fixed Strategy = iota
	Linear
	Exponential
)

var strategyNames = [...]string{Fixed: "FIXED", Linear: "LINEAR", Exponential: "EXPONENTIAL"}

// ParseStrategy knows exactly FIXED, LINEAR and EXPONENTIAL; any other spelling, lower case
// included, is not ok (TF-019).
func ParseStrategy(s string) (strategy Strategy, ok bool) {
	for i, name := range strategyNames {
		if s == name {
			return Strategy(i), true
		}
	}
	return 0, false
}

// String returns the word ParseStrategy reads.
func (s Strategy) String() string {
	if int(s) < len(strategyNames) {
		return strategyNames[s]
	}
	return "UNKNOWN"
}

// Backoff is a retry policy without chance: the same failure always waits the same time (TF-064).
type Backoff struct {
	Strategy Strategy
	Base     time.Duration
	// does not bound Fixed: whoever validates the policy has made sure that Base ≤ Max (G-TF-12)
	Max time.Duration
}

// Delay returns the wait after the n-th attempt has failed; n counts from 1 and anything lower
// counts as 1. Whole seconds in, whole seconds out, and no n overflows (TF-060 to TF-064).
func (b Backoff) Delay(n int) time.Duration {
	switch b.Strategy {
	case Linear:
		return linear(b.Base, b.Max, n)
	case Exponential:
		return exponential(b.Base, b.Max, 2, n)
	default:
		return max(b.Base, 0)
	}
}

// Jittered returns the wait after the n-th try: a uniform draw from [d/2, d], where d = min(base ×
// factor^(n−1), limit) (G-FR-64). random is 64 fresh random bits, passed in because nothing in this
// package draws lots; its high bits weigh most. A factor below 2 leaves d at its base.
func Jittered(base, limit time.Duration, factor, n int, random uint64) time.Duration {
	d := exponential(base, limit, factor, n)
	low := d / 2
	// The high word of the product is random scaled to [0, span): no float, no modulo and no bias
	// worth the name.
	span := uint64(d-low) + 1
	offset, _ := bits.Mul64(random, span)
	return low + time.Duration(offset)
}

// linear is min(base × n, limit), never negative.
func linear(base, limit time.Duration, n int) time.Duration {
	if base <= 0 || limit <= 0 {
		return 0
	}
	// base × n > limit exactly when n > limit ÷ base rounded down: the product is only made when it
	// fits.
	if times := time.Duration(max(n, 1)); times <= limit/base {
		return base * times
	}
	return limit
}

// exponential is min(base × factor^(n−1), limit), never negative, in at most 63 steps for any n.
func exponential(base, limit time.Duration, factor, n int) time.Duration {
	if base <= 0 || limit <= 0 {
		return 0
	}
	d := min(base, limit)
	if factor < 2 {
		return d
	}
	for ; n > 1 && d < limit; n-- {
		if d > limit/time.Duration(factor) {
			return limit
		}
		d *= time.Duration(factor)
	}
	return d
}
