package picture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"image/gif"
	"slices"
	"testing"
)

// hostile is what strangers send, with the type of the error it must end in.
func hostile(t testing.TB) map[string]struct {
	data []byte
	want string
} {
	opaque := drawing(t, "drawing.png")
	jpg, pngFile, lossy := asJPEG(t, opaque), asPNG(t, opaque), fixture(t, "lossy.webp")
	type entry = struct {
		data []byte
		want string
	}
	return map[string]entry{
		"nothing": {nil, DecodeError},
		"text": {[]byte("This is no picture, whatever its name is.\n"),
			DecodeError},
		"SVG": {[]byte(
			`<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`),
			DecodeError},
		"TIFF":                      {exifData(1), DecodeError},
		"PDF":                       {[]byte("%PDF-1.7\n1 0 obj\n"), DecodeError},
		"a JPEG's first bytes":      {[]byte("\xff\xd8\xff"), DecodeError},
		"a JPEG without a picture":  {[]byte("\xff\xd8\xff\xe0\x00\x02\xff\xd9"), DecodeError},
		"JPEG of 65535 × 65535":     {jpegOf(jpg, 65535, 65535), TooLarge},
		"JPEG of no height":         {jpegOf(jpg, 121, 0), DecodeError},
		"JPEG larger than its data": {jpegOf(jpg, 5000, 5000), DecodeError},
		"JPEG with two sizes":       {withSegments(jpg, sof(8, 8)), DecodeError},
		"JPEG of arithmetic coding": {fixture(t, "arithmetic.jpg"), Unsupported},
		"JPEG of 12 bits":           {jpegBits(jpg, 12), Unsupported},
		"PNG of 2³¹ × 2³¹":          {pngOf(pngFile, 1<<31-1, 1<<31-1), TooLarge},
		"PNG of 65535 × 65535":      {pngOf(pngFile, 65535, 65535), TooLarge},
		"PNG larger than its data":  {pngOf(pngFile, 5000, 5000), DecodeError},
		"PNG of no width":           {pngOf(pngFile, 0, 81), DecodeError},
		"PNG with two headers":      {withChunks(pngFile, pngFile[8:33]), DecodeError},
		"PNG with a wrong checksum": {slices.Concat(pngFile[:60], []byte{pngFile[60] ^ 1},
			pngFile[61:]), DecodeError},
		"PNG of 4,000,000,000 frames": {withChunks(pngFile,
			chunk("acTL", "\xee\x6b\x28\x00\x00\x00\x00\x00")), TooLarge},
		"GIF of 65535 × 65535": {slices.Concat([]byte("GIF89a\xff\xff\xff\xff"),
			asGIF(t, dot())[10:]), TooLarge},
		"GIF of 10,000 frames": {gifOf(t, 10_000, 100), TooLarge},
		"GIF without a frame": {[]byte("GIF89a\x01\x00\x01\x00\x00\x00\x00\x3b"),
			DecodeError},
		"GIF with an unknown block": {[]byte("GIF89a\x01\x00\x01\x00\x00\x00\x00\x99"),
			DecodeError},
		"WebP of 2²⁴ × 2²⁴": {bytes.Replace(webpFrames(1), []byte{99, 0, 0, 99, 0, 0},
			bytes.Repeat([]byte{0xff}, 6), 1), TooLarge},
		"WebP of 16383 × 16383": {webpOf(lossy, 16383, 16383), TooLarge},
		"WebP larger than its data": {webpOf(fixture(t, "lossless.webp"), 5000, 5000),
			DecodeError},
		"WebP of two sizes":     {withRIFF(webpOf(lossy, 16383, 3000), 0, nil), DecodeError},
		"WebP of 10,000 frames": {webpFrames(10_000), TooLarge},
		"WebP without a frame":  {[]byte("RIFF\x04\x00\x00\x00WEBP"), DecodeError},
	}
}

// sof is a frame header of a JPEG in three components.
func sof(width, height int) []byte {
	b := []byte{8, byte(height >> 8), byte(height), byte(width >> 8), byte(width), 3, 1, 0x22, 0, 2,
		0x11, 1, 3, 0x11, 1}
	return segment(0xc0, b)
}

// jpegOf lets a JPEG claim another size.
func jpegOf(jpeg []byte, width, height int) []byte {
	b := slices.Clone(jpeg)
	at := bytes.Index(b, []byte{0xff, 0xc0})
	binary.BigEndian.PutUint16(b[at+5:], uint16(height))
	binary.BigEndian.PutUint16(b[at+7:], uint16(width))
	return b
}

func jpegBits(jpeg []byte, bits byte) []byte {
	b := slices.Clone(jpeg)
	b[bytes.Index(b, []byte{0xff, 0xc0})+4] = bits
	return b
}

