package picture

import (
	"bytes"
	"encoding/binary"
	"image"
)

const (
	webpAnimation = 0x02
	webpAlpha     = 0x10
)

// webpFrame is one picture in a WebP: its pixels and, for lossy ones, a separate alpha channel.
//
// The slices are parts of the file.
type webpFrame struct {
	kind   string // "VP8 " or "VP8L"
	pixels []byte
	alpha  []byte
}

// add keeps the first chunk of each kind that belongs to a frame.
func (f *webpFrame) add(kind string, body []byte) {
	switch {
	case (kind == "VP8 " || kind == "VP8L") && f.kind == "":
		f.kind, f.pixels = kind, body
	case kind == "ALPH" && f.alpha == nil:
		f.alpha = body
	}
}

// readWebP reads the chunks and makes a file of the first frame for the decoder, which cannot read
// animations and refuses a picture whose alpha flag contradicts its chunks. The forms of a file
// are:
//
//	RIFF  VP8 | VP8L                                   lossy or lossless, without metadata
//	RIFF  VP8X  [ICCP]  [ALPH]  VP8 | VP8L  [EXIF]     with a canvas
//	RIFF  VP8X  [ICCP]  ANIM  { ANMF }*  [EXIF]        animated, the frames inside of ANMF
func readWebP(data []byte) (header, error) {
	c := byteReader{remaining: data[4:]}
	body := byteReader{remaining: c.take(c.uint32(binary.LittleEndian))}
	if c.truncated {
		return header{}, errTruncated
	}
	body.take(4) // "WEBP"
	h := header{frames: 1, orientation: identityOrientation}
	var frame webpFrame
	var animated bool
	var exif, icc []byte
	err := eachChunk(&body, func(kind string, chunk []byte) error {
		switch kind {
		case "VP8X":
			if len(chunk) < 10 || h.width != 0 {
				return errMalformed
			}
			animated = chunk[0]&webpAnimation != 0
			h.width, h.height = uint24(chunk[4:])+1, uint24(chunk[7:])+1
			h.frame = image.Rect(0, 0, h.width, h.height)
			if animated {
				h.frames = 0
			}
		case "ANMF":
			return h.addAnimationFrame(chunk, &frame)
		case "EXIF":
			exif = bytes.TrimPrefix(chunk, exifPrefix)
		case "ICCP":
			icc = chunk
		default:
			if !animated {
				frame.add(kind, chunk)
			}
		}
		return nil
	})
	if err != nil {
		return header{}, err
	}
	h.orientation, h.profile = exifOrientation(exif), checkProfile(icc, profileRGB)
	return h, h.finish(&frame)
}

// addAnimationFrame counts the frames of an animation and keeps the first. A frame has its place
// in the canvas, and inside of it the same chunks as a still picture.
func (h *header) addAnimationFrame(chunk []byte, frame *webpFrame) error {
	h.frames++
	if h.frames != 1 {
		return nil
	}
	if len(chunk) < 16 {
		return errMalformed
	}
	at := image.Pt(2*uint24(chunk), 2*uint24(chunk[3:]))
	h.frame = image.Rectangle{at, at.Add(image.Pt(uint24(chunk[6:])+1, uint24(chunk[9:])+1))}
	return eachChunk(&byteReader{remaining: chunk[16:]}, func(kind string, chunk []byte) error {
		frame.add(kind, chunk)
		return nil
	})
}

// finish uses the dimensions of the frame if the file gives no others, and builds the file for the
// decoder.
func (h *header) finish(f *webpFrame) error {
	width, height, ok := f.size()
	if !ok {
		return errMalformed
	}
	if h.width == 0 {
		h.width, h.height = width, height
		h.frame = image.Rect(0, 0, width, height)
	}
	if h.frame.Dx() != width || h.frame.Dy() != height {
		return errMalformed
	}
	h.still = f.file(width, height)
	return nil
}

// size reads the dimensions from the first bytes of the frame's pixels. Both kinds have a
// signature; ok reports that it is there.
func (f *webpFrame) size() (width, height int, ok bool) {
	p := f.pixels
	switch {
	case f.kind == "VP8 " && len(p) >= 10 && p[3] == 0x9d && p[4] == 0x01 && p[5] == 0x2a:
		return int(binary.LittleEndian.Uint16(p[6:]) & 0x3fff),
			int(binary.LittleEndian.Uint16(p[8:]) & 0x3fff), true
	case f.kind == "VP8L" && len(p) >= 5 && p[0] == 0x2f:
		bits := binary.LittleEndian.Uint32(p[1:])
		return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1, true
	}
	return 0, 0, false
}

// file makes a WebP file of this frame alone. The header VP8X is needed for alpha only, and has no
// other flag.
func (f *webpFrame) file(width, height int) []byte {
	b := []byte("RIFF\x00\x00\x00\x00WEBP")
	if f.kind == "VP8 " && f.alpha != nil {
		extended := make([]byte, 10)
		extended[0] = webpAlpha
		putUint24(extended[4:], width-1)
		putUint24(extended[7:], height-1)
		b = appendRIFF(b, "VP8X", extended)
		b = appendRIFF(b, "ALPH", f.alpha)
	}
	b = appendRIFF(b, f.kind, f.pixels)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-8))
	return b
}

// eachChunk calls fn for each chunk of a RIFF list. A chunk of odd length is followed by one byte
// of padding, which the last one may lack.
func eachChunk(c *byteReader, fn func(kind string, body []byte) error) error {
	for len(c.remaining) > 0 {
		kind := string(c.take(4))
		length := c.uint32(binary.LittleEndian)
		chunk := c.take(length)
		if c.truncated {
			return errTruncated
		}
		if length&1 == 1 && len(c.remaining) > 0 {
			c.take(1)
		}
		if err := fn(kind, chunk); err != nil {
			return err
		}
	}
	return nil
}

// appendRIFF appends a chunk with its length and padding.
func appendRIFF(to []byte, kind string, body []byte) []byte {
	to = binary.LittleEndian.AppendUint32(append(to, kind...), uint32(len(body)))
	to = append(to, body...)
	if len(body)&1 == 1 {
		to = append(to, 0)
	}
	return to
}

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

func putUint24(b []byte, n int) { b[0], b[1], b[2] = byte(n), byte(n>>8), byte(n>>16) }
