package picture

import "math"

// weightBits is the precision of weights, which are fixed-point numbers: 1 << weightBits is 1.
const weightBits = 14

// taps are the weights of the source samples that make one sample of the result, beginning with the
// sample first. They add up to exactly 1, so an area of one colour keeps it to the last bit.
type taps struct {
	first   int
	weights []int32
}

// catmullRom is the cubic Catmull-Rom kernel: interpolating, slightly sharpening, with a support of
// two samples to each side.
func catmullRom(x float64) float64 {
	x = math.Abs(x)
	switch {
	case x < 1:
		return (1.5*x-2.5)*x*x + 1
	case x < 2:
		return ((-0.5*x+2.5)*x-4)*x + 2
	}
	return 0
}

// tapsFor returns the taps of n result samples, which cover the length to, over cols source
// samples, which cover the length from. If flipped, the first result sample is at the end of the
// source. When the result is smaller the kernel is widened by the same factor, so that every
// source sample counts; at the edges it is cut off, and the remaining weights are scaled to a sum
// of 1.
func tapsFor(n int, to float64, cols int, from float64, flipped bool) []taps {
	all := make([]taps, n)
	scale := from / to
	width := max(scale, 1)
	for i := range all {
		centre := (float64(i) + 0.5) * scale
		if flipped {
			centre = from - centre
		}
		first := min(max(0, int(math.Floor(centre-2*width))), cols-1)
		end := max(min(cols, int(math.Ceil(centre+2*width))), first+1)
		weights := make([]float64, end-first)
		sum := 0.0
		for k := range weights {
			weights[k] = catmullRom((float64(first+k) + 0.5 - centre) / width)
			sum += weights[k]
		}
		if sum == 0 { // half a sample beyond the last one
			weights[0], sum = 1, 1
		}
		all[i] = fixed(first, weights, sum)
	}
	return all
}

// fixed converts weights to fixed-point numbers and adds the rounding error to the largest one.
// Weights of zero at both ends are dropped, which leaves fewer samples to add.
func fixed(first int, weights []float64, sum float64) taps {
	t := taps{first, make([]int32, len(weights))}
	rest, largest := int32(1<<weightBits), 0
	for k, w := range weights {
		t.weights[k] = int32(math.Round(w / sum * (1 << weightBits)))
		rest -= t.weights[k]
		if t.weights[k] > t.weights[largest] {
			largest = k
		}
	}
	t.weights[largest] += rest
	for len(t.weights) > 1 && t.weights[0] == 0 {
		t.first, t.weights = t.first+1, t.weights[1:]
	}
	for n := len(t.weights); n > 1 && t.weights[n-1] == 0; n-- {
		t.weights = t.weights[:n-1]
	}
	return t
}
