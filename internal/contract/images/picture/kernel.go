package picture

import "math"

// weightBits is the precision of weights: one is 1 << weightBits.
const weightBits = 14

// taps says how one sample of the result comes from samples of the source: from first on, one for
// each weight. The weights add up to one exactly, so an even area stays as it is to the last bit.
type taps struct {
	first   int
	weights []int32
}

// catmullRom is the cubic kernel of that name: interpolating, slightly sharpening, two samples wide
// to each side.
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

// tapsFor gives the taps of n samples that cover the length to, from samples of which cols are
// there and that cover the length from; flipped takes them from the other end.
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

// fixed makes integers of the weights and gives what rounding leaves to the largest.
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
