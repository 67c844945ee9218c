package main

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		in   []float64
		want float64
	}{
		{"one", []float64{7}, 7},
		{"odd, unsorted", []float64{9, 1, 5}, 5},
		{"even is the mean of the middle two", []float64{4, 1, 3, 2}, 2.5},
		{"an outlier does not move it", []float64{10, 11, 1_000_000}, 11},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			before := slices.Clone(tc.in)
			if got := median(tc.in); got != tc.want {
				t.Errorf("median(%v) = %v, want %v", tc.in, got, tc.want)
			}
			if !slices.Equal(tc.in, before) {
				t.Errorf("the argument became %v, want %v", tc.in, before)
			}
		})
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("median of none = %v, want NaN", got)
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for _, tc := range []struct {
		name string
		in   []float64
		want Spread
	}{
		{"none", nil, Spread{}},
		{"only missing rounds", []float64{nan, nan}, Spread{}},
		{"a missing round is left out", []float64{4, nan, 2},
			Spread{Median: 3, Min: 2, Max: 4, Rounds: 2}},
		{"all", []float64{3, 1, 2}, Spread{Median: 2, Min: 1, Max: 3, Rounds: 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := spreadOf(tc.in); got != tc.want {
				t.Errorf("spreadOf(%v) = %+v, want %+v", tc.in, got, tc.want)
			}
		})
	}
}

func TestRatiosPairByRound(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for _, tc := range []struct {
		name      string
		a, b      []float64
		want      []float64
		wantInMid float64
	}{
		// The machine was ten times slower in round two for both: each pair says 2, while the ratio
		// of the sorted values would say so only by luck.
		{"same disturbance on both", []float64{200, 20, 400}, []float64{100, 10, 200},
			[]float64{2, 2, 2}, 2},
		{"pairs, not the ratio of medians", []float64{1, 4, 9}, []float64{9, 4, 1},
			[]float64{1.0 / 9, 1, 9}, 1},
		{"missing on the left", []float64{nan, 6}, []float64{3, 3}, []float64{nan, 2}, 2},
		{"missing on the right", []float64{6, 6}, []float64{nan, 3}, []float64{nan, 2}, 2},
		{"nothing done by the reference", []float64{6, 6}, []float64{0, 2}, []float64{nan, 3}, 3},
		{"the shorter decides", []float64{6, 6, 6}, []float64{3}, []float64{2}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := ratios(tc.a, tc.b)
			same := func(x, y float64) bool { return x == y || (math.IsNaN(x) && math.IsNaN(y)) }
			if !slices.EqualFunc(got, tc.want, same) {
				t.Errorf("ratios = %v, want %v", got, tc.want)
			}
			if mid := spreadOf(got).Median; mid != tc.wantInMid {
				t.Errorf("median of the pairs = %v, want %v", mid, tc.wantInMid)
			}
		})
	}
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	upTo := func(n int) []time.Duration {
		values := make([]time.Duration, n)
		for i := range values {
			values[i] = time.Duration(i + 1)
		}
		return values
	}
	for _, tc := range []struct {
		name   string
		sorted []time.Duration
		p      float64
		want   time.Duration
	}{
		{"none", nil, 50, 0},
		{"one value is every percentile", upTo(1), 99, 1},
		{"p50 of 100", upTo(100), 50, 50},
		{"p99 of 100", upTo(100), 99, 99},
		{"p99 of 10 is the last", upTo(10), 99, 10},
		{"p50 of 3 is the middle", upTo(3), 50, 2},
		{"p100 is the last", upTo(7), 100, 7},
		{"p0 is the first", upTo(7), 0, 1},
		{"p99.9 of 1000 is not pushed up by rounding", upTo(1000), 99.9, 999},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := percentile(tc.sorted, tc.p); got != tc.want {
				t.Errorf("percentile(1..%d, %v) = %d, want %d", len(tc.sorted), tc.p, got, tc.want)
			}
		})
	}
}

func TestPercentilesOfUnsorted(t *testing.T) {
	t.Parallel()
	in := []time.Duration{5, 1, 4, 2, 3}
	want := Percentiles{P50: 3, P90: 5, P99: 5, P999: 5, Max: 5}
	if got := percentilesOf(in); got != want {
		t.Errorf("percentilesOf = %+v, want %+v", got, want)
	}
	if in[0] != 5 {
		t.Error("the argument was sorted in place; latencies are kept in order of the operations")
	}
}
