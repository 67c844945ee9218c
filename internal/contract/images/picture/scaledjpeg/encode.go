package scaledjpeg

import (
	"io"
	"math/bits"
)

// A block goes through these steps, each of which works on integers alone, so that the same samples
// are the same bytes on every processor:
//
//	samples − 128 ─▶ forward ─▶ quantize ─▶ zigzag, runs of zeros ─▶ Huffman codes ─▶ bytes
//
// A division by the quantization is a multiplication by its reciprocal.

// Encode writes planes as a sequential JPEG with the tables of the standard: one of grey, or Y, Cb
// and Cr, of which the latter have half as many columns and rows, rounded up. Quality means what
// it means in image/jpeg, 1 to 100. The result depends on nothing but the samples and the quality.
func Encode(w io.Writer, planes []Plane, quality int) error {
	e := &encoder{to: w, planes: planes}
	for i := range e.quant {
		for k, at := range natural {
			q := quantization(standardQuant[i][at], quality)
			e.quant[i][k] = byte(q)
			e.reciprocal[i][k] = (1<<reciprocalBits + q/2) / q
		}
	}
	e.header()
	if len(planes) == 1 {
		e.grey()
	} else {
		e.colour()
	}
	e.end()
	return e.err
}

// quantization scales a value of a standard table.
func quantization(v byte, quality int) int64 {
	scale := 200 - 2*quality
	if quality < 50 {
		scale = 5000 / quality
	}
	return int64(max(1, min(255, (int(v)*scale+50)/100)))
}

// encoder writes one JPEG. The first of two tables is for grey or Y, the second for Cb and Cr.
type encoder struct {
	to         io.Writer
	err        error
	planes     []Plane
	quant      [2][64]byte // in zigzag order
	reciprocal [2][64]int64
	out        []byte
	bits       uint64 // the last ones are the next to be written
	count      int    // of bits, fewer than 32 between two values
}

// header writes the segments before the data.
func (e *encoder) header() {
	e.out = append(e.out, 0xff, markerSOI)
	tables := min(2, len(e.planes))
	quant := []byte{}
	for i := range tables {
		quant = append(append(quant, byte(i)), e.quant[i][:]...)
	}
	e.segment(markerDQT, quant)
	first := &e.planes[0]
	frame := []byte{8, byte(first.Rows >> 8), byte(first.Rows), byte(first.Cols >> 8),
		byte(first.Cols), byte(len(e.planes))}
	scan := []byte{byte(len(e.planes))}
	for i := range e.planes {
		factors, table := byte(0x11), byte(min(1, i))
		if i == 0 && len(e.planes) > 1 {
			factors = 0x22
		}
		frame = append(frame, byte(i+1), factors, table)
		scan = append(scan, byte(i+1), table<<4|table)
	}
	e.segment(markerSOF0, frame)
	var huffman []byte
	for i := range tables {
		for class, h := range standardHuffman[i] {
			huffman = append(huffman, byte(class<<4|i))
			huffman = append(append(huffman, h.counts[:]...), h.symbols...)
		}
	}
	e.segment(markerDHT, huffman)
	e.segment(markerSOS, append(scan, 0, 63, 0))
}

func (e *encoder) segment(marker byte, body []byte) {
	n := len(body) + 2
	e.out = append(append(e.out, 0xff, marker, byte(n>>8), byte(n)), body...)
}

// grey writes the blocks of one plane.
func (e *encoder) grey() {
	p := &e.planes[0]
	dc := int64(0)
	for y := 0; y < p.Rows; y += 8 {
		for x := 0; x < p.Cols; x += 8 {
			dc = e.block(p, 0, x, y, dc)
		}
		e.flush()
	}
}

// colour writes MCUs: four blocks of Y, and one each of Cb and Cr.
func (e *encoder) colour() {
	luma := &e.planes[0]
	var dc [3]int64
	for y := 0; y < luma.Rows; y += 16 {
		for x := 0; x < luma.Cols; x += 16 {
			for i := range 4 {
				dc[0] = e.block(luma, 0, x+i%2*8, y+i/2*8, dc[0])
			}
			dc[1] = e.block(&e.planes[1], 1, x/2, y/2, dc[1])
			dc[2] = e.block(&e.planes[2], 1, x/2, y/2, dc[2])
		}
		e.flush()
	}
}

// block writes a block. It returns the DC coefficient, from which the next one is a difference.
func (e *encoder) block(p *Plane, table, x, y int, dc int64) int64 {
	var f [64]int64
	if x+8 <= p.Cols && y+8 <= p.Rows {
		for row := range 8 {
			in, to := p.Pix[(y+row)*p.Stride+x:][:8], f[8*row:][:8]
			for i, v := range in {
				to[i] = int64(v) - 128
			}
		}
	} else {
		for i := range f {
			row, col := min(y+i/8, p.Rows-1), min(x+i%8, p.Cols-1)
			f[i] = int64(p.Pix[row*p.Stride+col]) - 128
		}
	}
	forward(&f)
	codes, reciprocal := &standardCodes[table], &e.reciprocal[table]
	first := quantize(f[0], reciprocal[0])
	e.value(&codes[0], 0, first-dc)
	zeros := 0
	for k := 1; k < 64; k++ {
		v := quantize(f[natural[k]&63], reciprocal[k])
		if v == 0 {
			zeros++
			continue
		}
		for ; zeros > 15; zeros -= 16 {
			e.code(&codes[1], 0xf0)
		}
		e.value(&codes[1], zeros, v)
		zeros = 0
	}
	if zeros > 0 {
		e.code(&codes[1], 0)
	}
	return first
}