// pngOf lets a PNG claim another size, with a correct checksum.
func pngOf(png []byte, width, height int) []byte {
	body := slices.Clone(png[16:29])
	binary.BigEndian.PutUint32(body, uint32(width))
	binary.BigEndian.PutUint32(body[4:], uint32(height))
	return slices.Concat(png[:8], appendChunk(nil, "IHDR", body), png[33:])
}

// webpOf lets a simple WebP claim another size.
func webpOf(webp []byte, width, height int) []byte {
	b := slices.Clone(webp)
	if string(b[12:16]) == "VP8L" {
		binary.LittleEndian.PutUint32(b[21:],
			binary.LittleEndian.Uint32(b[21:])&^0xfffffff|uint32(width-1)|uint32(height-1)<<14)
		return b
	}
	binary.LittleEndian.PutUint16(b[26:], uint16(width))
	binary.LittleEndian.PutUint16(b[28:], uint16(height))
	return b
}

// webpFrames is an animation of 100 × 100 pixels.
func webpFrames(n int) []byte {
	extended := []byte{webpAnimation, 0, 0, 0, 99, 0, 0, 99, 0, 0}
	pixels := appendRIFF(nil, "VP8L", []byte{0x2f, 99, 99 << 6 & 0xff, 99 >> 2, 0})
	frame := append([]byte{0, 0, 0, 0, 0, 0, 99, 0, 0, 99, 0, 0, 0, 0, 0, 0}, pixels...)
	body := appendRIFF([]byte("WEBP"), "VP8X", extended)
	for range n {
		body = appendRIFF(body, "ANMF", frame)
	}
	return append(binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(len(body))), body...)
}

func dot() *image.Paletted {
	return image.NewPaletted(image.Rect(0, 0, 1, 1), color.Palette{color.Black})
}

// gifOf has n frames of a pixel each on a screen of side × side.
func gifOf(t testing.TB, n, side int) []byte {
	frames := make([]*image.Paletted, n)
	for i := range frames {
		frames[i] = dot()
	}
	var b bytes.Buffer
	g := &gif.GIF{Image: frames, Delay: make([]int, n),
		Config: image.Config{ColorModel: dot().Palette, Width: side, Height: side}}
	if err := gif.EncodeAll(&b, g); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestHostile gives the child less memory than any of the claimed pictures would take: they are
// refused by their headers, not by the lack of it.
func TestHostile(t *testing.T) {
	t.Parallel()
	for name, c := range hostile(t) {
		t.Run("G-IP-17 "+name, func(t *testing.T) {
			t.Parallel()
			mustFail(t, assertWithin(t, Limits{Pixels: 50_000_000, Memory: 256 << 20,
				Timeout: DefaultTimeout}), c.data, c.want, true)
		})
	}
	t.Run("G-IP-17 few pixels in many frames are no harm", func(t *testing.T) {
		t.Parallel()
		if _, got := mustRun(t, gifOf(t, 10_000, 10), 100); got[0].Width != 10 {
			t.Errorf("got %+v", got[0].Variant)
		}
	})
	t.Run("G-IP-17 the limit itself is allowed", func(t *testing.T) {
		t.Parallel()
		data := asPNG(t, drawing(t, "drawing.png"))
		if _, err := readHeader(data, 121*81); err != nil {
			t.Error(err)
		}
		mustFail(t, assertWithin(t, Limits{Pixels: 121*81 - 1, Memory: DefaultMemory,
			Timeout: DefaultTimeout}), data, TooLarge, true)
	})
}

// TestTruncated cuts pictures of all kinds everywhere: small ones at every byte, others at every
// second or third.
func TestTruncated(t *testing.T) {
	t.Parallel()
	for _, k := range kinds(t) {
		t.Run("G-IP-17 truncated "+k.name, func(t *testing.T) {
			t.Parallel()
			if err := decodeAll(k.data); err != nil {
				t.Fatalf("whole: %v", err)
			}
			for n := 0; n < len(k.data); n += 1 + len(k.data)/1500 {
				var e *Error
				if err := decodeAll(k.data[:n]); !errors.As(err, &e) || e.Type != DecodeError {
					t.Fatalf("the first %d of %d bytes: %v", n, len(k.data), err)
				}
			}
		})
	}
}

func decodeAll(data []byte) error {
	h, err := readHeader(data, 1<<20)
	if err == nil {
		_, err = h.decode([]int{100})
	}
	return err
}

// TestTwoReaders shows that a decoder which would read another size than ours gets nothing to
// decode.
func TestTwoReaders(t *testing.T) {
	t.Parallel()
	h, err := readHeader(asPNG(t, image.NewGray(image.Rect(0, 0, 8, 8))), 64)
	if err != nil {
		t.Fatal(err)
	}
	h.still = asPNG(t, image.NewGray(image.Rect(0, 0, 900, 900)))
	var e *Error
	if err := h.check(64); !errors.As(err, &e) || e.Type != DecodeError {
		t.Errorf("got %v", err)
	}
}
