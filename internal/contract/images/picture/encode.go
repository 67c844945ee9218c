package picture

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"image"
	"image/jpeg"
	"image/png"
	"io"

	"github.com/millrace/millrace/internal/contract/images/picture/scaledjpeg"
)

// jpegQuality is the quality of variants. At their sizes the loss is hardly visible.
const jpegQuality = 80

// output is the type of the variants of an original (G-IP-18). The raster decides about a WebP:
// one that has an alpha channel and no transparent pixel counts as opaque.
func (h *header) output(r *raster) string {
	if h.format.mime == "image/jpeg" || (h.format.mime == "image/webp" && !r.planes[0].alpha) {
		return "image/jpeg"
	}
	return "image/png"
}

// encode writes the raster as a picture with the colour profile of the original and no other
// metadata. Profiles and the chunks of pngColour follow the first marker of a JPEG and the first
// chunk of a PNG, IHDR, which has 25 bytes.
func (h *header) encode(w io.Writer, r *raster, mime string) error {
	to := bufio.NewWriter(w)
	var err error
	if mime == "image/jpeg" {
		err = r.encodeJPEG(&spliceWriter{w: to, offset: 2, extra: jpegProfile(h.profile)})
	} else {
		err = png.Encode(&spliceWriter{w: to, offset: len(pngSignature) + 25,
			extra: append(h.colour, pngProfile(h.profile)...)}, r.image())
	}
	if err != nil {
		return err
	}
	return to.Flush()
}

// encodeJPEG writes planes as they are. image/jpeg, which takes three times as long, encodes pixels
// of four channels.
func (r *raster) encodeJPEG(w io.Writer) error {
	if r.planes[0].channels == 4 {
		return jpeg.Encode(w, r.image(), &jpeg.Options{Quality: jpegQuality})
	}
	var planes []scaledjpeg.Plane
	for _, p := range r.planes {
		planes = append(planes, scaledjpeg.Plane{Cols: p.cols, Rows: p.rows, Stride: p.stride,
			Pix: p.pix})
	}
	return scaledjpeg.Encode(w, planes, jpegQuality)
}

// image is the raster in the form that the encoders accept.
func (r *raster) image() image.Image {
	bounds := image.Rect(0, 0, r.width, r.height)
	p := r.planes
	switch {
	case len(p) == 3:
		return &image.YCbCr{Y: p[0].pix, Cb: p[1].pix, Cr: p[2].pix, YStride: p[0].stride,
			CStride: p[1].stride, SubsampleRatio: image.YCbCrSubsampleRatio420, Rect: bounds}
	case p[0].channels == 1:
		return &image.Gray{Pix: p[0].pix, Stride: p[0].stride, Rect: bounds}
	case p[0].alpha:
		return &image.NRGBA{Pix: p[0].pix, Stride: p[0].stride, Rect: bounds}
	}
	return &image.RGBA{Pix: p[0].pix, Stride: p[0].stride, Rect: bounds}
}

// spliceWriter inserts extra bytes at an offset of the bytes that are written through it. The
// encoders cannot write a profile themselves.
//
//	bytes written:  [0, offset) ─► w    extra ─► w    [offset, …) ─► w
type spliceWriter struct {
	w      io.Writer
	offset int
	extra  []byte
}

// Write implements io.Writer. The number of bytes that it returns does not include the extra ones.
func (s *spliceWriter) Write(b []byte) (int, error) {
	n := min(s.offset, len(b))
	s.offset -= n
	if _, err := s.w.Write(b[:n]); err != nil {
		return 0, err
	}
	if s.offset == 0 && s.extra != nil {
		if _, err := s.w.Write(s.extra); err != nil {
			return 0, err
		}
		s.extra = nil
	}
	rest, err := s.w.Write(b[n:])
	return n + rest, err
}

// jpegProfile splits a profile into JPEG segments. A segment has at most 65,535 bytes: its length,
// the prefix, the number of the part from 1, the number of parts, and the part. As checkProfile
// bounds profiles, the numbers fit into a byte.
func jpegProfile(profile []byte) []byte {
	const maxPart = 0xffff - 2 - 14
	var to []byte
	count := (len(profile) + maxPart - 1) / maxPart
	for i := range count {
		part := profile[i*maxPart : min((i+1)*maxPart, len(profile))]
		length := 2 + len(iccPrefix) + 2 + len(part)
		to = append(to, 0xff, markerICC, byte(length>>8), byte(length))
		to = append(append(to, iccPrefix...), byte(i+1), byte(count))
		to = append(to, part...)
	}
	return to
}

// pngProfile is the PNG chunk of a profile; nil for nil.
func pngProfile(profile []byte) []byte {
	if profile == nil {
		return nil
	}
	body := bytes.NewBufferString("icc\x00\x00") // a name, and the only compression method
	z := zlib.NewWriter(body)
	_, _ = z.Write(profile) // a buffer returns no error
	_ = z.Close()
	return appendChunk(nil, "iCCP", body.Bytes())
}
