package job_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/job"
)

var strategies = []job.Strategy{job.Fixed, job.Linear, job.Exponential}

// TF-063, and what comes after the examples: the bound.
func TestRetryPolicyExamples(t *testing.T) {
	t.Parallel()
	want := map[job.Strategy][]int{
		job.Fixed:       {10, 10, 10, 10, 10, 10, 10},
		job.Linear:      {10, 20, 30, 40, 50, 60, 70},
		job.Exponential: {10, 20, 40, 80, 160, 300, 300},
	}
	for strategy, seconds := range want {
		p := job.RetryPolicy{Strategy: strategy, Base: 10 * time.Second, Max: 300 * time.Second}
		for i, s := range seconds {
			if got := p.Delay(i + 1); got != time.Duration(s)*time.Second {
				t.Errorf("%s.Delay(%d) = %v, want %ds", strategy, i+1, got, s)
			}
		}
	}
}

func TestRetryPolicyEdges(t *testing.T) {
	t.Parallel()
	const s = time.Second
	tests := []struct {
		p    job.RetryPolicy
		n    int
		want time.Duration
	}{
		{job.RetryPolicy{Strategy: job.Fixed, Base: 20 * s, Max: 10 * s}, 1, 20 * s}, // G-TF-12
		{job.RetryPolicy{Strategy: job.Linear, Base: 20 * s, Max: 10 * s}, 1, 10 * s},
		{job.RetryPolicy{Strategy: job.Exponential, Base: 20 * s, Max: 10 * s}, 1, 10 * s},
		{job.RetryPolicy{Strategy: job.Linear, Base: 10 * s, Max: 30 * s}, 3, 30 * s},
		{job.RetryPolicy{Strategy: job.Linear, Base: 10 * s, Max: 35 * s}, 4, 35 * s},
		{job.RetryPolicy{Strategy: job.Linear, Base: 10 * s, Max: 300 * s}, 0, 10 * s},
		{job.RetryPolicy{Strategy: job.Exponential, Base: 10 * s, Max: 300 * s}, math.MinInt, 10 * s},
		{job.RetryPolicy{Strategy: job.Linear, Base: s, Max: 3600 * s}, math.MaxInt, 3600 * s},
		{job.RetryPolicy{Strategy: job.Exponential, Base: s, Max: 3600 * s}, math.MaxInt, 3600 * s},
		{job.RetryPolicy{Strategy: job.Exponential, Base: 1, Max: math.MaxInt64}, 63, 1 << 62},
		{job.RetryPolicy{Strategy: job.Exponential, Base: 1, Max: math.MaxInt64}, 64, math.MaxInt64},
		{job.RetryPolicy{Strategy: job.Exponential, Base: 0, Max: s}, math.MaxInt, 0},
		{job.RetryPolicy{Strategy: job.Linear, Base: -s, Max: s}, 5, 0},
		{job.RetryPolicy{Strategy: job.Fixed, Base: -s, Max: s}, 5, 0},
		{job.RetryPolicy{Strategy: job.Exponential, Base: s, Max: -s}, 5, 0},
	}
	for after := range 7 { // failed attempts from before the policy do not count
		p := job.RetryPolicy{Strategy: job.Exponential, Base: s, Max: 8 * s, FailedBefore: after}
		for n, want := range []time.Duration{s, 2 * s, 4 * s, 8 * s, 8 * s} {
			if got := p.Delay(after + n + 1); got != want {
				t.Errorf("%+v.Delay(%d) = %v, want %v", p, after+n+1, got, want)
			}
		}
		if got := p.Delay(0); got != s {
			t.Errorf("%+v.Delay(0) = %v, want %v", p, got, s)
		}
	}
	for _, tt := range tests {
		if got := tt.p.Delay(tt.n); got != tt.want {
			t.Errorf("%+v.Delay(%d) = %v, want %v", tt.p, tt.n, got, tt.want)
		}
	}
}

// exactDelay is TF-060 to TF-062 with numbers that cannot overflow. n must be small enough to shift
// by.
func exactDelay(p job.RetryPolicy, n int) time.Duration {
	d := big.NewInt(int64(p.Base))
	switch p.Strategy {
	case job.Linear:
		d.Mul(d, big.NewInt(int64(n)))
	case job.Exponential:
		d.Lsh(d, uint(n-1))
	default:
		return p.Base
	}
	if limit := big.NewInt(int64(p.Max)); d.Cmp(limit) > 0 {
		d = limit
	}
	return time.Duration(d.Int64())
}

// TF-064: exact, whole seconds, bounded and never shrinking over the whole range a policy may have.
func TestRetryPolicyProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		base := rapid.IntRange(1, 300).Draw(rt, "base")
		p := job.RetryPolicy{
			Strategy: rapid.SampledFrom(strategies).Draw(rt, "strategy"),
			Base:     time.Duration(base) * time.Second,
			Max:      time.Duration(rapid.IntRange(base, 3600).Draw(rt, "max")) * time.Second,
		}
		n := rapid.IntRange(1, 5000).Draw(rt, "n")
		got := p.Delay(n)
		if want := exactDelay(p, n); got != want {
			rt.Fatalf("%+v.Delay(%d) = %v, want %v", p, n, got, want)
		}
		if got%time.Second != 0 {
			rt.Fatalf("%v is not whole seconds", got)
		}
		later := rapid.IntRange(n, math.MaxInt).Draw(rt, "later")
		if d := p.Delay(later); d < got || d > p.Max {
			rt.Fatalf("Delay(%d) = %v after Delay(%d) = %v, max %v", later, d, n, got, p.Max)
		}
	})
}

