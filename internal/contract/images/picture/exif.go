package picture

import (
	"bytes"
	"encoding/binary"
)

// orientation is how a stored picture becomes upright: mirrored along an axis or two, then rows and
// columns exchanged.
type orientation struct {
	flipX, flipY, transpose bool
}

var identityOrientation = orientation{}

// orientations are the values of the EXIF tag; a value it does not have means upright.
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

// exifOrientation reads the one thing of a picture's EXIF data that is used. Data that is broken,
// or says something else, turns nothing: a picture is not refused for it.
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
