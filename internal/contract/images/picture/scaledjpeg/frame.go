package scaledjpeg

import "slices"

// frame is what the header of the frame says, and the components with their planes.
type frame struct {
	baseline, progressive bool
	width, height         int
	mcuCols, mcuRows      int // an MCU has h × v blocks of each component
	components            []component
}

// component is one component of the frame.
type component struct {
	id          byte
	quantNumber byte
	h, v        int // blocks in an MCU
	sx, sy      int
	blockCols   int       // blocks in a row, padding to whole MCUs included
	decoded     int       // of the coefficients the first kept × kept are kept
	position    [64]uint8 // of each coefficient in a block, in zigzag order
	planes      []Plane
	blocks      blocks // of the whole frame, in a progressive JPEG
}

// startFrame reads the header of the frame. The samplings are those that image/jpeg accepts.
func (d *decoder) startFrame(marker byte, s []byte) error {
	if d.components != nil || len(s) < 6 {
		return errInvalid
	}
	d.baseline, d.progressive = marker == markerSOF0, marker == markerSOF2
	n := int(s[5])
	if len(s) != 6+3*n || (n != 1 && n != 3) || s[0] != 8 {
		return ErrUnusual
	}
	d.height, d.width = int(s[1])<<8|int(s[2]), int(s[3])<<8|int(s[4])
	if d.width == 0 || d.height == 0 {
		return errInvalid
	}
	d.components = make([]component, n)
	for i := range d.components {
		c, at := &d.components[i], s[6+3*i:]
		c.id, c.h, c.v, c.quantNumber = at[0], int(at[1]>>4), int(at[1]&15), at[2]
		for j := range i {
			if d.components[j].id == c.id {
				return errInvalid
			}
		}
		if c.quantNumber > 3 {
			return errInvalid
		}
		if !validFactor(c.h) || !validFactor(c.v) {
			return ErrUnusual
		}
		if n == 1 {
			c.h, c.v = 1, 1 // one component is not interleaved, whatever its factors
		}
	}
	return d.layOut()
}

func validFactor(n int) bool { return n == 1 || n == 2 || n == 4 }

// layOut computes the sizes of the components. The first one has a sample for each pixel, and the
// other two have the same factors.
func (d *decoder) layOut() error {
	first, last := &d.components[0], &d.components[len(d.components)-1]
	if first.v == 4 {
		return ErrUnusual
	}
	d.mcuCols = divideUp(d.width, 8*first.h)
	d.mcuRows = divideUp(d.height, 8*first.v)
	for i := range d.components {
		c := &d.components[i]
		if i > 0 && (c.h != last.h || c.v != last.v) {
			return ErrUnusual
		}
		if first.h%c.h != 0 || first.v%c.v != 0 {
			return ErrUnusual
		}
		c.sx, c.sy = first.h/c.h, first.v/c.v
		c.blockCols = d.mcuCols * c.h
	}
	return nil
}

// isRGB reports whether the components are red, green and blue, as image/jpeg sees it. It depends
// on segments that may follow the frame.
func (d *decoder) isRGB() bool {
	if len(d.components) != 3 || d.jfif {
		return false
	}
	if d.adobe && d.adobeRGB {
		return true
	}
	c := d.components
	return c[0].id == 'R' && c[1].id == 'G' && c[2].id == 'B'
}

// startPicture makes the picture and its planes before the first scan.
func (d *decoder) startPicture() error {
	p := &Picture{Width: d.width, Height: d.height, RGB: d.isRGB()}
	for i := range d.components {
		c := &d.components[i]
		if p.RGB && (c.sx > 1 || c.sy > 1) {
			return ErrUnusual
		}
		p.Components = append(p.Components, Component{SX: c.sx, SY: c.sy})
	}
	for i, scales := range d.scales(p) {
		c := &d.components[i]
		c.keep(slices.Max(scales))
		for _, n := range scales {
			plane := Plane{Eighths: n, Stride: c.blockCols * n,
				Cols: divideUp(d.width*n, 8*c.sx), Rows: divideUp(d.height*n, 8*c.sy)}
			plane.Pix = make([]byte, plane.Stride*d.mcuRows*c.v*n)
			p.Components[i].Planes = append(p.Components[i].Planes, plane)
		}
		c.planes = p.Components[i].Planes
	}
	d.picture = p
	return nil
}

// keep lets the component keep the first n × n coefficients of a block. All others have the
// position behind these.
func (c *component) keep(n int) {
	c.decoded = n
	for k, at := range natural {
		row, col := int(at/8), int(at%8)
		c.position[k] = uint8(n * n)
		if row < n && col < n {
			c.position[k] = uint8(row*n + col)
		}
	}
}

func divideUp(a, b int) int { return (a + b - 1) / b }

// natural is the position, row × 8 + column, of the coefficients in the order of the file, which
// runs from the lowest frequency to the highest along the diagonals, one up and one down.
var natural = zigzag()

func zigzag() (order [64]uint8) {
	k := 0
	for sum := range 15 {
		for i := range sum + 1 {
			row, col := sum-i, i
			if sum%2 == 1 {
				row, col = i, sum-i
			}
			if row < 8 && col < 8 {
				order[k] = uint8(8*row + col)
				k++
			}
		}
	}
	return order
}
