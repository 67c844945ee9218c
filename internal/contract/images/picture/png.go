package picture

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"io"
)

const pngSignature = "\x89PNG\r\n\x1a\n"

// pngColour are the chunks, with their fixed lengths, that define the colour space of a PNG. They
// are copied to variants: with a fixed length they can hold nothing else.
var pngColour = map[string]int{"gAMA": 4, "cHRM": 32, "sRGB": 1, "cICP": 4}

// readPNG reads the chunks of the whole file, as the orientation may follow the pixels. The frames
// of an animated PNG are counted by what acTL announces; the decoder reads the default image
// alone. Of a chunk that is repeated the last one counts, but all copies of those of pngColour are
// kept.
func readPNG(data []byte) (header, error) {
	c := byteReader{remaining: data[len(pngSignature):]}
	var h header
	var exif, icc []byte
	want := profileRGB
	for first := true; ; first = false {
		length := c.uint32(binary.BigEndian)
		kind := string(c.take(4))
		body := c.take(length)
		c.uint32(binary.BigEndian) // the decoder verifies the checksum
		if c.truncated {
			return header{}, errTruncated
		}
		if first != (kind == "IHDR") {
			return header{}, errMalformed
		}
		switch kind {
		case "IHDR":
			if length != 13 {
				return header{}, errMalformed
			}
			h = unchangedHeader(data, int(binary.BigEndian.Uint32(body)),
				int(binary.BigEndian.Uint32(body[4:])), 1)
			if colourType := body[9]; colourType == 0 {
				want = profileGray
			}
		case "acTL":
			if length >= 4 {
				h.frames = max(1, int(binary.BigEndian.Uint32(body)))
			}
		case "eXIf":
			exif = body
		case "iCCP":
			icc = inflateProfile(body)
		case "IEND":
			h.orientation, h.profile = exifOrientation(exif), checkProfile(icc, want)
			return h, nil
		default:
			if n, ok := pngColour[kind]; ok && n == length {
				h.colour = appendChunk(h.colour, kind, body)
			}
		}
	}
}

// appendChunk appends a PNG chunk with its length and checksum.
func appendChunk(to []byte, kind string, body []byte) []byte {
	to = binary.BigEndian.AppendUint32(to, uint32(len(body)))
	start := len(to)
	to = append(append(to, kind...), body...)
	return binary.BigEndian.AppendUint32(to, crc32.ChecksumIEEE(to[start:]))
}

// inflateProfile decompresses the profile of an iCCP chunk: a name, a zero, the method zero and a
// zlib stream. It stops after one byte more than maxProfile.
func inflateProfile(chunk []byte) []byte {
	_, packed, ok := bytes.Cut(chunk, []byte{0})
	if !ok || len(packed) == 0 || packed[0] != 0 {
		return nil
	}
	r, err := zlib.NewReader(bytes.NewReader(packed[1:]))
	if err != nil {
		return nil
	}
	profile, err := io.ReadAll(io.LimitReader(r, maxProfile+1))
	if err != nil {
		return nil
	}
	return profile
}
