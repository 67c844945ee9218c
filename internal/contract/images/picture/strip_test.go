package picture

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"image"
	"slices"
	"strings"
	"testing"

	"golang.org/x/image/draw"
)

// secret is what must not reach a variant.
const secret = "do-not-pass-this-on"

// exifData has an orientation, the secret as artist, and whatever else is given behind it.
func exifData(value int, more ...byte) []byte {
	b := []byte("MM\x00*\x00\x00\x00\x08\x00\x02")
	b = append(b, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, byte(value), 0, 0)
	b = append(b, 1, 0x3b, 0, 2, 0, 0, 0, byte(len(secret)), 0, 0, 0, 38)
	b = append(b, 0, 0, 0, 0)
	return append(append(b, secret...), more...)
}

// profileOf returns a colour profile of the given length.
func profileOf(space string, length int) []byte {
	p := bytes.Repeat([]byte("colour! "), length/8+1)[:length]
	binary.BigEndian.PutUint32(p, uint32(length))
	copy(p[16:], space)
	copy(p[36:], "acsp")
	return p
}

func segment(marker byte, body ...[]byte) []byte {
	all := slices.Concat(body...)
	return append([]byte{0xff, marker, byte((len(all) + 2) >> 8), byte(len(all) + 2)}, all...)
}

// withSegments puts segments behind the start of a JPEG.
func withSegments(jpeg []byte, segments ...[]byte) []byte {
	return slices.Concat(jpeg[:2], slices.Concat(segments...), jpeg[2:])
}

func withExif(jpeg, exif []byte) []byte {
	return withSegments(jpeg, segment(markerEXIF, exifPrefix, exif))
}

// withChunks puts chunks behind the header of a PNG.
func withChunks(png []byte, chunks ...[]byte) []byte {
	return slices.Concat(png[:33], slices.Concat(chunks...), png[33:])
}

func chunk(kind, body string) []byte { return appendChunk(nil, kind, []byte(body)) }

// withRIFF appends chunks to a WebP in the extended form.
func withRIFF(webp []byte, flags byte, chunks ...[]byte) []byte {
	extended := append([]byte{flags, 0, 0, 0}, 120, 0, 0, 80, 0, 0)
	body := slices.Concat(webp[8:12], appendRIFF(nil, "VP8X", extended),
		slices.Concat(chunks[:1]...), webp[12:], slices.Concat(chunks[1:]...))
	return slices.Concat([]byte("RIFF"), binary.LittleEndian.AppendUint32(nil, uint32(len(body))),
		body)
}

// parts names the segments or chunks of a variant, so that nothing unknown can be among them.
func parts(t *testing.T, v renderedVariant) []string {
	t.Helper()
	var names []string
	c := byteReader{remaining: v.data[2:]}
	if v.MIME == "image/png" {
		c = byteReader{remaining: v.data[8:]}
		for len(c.remaining) > 0 {
			length := c.uint32(binary.BigEndian)
			names = append(names, string(c.remaining[:4]))
			if sum := crc32.ChecksumIEEE(c.take(4 +
				length)); int(sum) != c.uint32(binary.BigEndian) {
				t.Errorf("the checksum of %s is wrong", names[len(names)-1])
			}
		}
		return slices.Compact(names)
	}
	for {
		marker := nextMarker(&c)
		names = append(names, string("0123456789abcdef"[marker>>4])+
			string("0123456789abcdef"[marker&15]))
		if c.truncated || marker == markerSOS {
			return slices.Compact(names)
		}
		c.take(c.uint16(binary.BigEndian) - 2)
	}
}

// TestNothingElse puts the secret wherever a file has room for it.
func TestNothingElse(t *testing.T) {
	t.Parallel()
	opaque := drawing(t, "drawing.png")
	still, _, _ := gifs(t, opaque)
	gif := asGIF(t, still)
	gif = slices.Concat(gif[:len(gif)-1], []byte("\x21\xfe"), []byte{byte(len(secret))},
		[]byte(secret), []byte("\x00\x3b"))
	for name, original := range map[string][]byte{
		"JPEG": withSegments(asJPEG(t, opaque), segment(markerEXIF, exifPrefix, exifData(1)),
			segment(0xfe, []byte(secret)),
			segment(markerEXIF, []byte("http://ns.adobe.com/xap/1.0/\x00"+secret)),
			segment(0xed, []byte(secret))),
		"PNG": withChunks(asPNG(t, opaque), chunk("tEXt", "Comment\x00"+secret),
			appendChunk(nil, "eXIf", exifData(1)),
			chunk("prVt", secret), chunk("iTXt", "XML:com.adobe.xmp\x00\x00\x00\x00\x00"+secret)),
		"GIF": gif,
		"WebP": withRIFF(fixture(t, "lossy.webp"), 0x0c, nil, appendRIFF(nil, "EXIF", exifData(1)),
			appendRIFF(nil, "XMP ", []byte(secret))),
	} {
		t.Run("G-IP-17 "+name+": no metadata and no trailing bytes reach a variant",
			func(t *testing.T) {
				t.Parallel()
				original = append(slices.Clone(original), "<?php "+secret+" ?>PK\x03\x04"...)
				if !bytes.Contains(original, []byte(secret)) {
					t.Fatal("the original does not hold it")
				}
				_, got := mustRun(t, original, 50, 121)
				for _, v := range got {
					if bytes.Contains(v.data, []byte(secret)) {
						t.Errorf("size %d holds it", v.Size)
					}
					want := []string{"db", "c0", "c4", "da"}
					if v.MIME == "image/png" {
						want = []string{"IHDR", "IDAT", "IEND"}
					}
					if names := parts(t, v); !slices.Equal(names, want) {
						t.Errorf("size %d has %v, want %v", v.Size, names, want)
					}
					if !bytes.HasSuffix(v.data, []byte("IEND\xae\x42\x60\x82")) &&
						!bytes.HasSuffix(v.data, []byte{0xff, markerEOI}) {
						t.Errorf("size %d ends with % x", v.Size, v.data[len(v.data)-8:])
					}
				}
			})
	}
}

