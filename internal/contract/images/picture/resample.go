package picture

import (
	"runtime"
	"sync"
)

// Resampling has two steps. A raster that is much larger than the result is halved, by averaging
// two columns or rows, as often as it stays at least twice as large; from there the Catmull-Rom
// kernel computes the result with a few taps per sample.
//
//	4000 ─half─► 2000 ─half─► 1000 ─kernel─► 400
//	                             └──half─► 500 ─kernel─► 200
//
// The halved raster replaces the original, so sizes must be requested from the largest to the
// smallest, and each costs about its own area. As every size goes through the same halves, its
// result does not depend on the sizes before it.
//
// A JPEG was already decoded in smaller scales (scaled.go), and each size begins with its own.

// fit returns the picture in the given size and the orientation o; width and height are those
// before a transposition. It halves the raster itself.
func (r *raster) fit(width, height int, o orientation) *raster {
	to := &raster{width: width, height: height}
	for i := range r.planes {
		want := to.wanted(i, r.planes[i].channels)
		p, ratio := &r.planes[i], 4.0
		if r.decoded != nil {
			p, ratio = &r.decoded[i][p.eighths(&want)], maxScaledRatio
		}
		for p.w >= ratio*want.w || p.h >= ratio*want.h {
			*p = p.half(p.w >= ratio*want.w, p.h >= ratio*want.h)
		}
		to.planes = append(to.planes, p.resample(want, o))
	}
	if o.transpose {
		to.width, to.height = height, width
	}
	return to
}

// wanted is the shape of a plane in a variant: chroma is written with a quarter of the samples.
func (r *raster) wanted(i, channels int) plane {
	if i > 0 {
		return r.plane(nil, 0, channels, 2, 2)
	}
	return r.plane(nil, 0, channels, 1, 1)
}

// half returns the plane with half as many columns, rows or both.
func (p *plane) half(x, y bool) plane {
	sx, sy := 1, 1
	to := plane{cols: p.cols, rows: p.rows, w: p.w, h: p.h, channels: p.channels, alpha: p.alpha}
	if x {
		sx, to.cols, to.w = 2, (p.cols+1)/2, p.w/2
	}
	if y {
		sy, to.rows, to.h = 2, (p.rows+1)/2, p.h/2
	}
	to.stride = to.cols * to.channels
	to.pix = make([]byte, to.stride*to.rows)
	parallel(to.rows, func(from, end int) {
		for row := from; row < end; row++ {
			upper, lower := p.row(row*sy), p.row(min(row*sy+sy-1, p.rows-1))
			out := to.row(row)
			if p.alpha {
				halveAlpha(out, upper, lower, sx)
			} else {
				halve(out, upper, lower, sx, p.channels, row)
			}
		}
	})
	return to
}

// row returns the samples of a row, without the rest of the stride.
func (p *plane) row(y int) []byte {
	return p.pix[y*p.stride:][: p.cols*p.channels : p.cols*p.channels]
}

// halve averages two rows, and if sx is 2 also pairs of columns. It rounds up and down alternately,
// so that repeated halving does not make a picture brighter.
func halve(out, upper, lower []byte, sx, channels, row int) {
	for i := 0; i < len(out); i += channels {
		left := i * sx
		right := min(left+(sx-1)*channels, len(upper)-channels)
		half := 1 + (i/channels+row)&1
		for c := range channels {
			sum := int(upper[left+c]) + int(upper[right+c]) + int(lower[left+c]) +
				int(lower[right+c])
			out[i+c] = byte((sum + half) >> 2)
		}
	}
}

// halveAlpha is halve for pixels with alpha: the weight of a colour is its alpha. So the colour of
// transparent pixels, which is arbitrary, does not reach their neighbours.
func halveAlpha(out, upper, lower []byte, sx int) {
	for i := 0; i < len(out); i += 4 {
		left := i * sx
		right := min(left+(sx-1)*4, len(upper)-4)
		four := [4][]byte{upper[left : left+4], upper[right : right+4], lower[left : left+4],
			lower[right : right+4]}
		var sum [4]int
		for _, p := range four {
			a := int(p[3])
			sum[0] += a * int(p[0])
			sum[1] += a * int(p[1])
			sum[2] += a * int(p[2])
			sum[3] += a
		}
		if sum[3] == 0 {
			continue
		}
		for c := range 3 {
			out[i+c] = byte((sum[c] + sum[3]/2) / sum[3])
		}
		out[i+3] = byte((sum[3] + 2) / 4)
	}
}

// sampleBits is the precision of samples between the two passes, without the sign. With weights of
// weightBits, negative ones included, the sums of both passes fit into an int32.
const sampleBits = 15

// resample makes a plane of the given shape. For each row of the result it combines rows of the
// source to one row, and then columns of that row, so that no more than one row lies between the
// passes.
func (p *plane) resample(to plane, o orientation) plane {
	columns := tapsFor(to.cols, to.w, p.cols, p.w, o.flipX)
	rows := tapsFor(to.rows, to.h, p.rows, p.h, o.flipY)
	to.alpha = p.alpha
	to.stride = to.cols * to.channels
	to.pix = make([]byte, to.stride*to.rows)
	parallel(to.rows, func(from, end int) {
		sums := make([]int32, p.cols*p.channels)
		for y := from; y < end; y++ {
			clear(sums)
			p.resampleRows(sums, rows[y])
			if p.channels == 1 {
				resampleColumns(to.row(y), sums, columns)
			} else {
				resamplePixels(to.row(y), sums, columns, p.alpha)
			}
		}
	})
	if o.transpose {
		return to.transposed()
	}
	return to
}

