package picture

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
)

// What a decoder returns becomes a raster without a conversion where possible: a JPEG is resampled
// in the planes that it has (docs/decisions/0024-pictures.md).
//
//	JPEG                   planes in several scales (scaled.go), or else
//	Gray, Gray16           one plane of grey
//	YCbCr                  three planes, chroma subsampled as in the file
//	all others             one plane of red, green, blue and alpha
//	part of the canvas     the same, with transparent pixels around it

// raster is a decoded picture in the form that is resampled: one plane of grey, three planes of Y,
// Cb and Cr, or one plane of four channels.
type raster struct {
	width, height int
	planes        []plane
	decoded       [][9]plane // of each plane the scales that were decoded, by eighths; or nil
}

// plane holds 8-bit samples, row by row. The last sample of a subsampled plane lies half outside a
// picture of odd size, so w and h, its size in samples, are not always whole numbers.
type plane struct {
	pix        []byte
	stride     int
	cols, rows int
	w, h       float64
	channels   int  // 1 or 4
	alpha      bool // the fourth channel is used; the others are not premultiplied with it
}

// decode decodes the picture, or its first frame, for variants of these sizes.
func (h *header) decode(sizes []int) (*raster, error) {
	if h.format.mime == "image/jpeg" {
		if r := h.decodeScaled(sizes); r != nil {
			return r, nil
		}
	}
	return h.decodeWhole()
}

// decodeWhole decodes all samples with the decoder of the standard library or of x/image.
func (h *header) decodeWhole() (*raster, error) {
	img, err := h.format.decode(bytes.NewReader(h.still))
	if err != nil {
		return nil, decodeError(h.format.mime, err)
	}
	if h.format.mime == "image/webp" {
		widenRange(img)
	}
	return newRaster(img, image.Rect(0, 0, h.width, h.height), h.frame.Min.Add(img.Bounds().Min))
}

// newRaster makes a raster of the size of canvas with img at the given point. The raster may share
// memory with img, which must not be used afterwards. A picture without a transparent pixel counts
// as one without alpha.
func newRaster(img image.Image, canvas image.Rectangle, at image.Point) (*raster, error) {
	r := &raster{width: canvas.Dx(), height: canvas.Dy()}
	if img.Bounds().Sub(img.Bounds().Min).Add(at) == canvas {
		switch m := img.(type) {
		case *image.Gray:
			r.planes = []plane{r.plane(m.Pix, m.Stride, 1, 1, 1)}
			return r, nil
		case *image.Gray16:
			r.planes = []plane{r.plane(toEightBits(m.Pix), m.Stride/2, 1, 1, 1)}
			return r, nil
		case *image.YCbCr:
			sx, sy, ok := subsampling(m.SubsampleRatio)
			if !ok {
				return nil, errorf(Unsupported, "a subsampling of %v", m.SubsampleRatio)
			}
			r.planes = []plane{r.plane(m.Y, m.YStride, 1, 1, 1),
				r.plane(m.Cb, m.CStride, 1, sx, sy), r.plane(m.Cr, m.CStride, 1, sx, sy)}
			return r, nil
		}
	}
	pix, stride, alpha, err := fourChannels(img)
	if err != nil {
		return nil, err
	}
	if size := img.Bounds().Size(); size != canvas.Size() || at != canvas.Min {
		pix, stride, alpha = placeOnCanvas(pix, stride, size, canvas, at), 4*canvas.Dx(), true
	}
	p := r.plane(pix, stride, 4, 1, 1)
	p.alpha = alpha && p.transparent()
	r.planes = []plane{p}
	return r, nil
}

// plane is a plane of the whole picture with one sample for every sx columns and sy rows.
func (r *raster) plane(pix []byte, stride, channels, sx, sy int) plane {
	return plane{pix: pix, stride: stride, channels: channels,
		cols: (r.width + sx - 1) / sx, rows: (r.height + sy - 1) / sy,
		w: float64(r.width) / float64(sx), h: float64(r.height) / float64(sy)}
}

// transparent reports whether any pixel is not opaque.
func (p *plane) transparent() bool {
	for y := range p.rows {
		row := p.row(y)
		for x := 3; x < len(row); x += 4 {
			if row[x] != 0xff {
				return true
			}
		}
	}
	return false
}

// subsampling returns how many columns and rows share one sample of chroma; false for a ratio that
// is not known here.
func subsampling(ratio image.YCbCrSubsampleRatio) (sx, sy int, ok bool) {
	switch ratio {
	case image.YCbCrSubsampleRatio444:
		return 1, 1, true
	case image.YCbCrSubsampleRatio422:
		return 2, 1, true
	case image.YCbCrSubsampleRatio420:
		return 2, 2, true
	case image.YCbCrSubsampleRatio440:
		return 1, 2, true
	case image.YCbCrSubsampleRatio411:
		return 4, 1, true
	case image.YCbCrSubsampleRatio410:
		return 4, 2, true
	}
	return 0, 0, false
}