// The fraction bits of a coefficient before it is quantized, and of a reciprocal.
const (
	quantizedBits  = 12
	reciprocalBits = 24
)

// quantize divides a coefficient and rounds the result, halves away from zero.
func quantize(f, reciprocal int64) int64 {
	const half = 1 << (quantizedBits + reciprocalBits - 1)
	sign := f >> 63
	v := ((f^sign-sign)*reciprocal + half) >> (quantizedBits + reciprocalBits)
	return v ^ sign - sign
}

// value writes a value with the number of zeros before it.
func (e *encoder) value(t *codeTable, zeros int, v int64) {
	n := bits.Len64(uint64(max(v, -v)))
	entry := t[byte(zeros<<4|n)]
	v += v >> 63 // one less if negative
	e.bits = e.bits<<(entry&31) | uint64(entry>>5)
	e.bits = e.bits<<uint(n) | uint64(v)&(1<<uint(n)-1)
	e.count += int(entry&31) + n
	if e.count >= 32 {
		e.spill()
	}
}

// code writes a symbol without a value.
func (e *encoder) code(t *codeTable, symbol byte) {
	entry := t[symbol]
	e.bits = e.bits<<(entry&31) | uint64(entry>>5)
	e.count += int(entry & 31)
	if e.count >= 32 {
		e.spill()
	}
}

// spill moves 32 bits to the output, where FF is followed by 00.
func (e *encoder) spill() {
	e.count -= 32
	word := uint32(e.bits >> uint(e.count))
	if hasFF(uint64(word)) {
		for shift := 24; shift >= 0; shift -= 8 {
			e.byte(byte(word >> uint(shift)))
		}
		return
	}
	e.out = append(e.out, byte(word>>24), byte(word>>16), byte(word>>8), byte(word))
}

func (e *encoder) byte(b byte) {
	e.out = append(e.out, b)
	if b == 0xff {
		e.out = append(e.out, 0)
	}
}

// flush writes the buffer. After an error it only empties it.
func (e *encoder) flush() {
	out := e.out
	e.out = e.out[:0]
	if e.err != nil {
		return
	}
	_, e.err = e.to.Write(out)
}

// end fills the last byte with ones and writes the end of the image.
func (e *encoder) end() {
	e.bits, e.count = e.bits<<7|0x7f, e.count+7
	for ; e.count >= 8; e.count -= 8 {
		e.byte(byte(e.bits >> uint(e.count-8)))
	}
	e.out = append(e.out, 0xff, markerEOI)
	e.flush()
}

// forward is the transform from samples to coefficients, with quantizedBits behind the point: two
// passes of a kernel, over rows and over columns.
func forward(f *[64]int64) {
	for y := 0; y < 64; y += 8 {
		v := f[y:][:8]
		v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7] = forward8(v[0], v[1], v[2], v[3], v[4],
			v[5], v[6], v[7])
	}
	const extra = 2*fraction + 3 - quantizedBits
	for x := range 8 {
		a, b, c, d, e, g, h, i := forward8(f[x], f[8+x], f[16+x], f[24+x], f[32+x], f[40+x],
			f[48+x], f[56+x])
		f[x], f[8+x], f[16+x], f[24+x] = a>>extra, b>>extra, c>>extra, d>>extra
		f[32+x], f[40+x], f[48+x], f[56+x] = e>>extra, g>>extra, h>>extra, i>>extra
	}
}

// forward8 is the transpose of kernel8: the frequencies of eight samples, times 1 << fraction.
func forward8(s0, s1, s2, s3, s4, s5, s6, s7 int64) (f0, f1, f2, f3, f4, f5, f6, f7 int64) {
	even0, even1, even2, even3 := s0+s7, s1+s6, s2+s5, s3+s4
	odd0, odd1, odd2, odd3 := s0-s7, s1-s6, s2-s5, s3-s4
	outer, inner := even0-even3, even1-even2
	return (even0 + even1 + even2 + even3) << fraction,
		cos11*odd0 + cos34*odd1 + cos56*odd2 + cos79*odd3,
		cos22*outer + cos67*inner,
		cos34*odd0 - cos79*odd1 - cos11*odd2 - cos56*odd3,
		(even0 - even1 - even2 + even3) << fraction,
		cos56*odd0 - cos11*odd1 + cos79*odd2 + cos34*odd3,
		cos67*outer - cos22*inner,
		cos79*odd0 - cos56*odd1 + cos34*odd2 - cos11*odd3
}
