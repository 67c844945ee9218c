package scaledjpeg

import "sync"

// Reading a scan is the work of one goroutine, as a block is found only behind the one before it.
// Making samples of coefficients is as much work again, and is done beside it:
//
//	         ┌──────────── free ◀───────────┐
//	reader ──┤                              ├── a goroutine for each processor
//	         └──── strip ───▶ ready ────────┘
//
// There are a few strips and they are used again, which bounds the memory of a sequential JPEG
// whatever its size, and has the reader wait for those that render.

// blocks are the coefficients of rows of blocks of a component.
type blocks struct {
	cols    int
	size    int     // of a block in values
	values  []int16 // of each block those that are kept, row by row, and one value for all others
	nonzero []uint64
}

// block is one of them.
type block struct {
	values  []int16
	nonzero *uint64 // in a progressive JPEG: a bit for each coefficient that is not zero
}

func newBlocks(c *component, rows int) blocks {
	b := blocks{cols: c.blockCols, size: c.decoded*c.decoded + 1}
	b.values = make([]int16, rows*b.cols*b.size)
	return b
}

func (b *blocks) at(x, y int) block {
	i := y*b.cols + x
	at := block{values: b.values[i*b.size:][:b.size:b.size]}
	if b.nonzero != nil {
		at.nonzero = &b.nonzero[i]
	}
	return at
}

// render makes the samples of a row of blocks: row in the component, and from in the blocks.
func (c *component) render(b *blocks, from, row int, quant *[64]int32) {
	var f frequencies
	for x := range b.cols {
		values := b.values[(from*b.cols+x)*b.size:][:b.size]
		flat := f.dequantize(values, c.decoded, quant)
		for i := range c.planes {
			p := &c.planes[i]
			n := p.Eighths
			out := p.Pix[row*n*p.Stride+x*n:]
			if flat {
				fill(out, p.Stride, n, sample(f[0]<<(2*fraction)))
			} else {
				transforms[n](&f, out, p.Stride)
			}
		}
	}
}

// dequantize multiplies the coefficients of a block with their quantization. It reports whether
// all but the first are zero.
func (f *frequencies) dequantize(values []int16, decoded int, quant *[64]int32) (flat bool) {
	var any int16
	first := values[0]
	values[0] = 0
	for y := range decoded {
		row := values[y*decoded:][:decoded]
		to, q := f[8*y:][:decoded], quant[8*y:][:decoded]
		for x, v := range row {
			any |= v
			to[x] = int64(v) * int64(q[x])
		}
	}
	values[0] = first
	f[0] = int64(first) * int64(quant[0])
	return any == 0
}

// fill gives all samples of a block one value.
func fill(out []byte, stride, n int, v byte) {
	for y := range n {
		row := out[y*stride:][:n]
		for x := range row {
			row[x] = v
		}
	}
}

// quantization returns the values of the component's table by row and column.
func (d *decoder) quantization(c *component) *[64]int32 {
	var q [64]int32
	for k, at := range natural {
		q[at] = d.quant[c.quantNumber][k]
	}
	return &q
}

// renderFrame makes all samples of a progressive JPEG. A component of which there was no scan keeps
// samples of zero.
func (d *decoder) renderFrame() {
	for i := range d.components {
		c := &d.components[i]
		if c.blocks.values == nil {
			continue
		}
		quant := d.quantization(c)
		rows := d.mcuRows * c.v
		var wg sync.WaitGroup
		for w := range d.workers {
			wg.Go(func() {
				for row := rows * w / d.workers; row < rows*(w+1)/d.workers; row++ {
					c.render(&c.blocks, row, row, quant)
				}
			})
		}
		wg.Wait()
	}
}

// strip has the coefficients of a row of MCUs.
type strip struct {
	row  int
	rows []blocks // of the components of the scan
}

// renderer makes samples beside the reading of a sequential scan.
type renderer struct {
	scan  *scan
	quant []*[64]int32
	free  chan *strip
	ready chan *strip
	wg    sync.WaitGroup
}

// startRenderer starts a goroutine for each processor, and makes some strips more than these.
func startRenderer(s *scan) *renderer {
	n := min(s.workers, s.mcuRows)
	r := &renderer{scan: s, free: make(chan *strip, 2*n), ready: make(chan *strip, 2*n)}
	for range cap(r.free) {
		r.free <- &strip{}
	}
	for i := range s.selected {
		r.quant = append(r.quant, s.quantization(s.selected[i].component))
	}
	for range n {
		r.wg.Go(r.run)
	}
	return r
}

// strip returns an empty strip for a row of MCUs. It waits while all are in use.
func (r *renderer) strip(row int) *strip {
	t := <-r.free
	t.row = row
	if t.rows == nil {
		for i := range r.scan.selected {
			c := &r.scan.selected[i]
			t.rows = append(t.rows, newBlocks(c.component, c.v))
		}
		return t
	}
	for _, b := range t.rows {
		clear(b.values)
	}
	return t
}

// render gives a strip to the goroutines.
func (r *renderer) render(t *strip) { r.ready <- t }

// wait returns when all strips are rendered.
func (r *renderer) wait() {
	close(r.ready)
	r.wg.Wait()
}

func (r *renderer) run() {
	for t := range r.ready {
		for i := range t.rows {
			c := r.scan.selected[i].component
			for y := range c.v {
				c.render(&t.rows[i], y, t.row*c.v+y, r.quant[i])
			}
		}
		r.free <- t
	}
}
