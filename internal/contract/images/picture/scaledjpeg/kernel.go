package scaledjpeg

// A kernel of n points makes the samples m = 0 … n-1 of the frequencies k = 0 … n-1,
//
//	s(m) = f(0) + Σ √2 · cos((2m + 1) · k · π / 2n) · f(k)
//
// times 1 << fraction. The even frequencies are the same in mirrored samples, the odd ones
// opposite, so each product is used twice. What stands for √2 · cos is named by its angle in
// degrees.
const fraction = 12

const (
	cos11 = 5681 // 11.25
	cos15 = 5595
	cos18 = 5509
	cos22 = 5352 // 22.5
	cos30 = 5017
	cos34 = 4816 // 33.75
	cos36 = 4686
	cos54 = 3405
	cos56 = 3218 // 56.25
	cos60 = 2896
	cos67 = 2217 // 67.5
	cos72 = 1790
	cos75 = 1499
	cos79 = 1130 // 78.75
	cos0  = 5793
)

func kernel2(f0, f1 int64) (s0, s1 int64) {
	return (f0 + f1) << fraction, (f0 - f1) << fraction
}

func kernel3(f0, f1, f2 int64) (s0, s1, s2 int64) {
	f0 <<= fraction
	even, odd := f0+cos60*f2, cos30*f1
	return even + odd, f0 - cos0*f2, even - odd
}

func kernel4(f0, f1, f2, f3 int64) (s0, s1, s2, s3 int64) {
	outer, inner := (f0+f2)<<fraction, (f0-f2)<<fraction
	o, i := cos22*f1+cos67*f3, cos67*f1-cos22*f3
	return outer + o, inner + i, inner - i, outer - o
}

func kernel5(f0, f1, f2, f3, f4 int64) (s0, s1, s2, s3, s4 int64) {
	f0 <<= fraction
	even0, odd0 := f0+cos36*f2+cos72*f4, cos18*f1+cos54*f3
	even1, odd1 := f0-cos72*f2-cos36*f4, cos54*f1-cos18*f3
	return even0 + odd0, even1 + odd1, f0 + cos0*(f4-f2), even1 - odd1, even0 - odd0
}

func kernel6(f0, f1, f2, f3, f4, f5 int64) (s0, s1, s2, s3, s4, s5 int64) {
	even0, even1, even2 := kernel3(f0, f2, f4)
	odd0 := cos15*f1 + f3<<fraction + cos75*f5
	odd1 := (f1 - f3 - f5) << fraction
	odd2 := cos75*f1 - f3<<fraction + cos15*f5
	return even0 + odd0, even1 + odd1, even2 + odd2, even2 - odd2, even1 - odd1, even0 - odd0
}

func kernel8(f0, f1, f2, f3, f4, f5, f6, f7 int64) (s0, s1, s2, s3, s4, s5, s6, s7 int64) {
	even0, even1, even2, even3 := kernel4(f0, f2, f4, f6)
	odd0 := cos11*f1 + cos34*f3 + cos56*f5 + cos79*f7
	odd1 := cos34*f1 - cos79*f3 - cos11*f5 - cos56*f7
	odd2 := cos56*f1 - cos11*f3 + cos79*f5 + cos34*f7
	odd3 := cos79*f1 - cos56*f3 + cos34*f5 - cos11*f7
	return even0 + odd0, even1 + odd1, even2 + odd2, even3 + odd3,
		even3 - odd3, even2 - odd2, even1 - odd1, even0 - odd0
}
