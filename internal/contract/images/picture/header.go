package picture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/webp"
)

// A file goes through these steps before it is decoded:
//
//	magic    the format, by the first bytes; what was declared does not count (G-IP-17)
//	read     the structure of the file, and what its headers say
//	check    the limit on pixels, and that the decoder reads the same dimensions

// header is what the headers of a file say about its picture, before anything is decoded.
type header struct {
	format        *format
	width, height int // as stored, before the orientation is applied
	frames        int
	orientation   orientation
	profile       []byte          // the valid ICC profile; nil if there is none
	colour        []byte          // the PNG chunks of pngColour, in the form they are written
	still         []byte          // for the decoder: the file, or for WebP one of the first frame
	frame         image.Rectangle // the position of still in the picture
}

// format is a type of picture that can be read: magic detects it, read is the strict reader of
// this package, config and decode are functions of the decoder.
type format struct {
	mime   string
	magic  func(data []byte) bool
	read   func(data []byte) (header, error)
	config func(r io.Reader) (image.Config, error)
	decode func(r io.Reader) (image.Image, error)
}

var formats = []format{
	{"image/jpeg", startsWith("\xff\xd8\xff"), readJPEG, jpeg.DecodeConfig, jpeg.Decode},
	{"image/png", startsWith(pngSignature), readPNG, png.DecodeConfig, png.Decode},
	{"image/gif", func(b []byte) bool {
		return startsWith("GIF87a")(b) || startsWith("GIF89a")(b)
	}, readGIF, gif.DecodeConfig, gif.Decode},
	{"image/webp", func(b []byte) bool {
		return startsWith("RIFF")(b) && len(b) >= 12 && string(b[8:12]) == "WEBP"
	}, readWebP,
		webp.DecodeConfig, webp.Decode},
}

// startsWith returns a function for format.magic.
func startsWith(s string) func([]byte) bool {
	return func(b []byte) bool { return bytes.HasPrefix(b, []byte(s)) }
}

var (
	errTruncated = errors.New("the file ends before the picture does")
	errMalformed = errors.New("the file's structure is broken")
)

// readHeader detects the format of a file by its first bytes and refuses files that must not be
// decoded. It decodes nothing, and its cost does not depend on the dimensions in the headers. Its
// errors are of the type Error. The header may share memory with data.
func readHeader(data []byte, limit int64) (header, error) {
	for i := range formats {
		f := &formats[i]
		if !f.magic(data) {
			continue
		}
		h, err := f.read(data)
		if err != nil {
			return header{}, errorf(DecodeError, "%s: %v", f.mime, err)
		}
		h.format = f
		return h, h.check(limit)
	}
	return header{}, errorf(DecodeError, "neither a JPEG, PNG, GIF nor WebP")
}

// check compares the header with the limit, and with the dimensions that the decoder itself reads:
// if the two differed, the decoder could need more memory than the limit allows. The limit is
// divided by the frames, as the product of all three could overflow.
func (h *header) check(limit int64) error {
	if h.width <= 0 || h.height <= 0 || h.frames <= 0 {
		return errorf(DecodeError, "%s: a picture of %d × %d pixels in %d frames", h.format.mime,
			h.width, h.height, h.frames)
	}
	if pixels := int64(h.width) * int64(h.height); pixels > limit/int64(h.frames) {
		return errorf(TooLarge, "%d × %d pixels in %d frames, more than %d", h.width, h.height,
			h.frames, limit)
	}
	if !h.frame.In(image.Rect(0, 0, h.width, h.height)) {
		return errorf(DecodeError, "%s: the first frame lies outside of the picture", h.format.mime)
	}
	config, err := h.format.config(bytes.NewReader(h.still))
	if err != nil {
		return decodeError(h.format.mime, err)
	}
	if config.Width != h.frame.Dx() || config.Height != h.frame.Dy() {
		return errorf(DecodeError, "%s: the file gives two sizes for its picture", h.format.mime)
	}
	return nil
}

// decodeError classifies the errors of decoders. GIF and WebP have no type for what a decoder
// lacks, so such a file counts as one that cannot be decoded.
func decodeError(mime string, err error) error {
	var j jpeg.UnsupportedError
	var p png.UnsupportedError
	if errors.As(err, &j) || errors.As(err, &p) {
		return errorf(Unsupported, "%s: %v", mime, err)
	}
	return errorf(DecodeError, "%s: %v", mime, err)
}

// unchangedHeader is the header of a file that the decoder reads as it is.
func unchangedHeader(data []byte, width, height, frames int) header {
	return header{width: width, height: height, frames: frames, orientation: identityOrientation,
		still: data, frame: image.Rect(0, 0, width, height)}
}

// byteReader reads untrusted bytes. A read beyond the end returns zeros and sets truncated.
type byteReader struct {
	remaining []byte
	truncated bool
}

// take returns the next n bytes, or nil and sets truncated if there are fewer. A negative n, from
// a length that is too small or too large, counts as too many. The bytes are a part of the data,
// with no capacity behind them.
func (c *byteReader) take(n int) []byte {
	if n < 0 || n > len(c.remaining) {
		c.truncated, c.remaining = true, nil
		return nil
	}
	b := c.remaining[:n:n]
	c.remaining = c.remaining[n:]
	return b
}

func (c *byteReader) byte() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *byteReader) uint16(order binary.ByteOrder) int {
	if b := c.take(2); b != nil {
		return int(order.Uint16(b))
	}
	return 0
}

func (c *byteReader) uint32(order binary.ByteOrder) int {
	if b := c.take(4); b != nil {
		return int(order.Uint32(b))
	}
	return 0
}