// resampleRows adds weighted rows and scales the sums to sampleBits. Colours are premultiplied with
// their alpha.
func (p *plane) resampleRows(sums []int32, t taps) {
	if p.alpha {
		for k, w := range t.weights {
			addAlphaRow(sums, p.row(t.first+k), w)
		}
		scaleDown(sums, weightBits+16-sampleBits)
		return
	}
	weights, first := t.weights, t.first
	for ; len(weights) >= 4; weights, first = weights[4:], first+4 {
		addRows(sums, p.row(first), p.row(first+1), p.row(first+2), p.row(first+3), weights)
	}
	for k, w := range weights {
		row := p.row(first + k)
		row = row[:len(sums)]
		for x := range sums {
			sums[x] += w * int32(row[x])
		}
	}
	scaleDown(sums, weightBits+8-sampleBits)
}

// addRows adds four rows at once, which saves three of four passes over the sums.
func addRows(sums []int32, a, b, c, d []byte, w []int32) {
	n := len(sums)
	a, b, c, d = a[:n], b[:n], c[:n], d[:n]
	wa, wb, wc, wd := w[0], w[1], w[2], w[3]
	for x := range sums {
		sums[x] += wa*int32(a[x]) + wb*int32(b[x]) + wc*int32(c[x]) + wd*int32(d[x])
	}
}

// addAlphaRow adds a weighted row of pixels. Colours are multiplied with their alpha, and alpha
// with 255, so all four have the same scale.
func addAlphaRow(sums []int32, row []byte, w int32) {
	for ; len(row) >= 4 && len(sums) >= 4; row, sums = row[4:], sums[4:] {
		a := w * int32(row[3])
		sums[0] += a * int32(row[0])
		sums[1] += a * int32(row[1])
		sums[2] += a * int32(row[2])
		sums[3] += a * 0xff
	}
}

// scaleDown divides by a power of two and rounds to the nearest number.
func scaleDown(sums []int32, bits int) {
	half := int32(1) << (bits - 1)
	for x, s := range sums {
		sums[x] = (s + half) >> bits
	}
}

// toByte is the shift that makes a byte of a weighted sum of samples.
const toByte = weightBits + sampleBits - 8

// resampleColumns makes a row of the result from a row of sums, for planes of one channel. The
// kernel has negative weights, so results are clamped.
func resampleColumns(out []byte, samples []int32, columns []taps) {
	for x := range out {
		t := &columns[x]
		in := samples[t.first:][:len(t.weights)]
		sum := int32(1) << (toByte - 1)
		for k, w := range t.weights {
			sum += w * in[k]
		}
		out[x] = clamp(int(sum >> toByte))
	}
}

// resamplePixels is resampleColumns for pixels of four channels.
func resamplePixels(out []byte, samples []int32, columns []taps, alpha bool) {
	for x := range columns {
		t := &columns[x]
		in := samples[4*t.first:][:4*len(t.weights)]
		var sum [4]int32
		for _, w := range t.weights {
			sum[0] += w * in[0]
			sum[1] += w * in[1]
			sum[2] += w * in[2]
			sum[3] += w * in[3]
			in = in[4:]
		}
		if alpha {
			putPixel(out[4*x:][:4], sum)
			continue
		}
		for c, s := range sum {
			out[4*x+c] = clamp(int((s + 1<<(toByte-1)) >> toByte))
		}
	}
}

// putPixel divides premultiplied colours by their alpha. A transparent pixel has no colour.
func putPixel(out []byte, sum [4]int32) {
	const opaque = 255 * 255 << (weightBits + sampleBits - 16)
	alpha := clamp(int((int64(sum[3])*255 + opaque/2) / opaque))
	if alpha == 0 {
		return
	}
	for c := range 3 {
		out[c] = clamp(int((int64(sum[c])*255 + int64(sum[3])/2) / int64(sum[3])))
	}
	out[3] = alpha
}

// transposed returns the plane with rows and columns exchanged.
func (p *plane) transposed() plane {
	to := plane{cols: p.rows, rows: p.cols, w: p.h, h: p.w, channels: p.channels, alpha: p.alpha,
		stride: p.rows * p.channels}
	to.pix = make([]byte, len(p.pix))
	n := p.channels
	for y := range p.rows {
		row := p.row(y)
		for x := range p.cols {
			copy(to.pix[x*to.stride+y*n:][:n], row[x*n:])
		}
	}
	return to
}

// parallel divides n rows among the processors and returns when all calls of fn have returned.
// Each gets a range of its own, and no result depends on how many there are.
func parallel(n int, fn func(from, end int)) {
	workers := min(n, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() { fn(n*i/workers, n*(i+1)/workers) })
	}
	wg.Wait()
}
