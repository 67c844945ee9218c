package picture

import "encoding/binary"

// readGIF walks all blocks up to the trailer and counts the frames, which the limit on pixels
// includes although only the first one is decoded. A file without a trailer is truncated, and
// bytes after the trailer are ignored.
//
//	"GIF89a"  width, height, flags, …  colour table  { extension | image }*  trailer
func readGIF(data []byte) (header, error) {
	c := byteReader{remaining: data[6:]}
	width, height := c.uint16(binary.LittleEndian), c.uint16(binary.LittleEndian)
	h := unchangedHeader(data, width, height, 0)
	flags := c.byte()
	c.take(2) // background and aspect
	c.take(colourTable(flags))
	for !c.truncated {
		switch c.byte() {
		case 0x21: // extension
			c.byte()
			skipBlocks(&c)
		case 0x2c: // image
			c.take(8)
			c.take(colourTable(c.byte()))
			c.byte() // width of codes
			skipBlocks(&c)
			h.frames++
		case 0x3b: // trailer
			if !c.truncated {
				return h, nil
			}
		default:
			if !c.truncated {
				return header{}, errMalformed
			}
		}
	}
	return header{}, errTruncated
}

// colourTable is the length of the colour table that the flags announce.
func colourTable(flags byte) int {
	if flags&0x80 == 0 {
		return 0
	}
	return 3 << (flags&7 + 1)
}

// skipBlocks skips sub-blocks up to the empty one that ends them.
func skipBlocks(c *byteReader) {
	for n := c.byte(); n != 0; n = c.byte() {
		c.take(int(n))
	}
}
