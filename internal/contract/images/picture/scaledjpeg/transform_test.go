package scaledjpeg

import (
	"math"
	"math/rand/v2"
	"testing"
)

// exact is the transform of n points as its formula says.
func exact(f *frequencies, n, x, y int) float64 {
	sum := 0.0
	for v := range n {
		for u := range n {
			sum += float64(f[8*v+u]) * basis(n, u, x) * basis(n, v, y)
		}
	}
	return sum/8 + 128
}

func basis(n, k, m int) float64 {
	if k == 0 {
		return 1
	}
	return math.Sqrt2 * math.Cos(float64((2*m+1)*k)*math.Pi/float64(2*n))
}

func TestTransforms(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for n, transform := range transforms {
		if transform == nil {
			continue
		}
		for round := range 200 {
			var f frequencies
			for i := range f {
				f[i] = int64(random.NormFloat64() * 600 / float64(1+i/8+i%8+round%7*3))
			}
			out := make([]byte, 8*8)
			transform(&f, out, 8)
			for y := range n {
				for x := range n {
					want := max(0, min(255, exact(&f, n, x, y)))
					if got := float64(out[8*y+x]); math.Abs(got-want) > 0.6 {
						t.Fatalf("%d points at %d, %d: %v, want %.2f", n, x, y, got, want)
					}
				}
			}
		}
	}
}

// TestTransformsOfAnything shows that no frequency that a file can name is too large for the sums.
func TestTransformsOfAnything(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for n, transform := range transforms {
		if transform == nil {
			continue
		}
		for range 200 {
			var f frequencies
			for i := range f {
				f[i] = math.MinInt16 * math.MaxUint16
				if random.IntN(2) == 0 {
					f[i] = math.MaxInt16 * math.MaxUint16
				}
			}
			out := make([]byte, 8*8)
			transform(&f, out, 8)
			for y := range n {
				for x := range n {
					want := max(0, min(255, exact(&f, n, x, y)))
					if got := float64(out[8*y+x]); math.Abs(got-want) > 1 &&
						math.Abs(exact(&f, n, x, y)) > 1e7 {
						t.Fatalf("%d points at %d, %d: %v, want %.2f", n, x, y, got, want)
					}
				}
			}
		}
	}
}

func TestZigzag(t *testing.T) {
	t.Parallel()
	for k, want := range map[int]uint8{0: 0, 1: 1, 2: 8, 3: 16, 4: 9, 5: 2, 6: 3, 20: 40, 35: 56,
		36: 57, 62: 62, 63: 63} {
		if natural[k] != want {
			t.Errorf("coefficient %d is at %d, want %d", k, natural[k], want)
		}
	}
}