// fourChannels converts a picture to red, green, blue and alpha, in place if possible. Where alpha
// is false, every pixel is opaque.
func fourChannels(img image.Image) (pix []byte, stride int, alpha bool, err error) {
	switch m := img.(type) {
	case *image.NRGBA:
		return m.Pix, m.Stride, true, nil
	case *image.RGBA: // decoders use it for opaque pictures only
		return m.Pix, m.Stride, false, nil
	case *image.NRGBA64:
		return toEightBits(m.Pix), m.Stride / 2, true, nil
	case *image.RGBA64: // opaque as well
		return toEightBits(m.Pix), m.Stride / 2, false, nil
	case *image.CMYK:
		cmykToRGB(m.Pix)
		return m.Pix, m.Stride, false, nil
	case *image.Paletted:
		pix, alpha = expandPalette(m)
		return pix, 4 * m.Rect.Dx(), alpha, nil
	case *image.YCbCr:
		return interleavePixels(&image.NYCbCrA{YCbCr: *m}), 4 * m.Rect.Dx(), false, nil
	case *image.NYCbCrA:
		return interleavePixels(m), 4 * m.Rect.Dx(), true, nil
	}
	return nil, 0, false, errorf(Unsupported, "pixels of the kind %T", img)
}

// toEightBits rounds 16-bit samples to 8 bits, in place.
func toEightBits(pix []byte) []byte {
	for i := range pix[:len(pix)/2] {
		pix[i] = byte((uint32(binary.BigEndian.Uint16(pix[2*i:]))*0xff + 0x807f) >> 16)
	}
	return pix[:len(pix)/2]
}

// cmykToRGB converts CMYK pixels to opaque RGBA pixels, in place.
func cmykToRGB(pix []byte) {
	for ; len(pix) >= 4; pix = pix[4:] {
		pix[0], pix[1], pix[2] = color.CMYKToRGB(pix[0], pix[1], pix[2], pix[3])
		pix[3] = 0xff
	}
}

// expandPalette converts the pixels of a palette to RGBA.
func expandPalette(m *image.Paletted) (pix []byte, alpha bool) {
	var table [256][4]byte
	for i, c := range m.Palette[:min(len(m.Palette), 256)] {
		n := color.NRGBAModel.Convert(c).(color.NRGBA)
		table[i] = [4]byte{n.R, n.G, n.B, n.A}
		alpha = alpha || n.A != 0xff
	}
	width, height := m.Rect.Dx(), m.Rect.Dy()
	pix = make([]byte, 4*width*height)
	for y := range height {
		to := pix[4*width*y:]
		for x, i := range m.Pix[m.Stride*y:][:width] {
			*(*[4]byte)(to[4*x:]) = table[i]
		}
	}
	return pix, alpha
}

// interleavePixels converts planes to RGBA pixels, which are opaque without a plane of alpha.
func interleavePixels(m *image.NYCbCrA) []byte {
	width, height := m.Rect.Dx(), m.Rect.Dy()
	pix := make([]byte, 4*width*height)
	parallel(height, func(from, end int) {
		to := pix[4*width*from:]
		for y := from; y < end; y++ {
			for x := range width {
				c := m.COffset(x, y)
				r, g, b := color.YCbCrToRGB(m.Y[m.YOffset(x, y)], m.Cb[c], m.Cr[c])
				a := byte(0xff)
				if m.A != nil {
					a = m.A[m.AOffset(x, y)]
				}
				*(*[4]byte)(to[4*x:]) = [4]byte{r, g, b, a}
			}
			to = to[4*width:]
		}
	})
	return pix
}

// placeOnCanvas copies the pixels of a frame to a transparent canvas.
func placeOnCanvas(pix []byte, stride int, size image.Point, canvas image.Rectangle,
	at image.Point) []byte {
	all := make([]byte, 4*canvas.Dx()*canvas.Dy())
	for y := range size.Y {
		copy(all[4*(canvas.Dx()*(at.Y+y)+at.X):], pix[stride*y:][:4*size.X])
	}
	return all
}

// widenRange stretches the samples of a lossy WebP, which have luma from 16 to 235 and chroma from
// 16 to 240, to the full range that image.YCbCr has everywhere else. The decoder does not do that.
func widenRange(img image.Image) {
	var m *image.YCbCr
	switch i := img.(type) {
	case *image.YCbCr:
		m = i
	case *image.NYCbCrA:
		m = &i.YCbCr
	default:
		return
	}
	var luma, chroma [256]byte
	for i := range 256 {
		luma[i] = clamp(((i-16)*255 + 219/2) / 219)
		chroma[i] = clamp(((i-128)*255 + 224*128 + 224/2) / 224)
	}
	for _, p := range []struct {
		pix   []byte
		table *[256]byte
	}{{m.Y, &luma}, {m.Cb, &chroma}, {m.Cr, &chroma}} {
		for i, v := range p.pix {
			p.pix[i] = p.table[v]
		}
	}
}

func clamp(v int) byte { return byte(max(0, min(255, v))) }