func TestColour(t *testing.T) {
	t.Parallel()
	opaque := drawing(t, "drawing.png")
	grey := image.NewGray(opaque.Rect)
	draw.Draw(grey, grey.Rect, opaque, image.Point{}, draw.Src)
	rgb, large, ofGrey := profileOf(profileRGB, 560), profileOf(profileRGB, 150_000),
		profileOf(profileGray, 400)
	gamma := slices.Concat(chunk("gAMA", "\x00\x00\xb1\x8f"),
		chunk("cHRM", strings.Repeat("\x00\x01", 16)))
	swapped := jpegProfile(large) // in three segments, the last first
	first, last := swapped[:0xffff+2], swapped[2*(0xffff+2):]
	swapped = slices.Concat(last, first, swapped[0xffff+2:2*(0xffff+2)])
	for _, c := range []struct {
		name     string
		original []byte
		want     []byte // the profile of the variants
	}{
		{"JPEG", withSegments(asJPEG(t, opaque), jpegProfile(rgb)), rgb},
		{"JPEG, a large one in several segments", withSegments(asJPEG(t, opaque), swapped), large},
		{"JPEG grey", withSegments(asJPEG(t, grey), jpegProfile(ofGrey)), ofGrey},
		{"PNG", withChunks(asPNG(t, opaque), pngProfile(rgb)), rgb},
		{"PNG grey", withChunks(asPNG(t, grey), pngProfile(ofGrey)), ofGrey},
		{"WebP", withRIFF(fixture(t, "lossy.webp"), 0x20, appendRIFF(nil, "ICCP", rgb)), rgb},
		{"WebP with transparency", withRIFF(fixture(t, "lossless-alpha.webp"), 0x30,
			appendRIFF(nil, "ICCP", rgb)), rgb},
		{"not of CMYK, which the variants are not",
			withSegments(fixture(t, "cmyk.jpg"), jpegProfile(profileOf("CMYK", 560))), nil},
		{"not one for other colours", withChunks(asPNG(t, grey), pngProfile(rgb)), nil},
		{"not one that lies about its length",
			withSegments(asJPEG(t, opaque), jpegProfile(append(slices.Clone(rgb), 1))), nil},
		{"not one with a part missing", withSegments(asJPEG(t, opaque),
			jpegProfile(large)[:2*(0xffff+2)]), nil},
		{"not what is no profile", withSegments(asJPEG(t, opaque),
			jpegProfile(bytes.Repeat([]byte(secret), 20))), nil},
	} {
		t.Run("G-IP-14 the profile of a "+c.name, func(t *testing.T) {
			t.Parallel()
			_, got := mustRun(t, c.original, 50, 121)
			for _, v := range got {
				h, err := readHeader(v.data, wideImage.Pixels)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(h.profile, c.want) {
					t.Errorf("size %d has a profile of %d bytes, want %d", v.Size, len(h.profile),
						len(c.want))
				}
				if names := parts(t, v); c.want == nil &&
					(slices.Contains(names, "iCCP") || slices.Contains(names, "e2")) {
					t.Errorf("size %d has %v", v.Size, names)
				}
			}
		})
	}
	t.Run("G-IP-14 the gamma of a PNG", func(t *testing.T) {
		t.Parallel()
		_, got := mustRun(t, withChunks(asPNG(t, opaque), gamma, chunk("gAMA", secret)), 50)
		if want := []string{"IHDR", "gAMA", "cHRM", "IDAT", "IEND"}; !slices.Equal(parts(t, got[0]),
			want) || !bytes.Contains(got[0].data, gamma) {
			t.Errorf("got %v, want %v", parts(t, got[0]), want)
		}
	})
}

func TestProfileBomb(t *testing.T) {
	t.Parallel()
	original := withChunks(asPNG(t, drawing(t, "drawing.png")), pngProfile(make([]byte, 96<<20)))
	p := assertWithin(t, Limits{Pixels: 50_000_000, Memory: 64 << 20, Timeout: DefaultTimeout})
	_, variants, err := p.Run(context.Background(), bytes.NewReader(original), []int{50},
		t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if names := parts(t, mustRead(t, variants[0])); !slices.Equal(names,
		[]string{"IHDR", "IDAT", "IEND"}) {
		t.Errorf("got %v", names)
	}
}
