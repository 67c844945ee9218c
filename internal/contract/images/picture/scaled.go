package picture

import (
	"image"

	"github.com/millrace/millrace/internal/contract/images/picture/scaledjpeg"
)

// A JPEG is decoded in the scales that its variants need: from 8 × 8 samples of the file n × n are
// made, by leaving out the high frequencies of each block. That is not the same as a resampling
// kernel, so the result is still made smaller by the kernel, and needs to be larger than the
// variant.

// oversampling is, for each scale in eighths, how many times the variant a decoded plane has to be
// at least. With these the structural similarity to a resampling of all samples is above 0.98 also
// for noise and small text (TestScaledQuality); of the coarse scales, which see little of the
// phase of what is in a block, more is asked. There is no scale of seven eighths.
var oversampling = [9]float64{1: 7, 2: 5, 3: 1.7, 4: 1.5, 5: 1.5, 6: 1.5}

// maxScaledRatio is the ratio from which a scaled plane is halved before the kernel (fit). The
// kernel alone is exact, and scaled planes are small.
const maxScaledRatio = 32

// eighths returns the scale in which a plane is decoded, to be made as small as want. It depends on
// nothing else, so a variant is the same with other variants and without them.
func (p *plane) eighths(want *plane) int {
	ratio := min(p.w/want.w, p.h/want.h)
	for n, minRatio := range oversampling {
		if minRatio > 0 && ratio*float64(n)/8 >= minRatio {
			return n
		}
	}
	return 8
}

// scaled returns the plane in a scale. It has no samples yet.
func (p *plane) scaled(eighths, cols, rows int) plane {
	scale := float64(eighths) / 8
	return plane{cols: cols, rows: rows, w: p.w * scale, h: p.h * scale, channels: p.channels}
}

// decodeScaled decodes a JPEG in the scales that variants of these sizes need. It returns nil if
// the decoder of the standard library has to decide: about pictures that are unusual, or no JPEG at
// all.
func (h *header) decodeScaled(sizes []int) *raster {
	r := &raster{width: h.width, height: h.height}
	decoded, err := scaledjpeg.Decode(h.still, func(p *scaledjpeg.Picture) [][]int {
		return r.scalesFor(p, sizes)
	})
	if err != nil || decoded.Width != h.width || decoded.Height != h.height {
		return nil
	}
	r.decoded = make([][9]plane, len(r.planes))
	if decoded.RGB {
		for i, p := range decoded.Components[0].Planes {
			to := r.planes[0].scaled(p.Eighths, p.Cols, p.Rows)
			to.pix, to.stride = interleaveRGB(decoded, i), 4*p.Cols
			r.decoded[0][p.Eighths] = to
		}
		return r
	}
	for i, c := range decoded.Components {
		for _, p := range c.Planes {
			to := r.planes[i].scaled(p.Eighths, p.Cols, p.Rows)
			to.pix, to.stride = p.Pix, p.Stride
			r.decoded[i][p.Eighths] = to
		}
	}
	return r
}

// scalesFor sets the planes of the raster, without samples, and returns the scales for each
// component of a JPEG.
func (r *raster) scalesFor(p *scaledjpeg.Picture, sizes []int) [][]int {
	if p.RGB {
		r.planes = []plane{r.plane(nil, 0, 4, 1, 1)}
	} else {
		for _, c := range p.Components {
			r.planes = append(r.planes, r.plane(nil, 0, 1, c.SX, c.SY))
		}
	}
	scales := make([][]int, len(p.Components))
	for i := range scales {
		of := min(i, len(r.planes)-1)
		var needed [9]bool
		for _, size := range sizes {
			width, height := fitted(r.width, r.height, size)
			want := (&raster{width: width, height: height}).wanted(of, r.planes[of].channels)
			needed[r.planes[of].eighths(&want)] = true
		}
		for n, is := range needed {
			if is {
				scales[i] = append(scales[i], n)
			}
		}
	}
	return scales
}

// interleaveRGB makes opaque pixels of the planes with an index.
func interleaveRGB(p *scaledjpeg.Picture, index int) []byte {
	red, green, blue := &p.Components[0].Planes[index], &p.Components[1].Planes[index],
		&p.Components[2].Planes[index]
	pix := image.NewRGBA(image.Rect(0, 0, red.Cols, red.Rows)).Pix
	for y := range red.Rows {
		row := y * red.Stride
		for x := range red.Cols {
			*(*[4]byte)(pix[4*(y*red.Cols+x):]) = [4]byte{red.Pix[row+x], green.Pix[row+x],
				blue.Pix[row+x], 0xff}
		}
	}
	return pix
}