func FuzzRetryPolicyOverflow(f *testing.F) {
	f.Add(uint8(2), int64(1), int64(math.MaxInt64), 63)
	f.Add(uint8(1), int64(math.MaxInt64), int64(math.MaxInt64), math.MaxInt)
	f.Fuzz(func(t *testing.T, strategy uint8, base, limit int64, n int) {
		if base < 0 || limit < 0 || n < 1 || n > 1<<16 {
			return
		}
		p := job.RetryPolicy{Strategy: job.Strategy(strategy % 3), Base: time.Duration(base),
			Max: time.Duration(limit)}
		if got, want := p.Delay(n), exactDelay(p, n); got != want {
			t.Errorf("%+v.Delay(%d) = %d, want %d", p, n, got, want)
		}
	})
}

// G-FR-64: uniform in [d/2, d], both ends reached.
func TestJitteredBounds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		factor, n int
		limit     time.Duration
		d         time.Duration
	}{
		{2, 1, time.Minute, time.Second},
		{2, 4, time.Minute, 8 * time.Second},
		{2, 7, time.Minute, time.Minute},
		{5, 3, 2 * time.Hour, 25 * time.Second},
		{5, 8, 2 * time.Hour, 2 * time.Hour}, // the webhooks' last try
		{5, math.MaxInt, math.MaxInt64, math.MaxInt64},
		{1, math.MaxInt, time.Minute, time.Second},
		{0, 3, time.Minute, time.Second},
		{2, 0, time.Minute, time.Second},
		{math.MaxInt, 2, time.Minute, time.Minute},
	}
	for _, tt := range tests {
		for _, draw := range []struct {
			random uint64
			want   time.Duration
		}{{0, tt.d / 2}, {math.MaxUint64, tt.d}} {
			if got := job.Jittered(time.Second, tt.limit, tt.factor, tt.n,
				draw.random); got != draw.want {
				t.Errorf("Jittered(1s, %v, %d, %d, %x) = %v, want %v", tt.limit, tt.factor, tt.n,
					draw.random, got, draw.want)
			}
		}
	}
	if got := job.Jittered(0, time.Minute, 2, 9, math.MaxUint64); got != 0 {
		t.Errorf("no base: %v, want 0", got)
	}
	if got := job.Jittered(time.Second, time.Minute, 2, 1, 1<<63); got != 750*time.Millisecond {
		t.Errorf("half of the randomness: %v, want 750ms", got)
	}
}

func TestJitteredProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		base := time.Duration(rapid.Int64Min(0).Draw(rt, "base"))
		limit := time.Duration(rapid.Int64Min(0).Draw(rt, "limit"))
		factor, n := rapid.IntMin(0).Draw(rt, "factor"), rapid.Int().Draw(rt, "n")
		low := job.Jittered(base, limit, factor, n, 0)
		high := job.Jittered(base, limit, factor, n, math.MaxUint64)
		got := job.Jittered(base, limit, factor, n, rapid.Uint64().Draw(rt, "random"))
		if low < 0 || got < low || got > high || high > limit || low != high/2 {
			rt.Fatalf("low %d, got %d, high %d, limit %d", low, got, high, limit)
		}
	})
}

// TF-019: exactly three words.
func TestParseStrategy(t *testing.T) {
	t.Parallel()
	for _, s := range strategies {
		if got, ok := job.ParseStrategy(s.String()); !ok || got != s {
			t.Errorf("ParseStrategy(%q) = %v, %v", s.String(), got, ok)
		}
	}
	for _, s := range []string{"", "fixed", "Linear", "EXPONENTIAL ", "UNKNOWN", "RANDOM"} {
		if got, ok := job.ParseStrategy(s); ok {
			t.Errorf("ParseStrategy(%q) = %v, want refused", s, got)
		}
	}
	if got := job.Strategy(9).String(); got != "UNKNOWN" {
		t.Errorf("Strategy(9) = %q", got)
	}
}

// G-FR-48: the delays of deliveries.
func TestVaried(t *testing.T) {
	t.Parallel()
	want := []time.Duration{time.Second, 5 * time.Second, 25 * time.Second, 125 * time.Second,
		625 * time.Second, 3125 * time.Second, 2 * time.Hour, 2 * time.Hour}
	for i, d := range want {
		n := i + 1
		b := func(draw float64) time.Duration {
			return job.Varied(time.Second, 2*time.Hour, 5, n, draw)
		}
		if got := b(0.5); got != d {
			t.Errorf("G-FR-48 after try %d: %v, want %v", n, got, d)
		}
		low, high := d*8/10, min(d*12/10, 2*time.Hour)
		if got := b(0); got < low-time.Microsecond || got > low+time.Microsecond {
			t.Errorf("the least after try %d: %v, want %v", n, got, low)
		}
		if got := b(0.999999); got > high || got < high-time.Second {
			t.Errorf("the most after try %d: %v, want %v", n, got, high)
		}
	}
	if got := job.Varied(time.Second, time.Hour, 1, 1<<40, 0.5); got != time.Second {
		t.Errorf("a factor of 1: %v", got)
	}
	if got := job.Varied(time.Second, time.Hour, 100, 1<<40, 0.5); got != time.Hour {
		t.Errorf("an absurd number of tries: %v", got)
	}
}
