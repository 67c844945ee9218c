package scaledjpeg

// frequencies are the coefficients of a block, row × 8 + column, times their quantization.
type frequencies [64]int64

// transform makes the n × n samples of a block from its first n × n frequencies.
type transform func(f *frequencies, out []byte, stride int)

// transforms are indexed by n.
var transforms = [9]transform{1: to1, 2: to2, 3: to3, 4: to4, 5: to5, 6: to6, 8: to8}

// A smaller picture is made without the full one: the first n × n frequencies of a block give, by
// the inverse transform of n × n points, its n × n samples.
//
// A transform has two passes of the same kernel, over columns and over rows. A kernel multiplies by
// 1 << fraction. With 32 bits for a frequency no sum needs more than 63, whatever is in a file, so
// nothing is rounded in between.

// sample is the sample of a sum: divided by the eight of the transform, and with zero in the middle
// of the range.
func sample(v int64) byte {
	const bits = 2*fraction + 3
	v = (v + 128<<bits + 1<<(bits-1)) >> bits
	if uint64(v) > 255 {
		return byte(^v >> 63) // 0 or 255
	}
	return byte(v)
}

func to1(f *frequencies, out []byte, _ int) { out[0] = sample(f[0] << (2 * fraction)) }

func to2(f *frequencies, out []byte, stride int) {
	a, c := kernel2(f[0], f[8])
	b, d := kernel2(f[1], f[9])
	upper, lower := out[:2], out[stride:][:2]
	v, w := kernel2(a, b)
	upper[0], upper[1] = sample(v), sample(w)
	v, w = kernel2(c, d)
	lower[0], lower[1] = sample(v), sample(w)
}

func to3(f *frequencies, out []byte, stride int) {
	var s [3][3]int64
	for x := range s {
		s[0][x], s[1][x], s[2][x] = kernel3(f[x], f[8+x], f[16+x])
	}
	for y := range s {
		row, v := out[y*stride:][:3], &s[y]
		a, b, c := kernel3(v[0], v[1], v[2])
		row[0], row[1], row[2] = sample(a), sample(b), sample(c)
	}
}

func to4(f *frequencies, out []byte, stride int) {
	var s [4][4]int64
	for x := range s {
		s[0][x], s[1][x], s[2][x], s[3][x] = kernel4(f[x], f[8+x], f[16+x], f[24+x])
	}
	for y := range s {
		row, v := out[y*stride:][:4], &s[y]
		a, b, c, d := kernel4(v[0], v[1], v[2], v[3])
		row[0], row[1], row[2], row[3] = sample(a), sample(b), sample(c), sample(d)
	}
}

func to5(f *frequencies, out []byte, stride int) {
	var s [5][5]int64
	for x := range s {
		s[0][x], s[1][x], s[2][x], s[3][x], s[4][x] = kernel5(f[x], f[8+x], f[16+x], f[24+x],
			f[32+x])
	}
	for y := range s {
		row, v := out[y*stride:][:5], &s[y]
		a, b, c, d, e := kernel5(v[0], v[1], v[2], v[3], v[4])
		row[0], row[1], row[2], row[3], row[4] = sample(a), sample(b), sample(c), sample(d),
			sample(e)
	}
}

func to6(f *frequencies, out []byte, stride int) {
	var s [6][6]int64
	for x := range s {
		s[0][x], s[1][x], s[2][x], s[3][x], s[4][x], s[5][x] = kernel6(f[x], f[8+x], f[16+x],
			f[24+x], f[32+x], f[40+x])
	}
	for y := range s {
		row, v := out[y*stride:][:6], &s[y]
		a, b, c, d, e, g := kernel6(v[0], v[1], v[2], v[3], v[4], v[5])
		row[0], row[1], row[2] = sample(a), sample(b), sample(c)
		row[3], row[4], row[5] = sample(d), sample(e), sample(g)
	}
}

func to8(f *frequencies, out []byte, stride int) {
	var s [8][8]int64
	for x := range s {
		s[0][x], s[1][x], s[2][x], s[3][x], s[4][x], s[5][x], s[6][x], s[7][x] = kernel8(f[x],
			f[8+x], f[16+x], f[24+x], f[32+x], f[40+x], f[48+x], f[56+x])
	}
	for y := range s {
		row, v := out[y*stride:][:8], &s[y]
		a, b, c, d, e, g, h, i := kernel8(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7])
		row[0], row[1], row[2], row[3] = sample(a), sample(b), sample(c), sample(d)
		row[4], row[5], row[6], row[7] = sample(e), sample(g), sample(h), sample(i)
	}
}
