package main

import (
	"math"
	"slices"
	"time"
)

// Spread is the middle and the edges of a handful of values, one per round.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Rounds int     `json:"rounds"`
}

// spreadOf ignores NaN, the mark of a round without a value.
func spreadOf(values []float64) Spread {
	valid := make([]float64, 0, len(values))
	for _, v := range values {
		if !math.IsNaN(v) {
			valid = append(valid, v)
		}
	}
	if len(valid) == 0 {
		return Spread{}
	}
	return Spread{
		Median: median(valid),
		Min:    slices.Min(valid),
		Max:    slices.Max(valid),
		Rounds: len(valid),
	}
}

// median is the middle value, or the mean of the two in the middle. It leaves its argument in order
// and answers NaN for none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// ratios divides round i of a by round i of b. Pairing by round is the reason for interleaving:
// both values of a pair saw the same machine. A round that either side is missing answers NaN, so
// the index stays the round.
func ratios(a, b []float64) []float64 {
	pairs := make([]float64, min(len(a), len(b)))
	for i := range pairs {
		pairs[i] = math.NaN()
		if b[i] > 0 && !math.IsNaN(a[i]) {
			pairs[i] = a[i] / b[i]
		}
	}
	return pairs
}

// percentile is the nearest rank: the smallest value with at least p percent of all values at or
// below it. The argument must be sorted.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	// The small step back keeps a product such as 99.9/100*1000, which floating point puts a hair
	// above its rank, from being rounded up to the next one.
	rank := int(math.Ceil(p/100*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Percentiles of the operations of one phase.
type Percentiles struct {
	P50, P90, P99, P999, Max time.Duration
}

func percentilesOf(samples []time.Duration) Percentiles {
	sorted := slices.Sorted(slices.Values(samples))
	return Percentiles{
		P50:  percentile(sorted, 50),
		P90:  percentile(sorted, 90),
		P99:  percentile(sorted, 99),
		P999: percentile(sorted, 99.9),
		Max:  percentile(sorted, 100),
	}
}
