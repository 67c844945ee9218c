package picture

import (
	"bytes"
	"encoding/binary"
)

// orientation says how a stored picture becomes upright: it is flipped along one or both axes, then
// transposed.
type orientation struct {
	flipX, flipY, transpose bool
}

var identityOrientation = orientation{}

// orientations are indexed by the values of the EXIF tag; other values mean upright.
var orientations = [9]orientation{
	2: {flipX: true},
	3: {flipX: true, flipY: true},
	4: {flipY: true},
	5: {transpose: true},
	6: {flipY: true, transpose: true},
	7: {flipX: true, flipY: true, transpose: true},
	8: {flipX: true, transpose: true},
}

const (
	tagOrientation = 0x0112
	typeShort      = 3
)

// exifOrientation reads the orientation from EXIF data. Malformed data or an unknown value means
// upright; the picture is not refused because of it. EXIF data is a TIFF file: the byte order, the
// offset of the first directory, and there the number of entries of 12 bytes each (tag, type,
// count, value). Only that directory is read; offsets that lead outside of the data truncate the
// reader.
func exifOrientation(tiff []byte) orientation {
	var order binary.ByteOrder = binary.BigEndian
	switch {
	case bytes.HasPrefix(tiff, []byte("II*\x00")):
		order = binary.LittleEndian
	case !bytes.HasPrefix(tiff, []byte("MM\x00*")):
		return identityOrientation
	}
	c := byteReader{remaining: tiff}
	c.take(4)
	offset := c.uint32(order)
	c = byteReader{remaining: tiff}
	c.take(offset)
	for range c.uint16(order) {
		entry := byteReader{remaining: c.take(12)}
		if c.truncated {
			return identityOrientation
		}
		tag, kind, count, value := entry.uint16(order), entry.uint16(order), entry.uint32(order),
			entry.uint16(order)
		if tag != tagOrientation {
			continue
		}
		if kind != typeShort || count != 1 || value >= len(orientations) {
			return identityOrientation
		}
		return orientations[value]
	}
	return identityOrientation
}
