package job

import (
	"math"
	"math/bits"
	"time"
)

// Strategy is how the delays before retries grow. TF-019 has its words.
type Strategy uint8

const (
	Fixed Strategy = iota
	Linear
	Exponential
)

var strategyNames = [...]string{Fixed: "FIXED", Linear: "LINEAR", Exponential: "EXPONENTIAL"}

// ParseStrategy accepts exactly FIXED, LINEAR and EXPONENTIAL and no other spelling, such as lower
// case (TF-019).
func ParseStrategy(s string) (strategy Strategy, ok bool) {
	for i, name := range strategyNames {
		if s == name {
			return Strategy(i), true
		}
	}
	return 0, false
}

// String returns the word that ParseStrategy accepts.
func (s Strategy) String() string {
	if int(s) < len(strategyNames) {
		return strategyNames[s]
	}
	return "UNKNOWN"
}

// RetryPolicy says how long a job waits for its next attempt. It has no jitter: the same failure
// always waits the same time (TF-064). The zero value makes the job ready at once.
type RetryPolicy struct {
	Strategy Strategy
	Base     time.Duration
	// Max does not bound Fixed: the validation of a policy ensures Base ≤ Max (G-TF-12).
	Max time.Duration
	// FailedBefore is the number of failed attempts that came before the policy and do not count,
	// such as those before a replay.
	FailedBefore int
}

// Delay returns the wait after the failed-th attempt has failed, counted from 1. The first attempt
// after p.FailedBefore waits like a first attempt, as does every one before. Whole seconds give
// whole seconds, and no number overflows (TF-060 to TF-064).
func (p RetryPolicy) Delay(failed int) time.Duration {
	n := max(failed, p.FailedBefore) - p.FailedBefore
	switch p.Strategy {
	case Linear:
		return linear(p.Base, p.Max, n)
	case Exponential:
		return exponential(p.Base, p.Max, 2, n)
	default:
		return max(p.Base, 0)
	}
}

// Jittered returns the wait after the n-th try: a uniform draw from [d/2, d], where d = min(base ×
// factor^(n−1), limit) (G-FR-64). random is 64 fresh random bits, the high ones weigh most. With a
// factor below 2, d is min(base, limit).
func Jittered(base, limit time.Duration, factor, n int, random uint64) time.Duration {
	d := exponential(base, limit, factor, n)
	low := d / 2
	// The high word of the product is random scaled to [0, span), without a bias that matters.
	span := uint64(d-low) + 1
	offset, _ := bits.Mul64(random, span)
	return low + time.Duration(offset)
}

// Varied returns the wait after the n-th try: min(base × factor^(n−1), limit), made longer or
// shorter by up to a fifth, and at most limit (G-FR-48). draw from [0, 1) decides by how much. base
// is above 0 and factor not below 1.
func Varied(base, limit time.Duration, factor float64, n int, draw float64) time.Duration {
	const share = 0.2
	highest := float64(limit)
	d := min(float64(base)*math.Pow(factor, float64(n-1)), highest)
	return time.Duration(min(d*(1-share+2*share*draw), highest))
}

// linear is min(base × n, limit), never negative.
func linear(base, limit time.Duration, n int) time.Duration {
	if base <= 0 || limit <= 0 {
		return 0
	}
	// base × n > limit exactly when n > limit ÷ base rounded down, so the product never overflows.
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
