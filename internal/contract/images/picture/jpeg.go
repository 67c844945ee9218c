package picture

import (
	"bytes"
	"encoding/binary"
)

const (
	markerSOI  = 0xd8
	markerEOI  = 0xd9
	markerSOS  = 0xda
	markerEXIF = 0xe1 // APP1
	markerICC  = 0xe2 // APP2
)

var (
	exifPrefix = []byte("Exif\x00\x00")
	iccPrefix  = []byte("ICC_PROFILE\x00")
)

// readJPEG reads the segments up to the first scan; what follows is left to the decoder. Of
// several frames and EXIF segments the first one counts.
//
//	FF D8  { FF marker  length  segment }*  FF DA  scan …
func readJPEG(data []byte) (header, error) {
	c := byteReader{remaining: data[2:]}
	var width, height, components int
	var exif []byte
	var icc iccParts
	for {
		marker := nextMarker(&c)
		if c.truncated {
			return header{}, errTruncated
		}
		if marker == markerSOS {
			break
		}
		if marker == markerEOI {
			return header{}, errMalformed
		}
		if marker == 0x01 || (marker >= 0xd0 && marker <= markerSOI) {
			continue // markers without a segment
		}
		segment := c.take(c.uint16(binary.BigEndian) - 2)
		if c.truncated {
			return header{}, errTruncated
		}
		switch {
		case isSOF(marker) && components == 0:
			s := byteReader{remaining: segment}
			s.byte() // precision
			height, width, components = s.uint16(binary.BigEndian), s.uint16(binary.BigEndian),
				int(s.byte())
			if s.truncated {
				return header{}, errMalformed
			}
		case marker == markerEXIF && exif == nil && bytes.HasPrefix(segment, exifPrefix):
			exif = segment[len(exifPrefix):]
		case marker == markerICC && bytes.HasPrefix(segment, iccPrefix):
			icc.add(segment[len(iccPrefix):])
		}
	}
	h := unchangedHeader(data, width, height, 1)
	h.orientation = exifOrientation(exif)
	h.profile = checkProfile(icc.join(), map[int]string{1: profileGray, 3: profileRGB}[components])
	return h, nil
}

// nextMarker skips to the next marker. Like the decoder it ignores bytes between segments. FF 00
// is a byte of data and not a marker, and a marker may follow any number of FF. At the end of the
// data it returns 0 and the reader is truncated.
func nextMarker(c *byteReader) byte {
	for !c.truncated {
		if c.byte() != 0xff {
			continue
		}
		marker := c.byte()
		for marker == 0xff {
			marker = c.byte()
		}
		if marker != 0 {
			return marker
		}
	}
	return 0
}

// isSOF reports whether a marker begins a frame and gives its dimensions.
func isSOF(marker byte) bool {
	return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc
}

// iccParts collects the parts of a profile from several segments.
type iccParts struct {
	parts [256][]byte
	count byte
}

// add keeps a part, which begins with its number and the number of parts. Of a repeated number the
// last one counts.
func (p *iccParts) add(segment []byte) {
	if len(segment) < 2 {
		return
	}
	p.parts[segment[0]], p.count = segment[2:], segment[1]
}

// join returns the profile, nil if there is none or a part is missing, and the picture then has
// none. The last segment says how many parts there are.
func (p *iccParts) join() []byte {
	var profile []byte
	for i := 1; i <= int(p.count); i++ {
		if p.parts[i] == nil {
			return nil // a part is missing
		}
		profile = append(profile, p.parts[i]...)
	}
	return profile
}
